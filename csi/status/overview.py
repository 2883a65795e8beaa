"""The whole installation at this moment: one object for `csi status`, the API and the dashboard."""

from collections import Counter
from dataclasses import dataclass

from csi import __version__
from csi.pipeline import clock_check, quota_schedule
from csi.pipeline.quota_schedule import Forecast
from csi.runtime import Runtime
from csi.status.backlog import BacklogGroup, backlog, backlog_age
from csi.status.destinations import DestinationStatus, all_destinations, collecting
from csi.status.facts import gather
from csi.status.host_pace import HostPace, host_paces
from csi.status.slo import DAY, HOUR, WindowReport, reports
from csi.status.verdict import StatusVerdict, judge
from csi.status.watch_states import WatchCount, is_failing, last_poll_failed, watch_counts
from csi.status.worker import WorkerStatus, worker_status
from csi.store import events, hosts
from csi.store.queries import charts
from csi.store.queries.watch_survey import OrdinaryWatches, WatchSurvey
from csi.store.watches import WatchTimes


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
    facts = gather(rt)
    counts = watch_counts(rt, facts.survey)
    enabled, names = rt.enabled_sources(), dict.fromkeys([*rt.settings.sources, *sorted(facts.survey.sources())])
    states = {name: {one.state: one.watches for one in counts if one.source == name} for name in names}
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
        verdict=judge(facts),
        sources=tuple(
            _source(name, name in enabled, facts.survey.of_source(name), states[name], now) for name in names
        ),
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


def _source(name: str, is_enabled: bool, found: WatchSurvey, states: dict[str, int], now: float) -> SourceStatus:
    active = [row for row in found.others if row.state == "active"]
    polled: list[WatchTimes | OrdinaryWatches] = [*active, *found.ordinary]
    return SourceStatus(
        name=name,
        is_enabled=is_enabled,
        active=len(active) + sum(one.number for one in found.ordinary),
        paused=len(found.others) - len(active),
        failing=sum(is_failing(row, now) for row in active),
        last_poll_failed=sum(last_poll_failed(row) for row in active),
        states=states,
        last_success_at=max((one.last_success_at for one in polled if one.last_success_at is not None), default=None),
        last_new_at=max((one.last_new_at for one in polled if one.last_new_at is not None), default=None),
        next_poll_at=min((one.next_poll_at for one in polled), default=None),
    )
