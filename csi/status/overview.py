"""The whole installation at this moment: one object for `csi status`, the API and the dashboard."""

from collections import Counter
from dataclasses import dataclass

from csi import __version__
from csi.pipeline import clock_check, quota_schedule
from csi.pipeline.quota_schedule import Forecast
from csi.runtime import Runtime
from csi.status.backlog import BacklogGroup, backlog, backlog_age
from csi.status.destinations import DestinationStatus, all_destinations, collecting
from csi.status.host_pace import HostPace, host_paces
from csi.status.slo import DAY, HOUR, WindowReport, reports
from csi.status.verdict import StatusVerdict, verdict
from csi.status.watch_states import WatchCount, is_failing, last_poll_failed, watch_counts
from csi.status.worker import WorkerStatus, worker_status
from csi.store import events, hosts, watch_admin
from csi.store.models import Watch
from csi.store.queries import charts


@dataclass(frozen=True)
class SourceStatus:
    """One source of the configuration."""

    name: str
    is_enabled: bool
    active: int
    paused: int
    failing: int
    """Watches that failed several times in a row, as csi.status.watch_states has it."""
    last_poll_failed: int
    """Watches whose last poll failed, perhaps for a moment only."""
    states: dict[str, int]
    """How many watches are in each state, as csi.status.watch_states has it."""
    last_success_at: float | None
    last_new_at: float | None
    next_poll_at: float | None


@dataclass(frozen=True)
class HostStatus:
    """A host that rate-limited us, or that has an outage."""

    host: str
    kind: str
    since: float | None
    until: float | None
    reason: str


@dataclass(frozen=True)
class Overview:
    """What an operator wants to know first."""

    now: float
    version: str
    instance: str
    worker: WorkerStatus
    clock_hold: str | None
    """Why the worker does not poll; None: it trusts the clock."""
    verdict: StatusVerdict
    sources: tuple[SourceStatus, ...]
    watches: tuple[WatchCount, ...]
    hosts: tuple[HostStatus, ...]
    hour: WindowReport
    day: WindowReport
    destinations: tuple[DestinationStatus, ...]
    delivery_is_on: bool
    backlog: tuple[BacklogGroup, ...]
    oldest_pending: float | None
    dead_letters: dict[str, int]
    """Open ones by cause."""
    quota: Forecast | None
    host_paces: tuple[HostPace, ...]

    @property
    def open_dead_letters(self) -> int:
        return sum(self.dead_letters.values())

    @property
    def backlog_age(self) -> float:
        return backlog_age(self.oldest_pending, self.now)

    @property
    def watch_states(self) -> Counter[str]:
        """How many watches of all sources are in each state."""
        return sum((Counter({one.state: one.watches}) for one in self.watches), Counter[str]())


def overview(rt: Runtime) -> Overview:
    now, worker = rt.now(), worker_status(rt)
    hour, day = reports(rt, [HOUR, DAY])
    counts = watch_counts(rt)
    found = []
    for host in hosts.rate_limited_or_down(now):
        until = hosts.paused_until(host, now)
        if until is not None:
            found.append(HostStatus(host.host, "pause", None, until, host.pause_reason or ""))
        if host.outage_since is not None:
            found.append(HostStatus(host.host, "outage", host.outage_since, None, host.outage_reason or ""))
    return Overview(
        now=now,
        version=__version__,
        instance=rt.settings.csi.instance_id,
        worker=worker,
        clock_hold=clock_check.hold_text(worker.heartbeat, now),
        verdict=verdict(rt),
        sources=tuple(_sources(rt, counts, now)),
        watches=tuple(counts),
        hosts=tuple(found),
        hour=hour,
        day=day,
        destinations=tuple(all_destinations(rt)),
        delivery_is_on=rt.settings.features.delivery,
        backlog=tuple(backlog(rt)),
        oldest_pending=events.oldest_pending(collecting(rt)),
        dead_letters=charts.open_dead_letters(),
        quota=quota_schedule.forecast(rt, now),
        host_paces=tuple(host_paces(rt)),
    )


def _sources(rt: Runtime, counts: list[WatchCount], now: float) -> list[SourceStatus]:
    rows, enabled = watch_admin.every(), rt.enabled_sources()
    names = dict.fromkeys([*rt.settings.sources, *(row.source for row in rows)])
    states = {name: {one.state: one.watches for one in counts if one.source == name} for name in names}
    return [
        _source(name, name in enabled, [row for row in rows if row.source == name], states[name], now) for name in names
    ]


def _source(name: str, is_enabled: bool, rows: list[Watch], states: dict[str, int], now: float) -> SourceStatus:
    active = [row for row in rows if row.state == "active"]
    return SourceStatus(
        name=name,
        is_enabled=is_enabled,
        active=len(active),
        paused=sum(row.state == "paused" for row in rows),
        failing=sum(is_failing(row, now) for row in active),
        last_poll_failed=sum(last_poll_failed(row) for row in active),
        states=states,
        last_success_at=max((row.last_success_at for row in active if row.last_success_at is not None), default=None),
        last_new_at=max((row.last_new_at for row in active if row.last_new_at is not None), default=None),
        next_poll_at=min((row.next_poll_at for row in active), default=None),
    )
