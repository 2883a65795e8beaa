"""What is known of the installation at one moment: gathered once, judged by `csi.status.verdict`."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from csi.dlq import dead_letters
from csi.pipeline import backpressure, clock_check, quota_schedule
from csi.runtime import Runtime
from csi.scheduling.backpressure import Pressure
from csi.scheduling.watch_health import QUIET_GAPS
from csi.status.backlog import backlog_age
from csi.status.destinations import DestinationState, collecting, destination_state_of
from csi.status.notification_problems import NotificationFacts, notification_facts
from csi.status.push import PushFacts, push_facts
from csi.status.storage import StorageStatus, storage_status
from csi.status.worker import WorkerStatus, worker_status
from csi.store import (
    alerts,
    api_refusals,
    api_units,
    backlog_samples,
    backups,
    db,
    events,
    held_removals,
    hosts,
    incidents,
    reload_results,
    watches,
)
from csi.store.api_refusals import ApiRefusal
from csi.store.backlog_samples import BacklogSample
from csi.store.backups import BackupRecord
from csi.store.held_removals import HeldRemoval
from csi.store.incidents import Incident
from csi.store.models import Host
from csi.store.queries import charts, job_figures, watch_survey
from csi.store.queries.charts import RecentDeadLetters
from csi.store.queries.job_figures import DeadJobs
from csi.store.queries.watch_survey import OrdinaryWatches, WatchSurvey
from csi.store.reload_results import Reload
from csi.store.watches import WatchTimes


@dataclass(frozen=True)
class SourcePlan:
    """What the configuration asks of one enabled source."""

    name: str
    watches: int
    """Configured watches while no worker is alive that has stored them; else 0."""
    idle_interval: float
    """The longest planned time between two polls; 0: the watch's own interval."""


LATELY_SECONDS = 3600.0
SAMPLES_SECONDS = 900.0
SAMPLE_VALID_SECONDS = 120.0

BACKUP_TIMER = Path("/etc/systemd/system/timers.target.wants/csi-backup.timer")
"""There while systemd starts the timer of ops/systemd."""


@dataclass(frozen=True)
class SystemFacts:
    """Plain values: rules over them need no database."""

    now: float
    worker: WorkerStatus
    polling: bool = True
    clock_hold: str | None = None
    """Why the worker does not poll; None: it trusts the clock."""
    clock_held_since: float | None = None
    delivery_is_on: bool = True
    delivery_off_since: float | None = None
    """When a worker began to run with delivery switched off; None: it is on, or that is not recorded."""
    sources: tuple[SourcePlan, ...] = ()
    unusable_sources: tuple[tuple[str, str], ...] = ()
    """Enabled sources whose plugin cannot be used, and why."""
    watches: tuple[WatchTimes, ...] = ()
    """Those that a rule may find something at. The `ordinary` ones are not among them."""
    ordinary: tuple[OrdinaryWatches, ...] = ()
    """By source, how many other active watches there are: read in time, without an error or a long silence."""
    paused: tuple[WatchTimes, ...] = ()
    destinations: tuple[DestinationState, ...] = ()
    storage: StorageStatus = field(default_factory=StorageStatus)
    outages: tuple[Host, ...] = ()
    oldest_pending: float | None = None
    dead_letters: int = 0
    redrivable: Mapping[str, int] = field(default_factory=dict)
    """By destination: the open ones whose cause is the receiver."""
    auto_redrive: bool = True
    recent_dead_letters: RecentDeadLetters = field(default_factory=RecentDeadLetters)
    dead_jobs: DeadJobs = field(default_factory=DeadJobs)
    quota_limit: int | None = None
    """None: no source that is switched on uses API units."""
    quota_used: int = 0
    quota_left: int | None = None
    quota_buffer: int = 0
    quota_resets_at: float | None = None
    api_refusals: tuple[ApiRefusal, ...] = ()
    reload_error: str | None = None
    disk_used: float = 0.0
    incidents: tuple[Incident, ...] = ()
    alerts_since: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """When alerts that fire began, by id and subject of their problem."""
    held_removal: HeldRemoval = field(default_factory=HeldRemoval)
    notifications: NotificationFacts = field(default_factory=NotificationFacts)
    backups: BackupRecord = field(default_factory=BackupRecord)
    backup_max_age: float | None = None
    """None: csi makes no backups of this database."""
    backup_timer: bool = False
    """The timer that makes a backup every night is enabled."""
    push: PushFacts = field(default_factory=PushFacts)
    pressure: Pressure = field(default_factory=lambda: Pressure(0, 0, 1.0))
    """How much less often sources are read because much waits."""
    backlog_samples: tuple[BacklogSample, ...] = ()
    """Of the last quarter of an hour, oldest first."""

    @property
    def survey(self) -> WatchSurvey:
        return WatchSurvey((*self.watches, *self.paused), self.ordinary)

    def watches_of(self, source: str) -> list[WatchTimes]:
        """Without the ordinary ones."""
        return [watch for watch in self.watches if watch.source == source]

    def ordinary_of(self, source: str) -> OrdinaryWatches | None:
        """None: the source has none."""
        return next((one for one in self.ordinary if one.source == source), None)

    def number_of_watches(self, source: str | None = None) -> int:
        """All active ones, of this source or of all."""
        others = len(self.watches) if source is None else len(self.watches_of(source))
        return others + sum(one.number for one in self.ordinary if source in (None, one.source))

    @property
    def backlog_age(self) -> float:
        return backlog_age(self.oldest_pending, self.now)

    def success_age(self, source: str) -> float | None:
        """Time since a watch of this source was last read; None: none ever was."""
        found = [*self.watches_of(source), self.ordinary_of(source)]
        times = [one.last_success_at for one in found if one is not None and one.last_success_at is not None]
        return max(self.now - max(times), 0.0) if times else None

    def waiting(self, destination: str | None = None) -> int | None:
        """Events that wait for this destination, or for all, when the worker counted last. None: no count is recent."""
        newest = {
            one.destination: one for one in self.backlog_samples if self.now - one.taken_at < SAMPLE_VALID_SECONDS
        }
        found = [one.waiting for one in newest.values() if destination in (None, one.destination)]
        return sum(found) if found else None

    def affected(self, destination: str) -> int | None:
        """Events that this destination does not have because its receiver fails: they wait, or are dead letters."""
        dead = self.redrivable.get(destination, 0)
        return (self.waiting(destination) or 0) + dead or None


def gather(rt: Runtime) -> SystemFacts:
    """Cheap enough for every health check: no query grows with the number of events."""
    now, worker, reload = rt.now(), worker_status(rt), reload_results.last()
    features = rt.settings.features
    if reload is not None and worker.is_alive:  # this process may have read its configuration earlier
        features = features.model_copy(update=reload.features)
    limit, used = quota_schedule.unit_limit(rt), api_units.used(now)
    surveyed = watch_survey.survey(now, QUIET_GAPS, paused=True)
    outages = (host for host in hosts.rate_limited_or_down(now) if host.outage_since is not None)
    # Without hosts that no watch is read from any more: no read can end their outage.
    outages = (host for host in outages if watches.is_host_in_use(host.host))
    return SystemFacts(
        now=now,
        worker=worker,
        polling=features.polling,
        clock_hold=clock_check.hold_text(worker.heartbeat, now),
        clock_held_since=clock_check.held_since(worker.heartbeat),
        delivery_is_on=features.delivery,
        delivery_off_since=None if features.delivery else reload_results.off_since("delivery"),
        sources=tuple(_plans(rt, worker, reload)),
        unusable_sources=tuple(rt.unusable_sources()),
        watches=tuple(one for one in surveyed.others if one.state == "active"),
        ordinary=surveyed.ordinary,
        paused=tuple(one for one in surveyed.others if one.state != "active"),
        destinations=tuple(destination_state_of(rt, name) for name in rt.destinations),
        storage=storage_status(rt, worker),
        outages=tuple(outages),
        oldest_pending=events.oldest_pending(collecting(rt)),
        dead_letters=dead_letters.open_count(),
        redrivable=dead_letters.redrivable_counts(),
        auto_redrive=rt.settings.dlq.auto_redrive,
        recent_dead_letters=charts.recent_dead_letters(now - LATELY_SECONDS, dead_letters.REDRIVABLE),
        dead_jobs=job_figures.dead_jobs(),
        quota_limit=limit,
        quota_used=used,
        quota_left=None if limit is None else max(limit - used, 0),
        quota_buffer=quota_schedule.buffer(rt),
        quota_resets_at=None if limit is None else api_units.day_ends(now),
        api_refusals=tuple(api_refusals.current()),
        reload_error=reload.error if reload else None,
        disk_used=_disk_used(rt),
        incidents=tuple(incidents.unacknowledged()),
        alerts_since={(alert.name, alert.subject): alert.since for alert in alerts.firing()},
        held_removal=held_removals.current(),
        notifications=notification_facts(rt),
        backups=backups.record(),
        backup_max_age=None if db.is_postgres() else rt.settings.csi.backup_max_age_seconds,
        backup_timer=BACKUP_TIMER.exists(),
        push=push_facts(rt),
        pressure=backpressure.measure(rt),
        backlog_samples=tuple(backlog_samples.since(now - SAMPLES_SECONDS)),
    )


def _plans(rt: Runtime, worker: WorkerStatus, reload: Reload | None) -> Iterator[SourcePlan]:
    """The enabled sources. A worker that is alive has loaded its own configuration, perhaps later than this process:
    its sources and its watches count."""
    names = rt.enabled_sources()
    if worker.is_alive and reload is not None and reload.sources is not None:
        names = [name for name in reload.sources if name in rt.settings.sources]
    for name in names:
        source = rt.settings.sources[name]
        adaptive = source.adaptive
        idle = adaptive.idle_interval_seconds if adaptive and adaptive.enabled else 0.0
        yield SourcePlan(name, watches=0 if worker.is_alive else len(source.watches), idle_interval=idle)


def _disk_used(rt: Runtime) -> float:
    """The used share of the state directory's disk; 0 where the database is a server, or the disk cannot be read."""
    if db.is_postgres():
        return 0.0
    try:
        usage = shutil.disk_usage(rt.settings.csi.state_dir)
    except OSError:
        return 0.0
    return usage.used / max(usage.used + usage.free, 1)
