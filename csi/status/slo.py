"""The objectives of PRD §6 over a window of time: the one definition of success, duplicates, uptime and latency."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar, Literal

from csi import clock
from csi.config.setting_types import TIERS
from csi.runtime import Runtime
from csi.store import heartbeats
from csi.store.heartbeats import WORKER, Attendance
from csi.store.queries import slo_rows
from csi.store.queries.slo_rows import EventTimes, SendCounts

HOUR = 3_600.0
DAY = 86_400.0

WAITING = ("pending", "in_flight")
SUCCESS_TARGET = 0.95
REPEAT_TARGET = 0.05
UPTIME_TARGET = 0.99
LATENCY_TARGETS = {"urgent": 30.0, "standard": 1800.0}
"""P95 in seconds from `occurred_at` to acceptance by the receiver (PRD §6.1); neither part of it may take longer."""


@dataclass(frozen=True)
class LatencyPercentiles:
    """In seconds; None: there was nothing to measure."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class Success:
    """What became of the events first seen in the window. Those that still wait are not judged yet."""

    target: ClassVar[float] = SUCCESS_TARGET
    delivered: int = 0
    dead: int = 0
    waiting: int = 0

    @property
    def seen(self) -> int:
        return self.delivered + self.dead + self.waiting

    @property
    def value(self) -> float | None:
        settled = self.delivered + self.dead
        return self.delivered / settled if settled else None

    @property
    def is_met(self) -> bool | None:
        return None if self.value is None else self.value >= SUCCESS_TARGET


@dataclass(frozen=True)
class Duplicates:
    """The share of accepted events that a receiver may have got twice: an upper bound."""

    target: ClassVar[float] = REPEAT_TARGET
    counts: SendCounts

    @property
    def value(self) -> float | None:
        worst = max(self.counts.reported, self.counts.possible)
        return min(worst / self.counts.sent, 1.0) if self.counts.sent else None

    @property
    def is_met(self) -> bool | None:
        return None if self.value is None else self.value < REPEAT_TARGET


@dataclass(frozen=True)
class Uptime:
    """The share of the time in which the worker wrote heartbeats."""

    target: ClassVar[float] = UPTIME_TARGET
    attendance: Attendance
    until: float

    @property
    def value(self) -> float | None:
        since = self.attendance.since
        if since is None or self.until <= since:
            return None
        return 1 - self.attendance.down_seconds / (self.until - since)

    @property
    def is_met(self) -> bool | None:
        return None if self.value is None else self.value >= UPTIME_TARGET


@dataclass(frozen=True)
class TierLatency:
    """How long the events of one tier took: until we saw them, from there to acceptance, and both together.

    Acceptance by destinations that collect events into messages, or have quiet hours, is left out.
    """

    tier: str
    target: float | None
    events: int
    old_items: int
    """Events that are older than the first poll of their watch. Their latency is not counted."""
    late: int
    """Events that are not delivered and already over the target. They count with the time they have waited so far."""
    slow: int
    """Events that took longer than the target from first seen to accepted, with those that are late."""
    to_seen: LatencyPercentiles
    to_accepted: LatencyPercentiles
    total: LatencyPercentiles

    @property
    def worst_p95(self) -> float | None:
        parts = (self.to_seen, self.to_accepted, self.total)
        return max((part.p95 for part in parts if part.p95 is not None), default=None)

    @property
    def is_met(self) -> bool | None:
        return None if self.target is None or self.worst_p95 is None else self.worst_p95 < self.target


@dataclass(frozen=True)
class Objective:
    """One line of a table of objectives. `value` None: nothing to measure."""

    name: str
    kind: Literal["share", "seconds"]
    value: float | None
    target: float
    is_met: bool | None
    detail: str
    at_least: bool = False
    """The target is a lower bound."""


@dataclass(frozen=True)
class WindowReport:
    """All figures of one window, and the notes that limit them."""

    since: float
    until: float
    rows_since: float
    """Events are counted from here: older ones may have been removed."""
    success: Success
    duplicates: Duplicates
    uptime: Uptime
    latencies: tuple[TierLatency, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def is_met(self) -> bool | None:
        """False when an objective was missed; None when nothing could be measured."""
        known = [one.is_met for one in objectives(self) if one.is_met is not None]
        return all(known) if known else None


def report(rt: Runtime, seconds: float) -> WindowReport:
    """The last so many seconds."""
    return reports(rt, [seconds])[0]


def reports(rt: Runtime, windows: Sequence[float]) -> list[WindowReport]:
    """Several windows that end now; the events are read once."""
    now = rt.now()
    kept = rt.settings.retention.events_days * DAY
    collecting = [name for name, destination in rt.destinations.items() if destination.collects]
    events = list(slo_rows.event_times(now - min(max(windows), kept), collecting))
    unread = [name for name, destination in rt.destinations.items() if destination.profile.answers == "status"]
    found = []
    for seconds in windows:
        since, rows_since = now - seconds, max(now - seconds, now - kept)
        ours = [one for one in events if one.first_seen_at >= rows_since]
        uptime = Uptime(heartbeats.attendance(WORKER, since, now), now)
        report = WindowReport(
            since=since,
            until=now,
            rows_since=rows_since,
            success=judge_success(ours),
            duplicates=Duplicates(slo_rows.send_counts(rows_since, unread)),
            uptime=uptime,
            latencies=tuple(judge_tier(tier, ours, now) for tier in TIERS),
            notes=tuple(_notes(rt, since, rows_since, uptime)),
        )
        found.append(report)
    return found


def _notes(rt: Runtime, since: float, rows_since: float, uptime: Uptime) -> Iterable[str]:
    if rows_since > since:
        days = rt.settings.retention.events_days
        yield f"events are kept for {days} days (retention.events_days): all but uptime begins {clock.iso(rows_since)}"
    known = uptime.attendance.since
    if known is None:
        yield "no worker has ever run on this database: uptime is not known"
    elif known > since:
        yield f"heartbeats are known since {clock.iso(known)}: uptime begins there"
    oldest = slo_rows.oldest_event()
    if oldest is not None and oldest > rows_since:
        yield f"the oldest stored event was first seen at {clock.iso(oldest)}"


# ── the figures; pure ───────────────────────────────────────────────────────────────────────────────────


def judge_success(events: Sequence[EventTimes]) -> Success:
    delivered = sum(one.state == "delivered" for one in events)
    dead = sum(one.state in ("dead", "quarantined") for one in events)
    return Success(delivered, dead, len(events) - delivered - dead)


def judge_tier(tier: str, events: Sequence[EventTimes], now: float) -> TierLatency:
    target = LATENCY_TARGETS.get(tier)
    ours = [one for one in events if one.tier == tier]
    fresh = [one for one in ours if not is_old(one)]
    # Only destinations that collect events do not have it yet.
    arrived = [
        one
        for one in ours
        if one.delivered_at is not None and (one.state == "delivered" or (one.is_collected and one.state in WAITING))
    ]
    overdue = [one for one in ours if one.state in WAITING and now - one.first_seen_at > (target or now)]
    late = [one for one in overdue if not one.is_collected]
    ends = [(one, one.delivered_at or now) for one in [*arrived, *late]]
    return TierLatency(
        tier=tier,
        target=target,
        events=len(ours),
        old_items=len(ours) - len(fresh),
        late=len(late),
        slow=sum(end - one.first_seen_at > (target or now) for one, end in ends),
        to_seen=percentiles([one.first_seen_at - one.occurred_at for one in fresh]),
        to_accepted=percentiles([end - one.first_seen_at for one, end in ends]),
        total=percentiles([end - one.occurred_at for one, end in ends if not is_old(one)]),
    )


def is_old(one: EventTimes) -> bool:
    """It happened before the first poll of its watch (`first_poll: all`, or a new watch)."""
    return one.first_read_at is None or one.occurred_at < one.first_read_at


def percentiles(values: Sequence[float]) -> LatencyPercentiles:
    """Nearest rank: each percentile is a value that was measured. A clock that disagrees gives 0, not less."""
    ordered = sorted(max(value, 0.0) for value in values)
    if not ordered:
        return LatencyPercentiles()
    p50, p95, p99 = (ordered[ceil(len(ordered) * share) - 1] for share in (0.50, 0.95, 0.99))
    return LatencyPercentiles(p50, p95, p99)


def objectives(found: WindowReport) -> Iterator[Objective]:
    success, counts, attendance = found.success, found.duplicates.counts, found.uptime.attendance
    detail = f"{success.delivered:,} delivered, {success.dead:,} dead; {success.waiting:,} waiting"
    yield Objective("delivery success", "share", success.value, SUCCESS_TARGET, success.is_met, detail, at_least=True)
    detail = f"{counts.sent:,} accepted; {counts.reported:,} reported as duplicates, {counts.possible:,} possible"
    if counts.resent:
        detail += f"; {counts.resent:,} sent again by an operator are not counted"
    yield Objective("duplicates", "share", found.duplicates.value, REPEAT_TARGET, found.duplicates.is_met, detail)
    detail = f"{len(attendance.gaps):,} interruptions, {attendance.down_seconds:,.0f} s down"
    yield Objective("uptime", "share", found.uptime.value, UPTIME_TARGET, found.uptime.is_met, detail, at_least=True)
    for tier in found.latencies:
        if tier.target is not None:
            detail = f"{tier.events:,} events, {tier.late:,} late and still waiting, {tier.old_items:,} left out as old"
            yield Objective(f"{tier.tier} latency, P95", "seconds", tier.worst_p95, tier.target, tier.is_met, detail)
