"""How it stands with the whole installation at this moment, on one page."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi import __version__
from csi.dlq import dead_letters as dlq
from csi.pipeline import clock_check, quota_schedule
from csi.pipeline.quota_schedule import Forecast
from csi.runtime import Runtime
from csi.status import backlog as waiting
from csi.status import destinations as standing
from csi.status.backlog import Waiting
from csi.status.destinations import Standing
from csi.status.slo import Success, judge_success
from csi.store import heartbeats, hosts, watch_admin
from csi.store.heartbeats import Beat
from csi.store.models import Watch
from csi.store.queries import slo
from csi.store.queries.slo import Passage

HOUR = 3600.0
DAY = 86_400.0
WORKER = "worker"


@dataclass(frozen=True)
class SourceState:
    """One source of the configuration."""

    name: str
    is_enabled: bool
    active: int
    paused: int
    failing: int
    last_success_at: float | None
    last_new_at: float | None
    next_poll_at: float | None


@dataclass(frozen=True)
class Trouble:
    """A host that asked for a pause, or that many watches fail at."""

    host: str
    kind: str
    since: float | None
    until: float | None
    reason: str


@dataclass(frozen=True)
class Overview:
    """What a person wants to know first."""

    now: float
    version: str
    instance: str
    beat: Beat | None
    worker_trouble: str | None
    """Why nothing moves; None: the worker lives."""
    clock_hold: str | None
    """Why the worker does not poll; None: it trusts the clock."""
    sources: tuple[SourceState, ...]
    troubles: tuple[Trouble, ...]
    hour: Success
    day: Success
    destinations: tuple[Standing, ...]
    delivery_is_on: bool
    waiting: tuple[Waiting, ...]
    dead_letters: int
    quota: Forecast | None


def overview(rt: Runtime) -> Overview:
    now, beat = rt.now(), heartbeats.latest(WORKER)
    passed = list(slo.passages(now - DAY))
    return Overview(
        now=now,
        version=__version__,
        instance=rt.settings.csi.instance_id,
        beat=beat,
        worker_trouble=waiting.worker_gone(rt),
        clock_hold=clock_check.hold_text(beat, now),
        sources=tuple(_sources(rt)),
        troubles=tuple(_troubles(now)),
        hour=judge_success(_since(passed, now - HOUR)),
        day=judge_success(passed),
        destinations=tuple(standing.standings(rt)),
        delivery_is_on=rt.settings.features.delivery,
        waiting=tuple(waiting.waiting(rt)),
        dead_letters=dlq.open_count(),
        quota=quota_schedule.forecast(rt, now),
    )


def _since(passed: Sequence[Passage], moment: float) -> list[Passage]:
    return [one for one in passed if one.first_seen_at >= moment]


def _sources(rt: Runtime) -> list[SourceState]:
    rows, enabled = watch_admin.every(), rt.enabled_sources()
    names = dict.fromkeys([*rt.settings.sources, *(row.source for row in rows)])
    return [_source(name, name in enabled, [row for row in rows if row.source == name]) for name in names]


def _source(name: str, is_enabled: bool, rows: list[Watch]) -> SourceState:
    active = [row for row in rows if row.state == "active"]
    return SourceState(
        name=name,
        is_enabled=is_enabled,
        active=len(active),
        paused=sum(row.state == "paused" for row in rows),
        failing=sum(row.errors > 0 for row in active),
        last_success_at=max((row.last_success_at for row in active if row.last_success_at is not None), default=None),
        last_new_at=max((row.last_new_at for row in active if row.last_new_at is not None), default=None),
        next_poll_at=min((row.next_poll_at for row in active), default=None),
    )


def _troubles(now: float) -> list[Trouble]:
    found = []
    for host in hosts.troubled(now):
        until = hosts.paused_until(host, now)
        if until is not None:
            found.append(Trouble(host.host, "pause", None, until, host.pause_reason or ""))
        if host.outage_since is not None:
            found.append(Trouble(host.host, "outage", host.outage_since, None, host.outage_reason or ""))
    return found
