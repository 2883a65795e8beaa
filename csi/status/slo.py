"""What was reached in a window of time, held against what PRD §6 promises."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

from csi import clock
from csi.config.settings import TIERS
from csi.runtime import Runtime
from csi.store import heartbeats
from csi.store.heartbeats import Attendance
from csi.store.queries import slo, timeline
from csi.store.queries.slo import Passage, Repeats

DAY = 86_400.0
WORKER = "worker"

SUCCESS_TARGET = 0.95
REPEAT_TARGET = 0.05
UPTIME_TARGET = 0.99
LATENCY_TARGETS = {"urgent": 30.0, "standard": 1800.0}
"""P95 in seconds, from the moment it happened to the receipt (PRD §6.1); neither half of the way may take longer."""

_GONE = ("dead", "quarantined")


@dataclass(frozen=True)
class Spread:
    """Percentiles in seconds; None: there was nothing to measure."""

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
    """How many of the events that were sent the receiver may have got twice, at worst."""

    target: ClassVar[float] = REPEAT_TARGET
    repeats: Repeats

    @property
    def value(self) -> float | None:
        worst = max(self.repeats.reported, self.repeats.possible)
        return min(worst / self.repeats.sent, 1.0) if self.repeats.sent else None

    @property
    def is_met(self) -> bool | None:
        return None if self.value is None else self.value < REPEAT_TARGET


@dataclass(frozen=True)
class Uptime:
    """The share of the time in which the worker gave signs of life."""

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
    """How long the events of one tier took: the source's half and ours, and both together."""

    tier: str
    target: float | None
    events: int
    old_items: int
    """Older than the first read of their watch: how long they took says nothing, and they are left out."""
    late: int
    """Not delivered, and already over the target: counted with the time that they have waited so far."""
    to_seen: Spread
    to_accepted: Spread
    total: Spread

    @property
    def is_met(self) -> bool | None:
        slowest = [spread.p95 for spread in (self.to_seen, self.to_accepted, self.total) if spread.p95 is not None]
        return None if self.target is None or not slowest else max(slowest) < self.target


@dataclass(frozen=True)
class Report:
    """All figures of one window, and how far they can be believed."""

    since: float
    until: float
    rows_since: float
    """Events are counted from here: what is older may be removed."""
    success: Success
    duplicates: Duplicates
    uptime: Uptime
    latencies: tuple[TierLatency, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def is_met(self) -> bool | None:
        """False when anything was missed; None when nothing could be judged."""
        verdicts = [self.success.is_met, self.duplicates.is_met, self.uptime.is_met]
        known = [one for one in [*verdicts, *(tier.is_met for tier in self.latencies)] if one is not None]
        return all(known) if known else None


def report(rt: Runtime, seconds: float) -> Report:
    """The last so many seconds."""
    now = rt.now()
    since = now - seconds
    rows_since = max(since, now - rt.settings.retention.events_days * DAY)
    passed = list(slo.passages(rows_since))
    uptime = Uptime(heartbeats.attendance(WORKER, since, now), now)
    return Report(
        since=since,
        until=now,
        rows_since=rows_since,
        success=judge_success(passed),
        duplicates=Duplicates(slo.repeats(timeline.all_destinations(), rows_since)),
        uptime=uptime,
        latencies=tuple(judge_tier(tier, passed, now) for tier in TIERS),
        notes=tuple(_notes(rt, since, rows_since, uptime)),
    )


def _notes(rt: Runtime, since: float, rows_since: float, uptime: Uptime) -> Iterable[str]:
    if rows_since > since:
        days = rt.settings.retention.events_days
        yield f"events are kept for {days} days (retention.events_days): all but uptime begins {clock.iso(rows_since)}"
    known = uptime.attendance.since
    if known is None:
        yield "no worker ever ran on this database, so nothing is known of its uptime"
    elif known > since:
        yield f"signs of life are known since {clock.iso(known)}: uptime begins there"
    oldest = slo.oldest_event()
    if oldest is not None and oldest > rows_since:
        yield f"the oldest event that is stored was seen at {clock.iso(oldest)}"


# ── the figures; pure ───────────────────────────────────────────────────────────────────────────────────


def judge_success(passed: Sequence[Passage]) -> Success:
    delivered = sum(one.state == "delivered" for one in passed)
    dead = sum(one.state in _GONE for one in passed)
    return Success(delivered, dead, len(passed) - delivered - dead)


def judge_tier(tier: str, passed: Sequence[Passage], now: float) -> TierLatency:
    target = LATENCY_TARGETS.get(tier)
    ours = [one for one in passed if one.tier == tier]
    fresh = [one for one in ours if not is_old(one)]
    arrived = [one for one in ours if one.delivered_at is not None and one.state == "delivered"]
    late = [one for one in ours if one.state in ("pending", "in_flight") and now - one.first_seen_at > (target or now)]
    ends = [(one, one.delivered_at or now) for one in [*arrived, *late]]
    return TierLatency(
        tier=tier,
        target=target,
        events=len(ours),
        old_items=len(ours) - len(fresh),
        late=len(late),
        to_seen=spread([one.first_seen_at - _occurred(one) for one in fresh]),
        to_accepted=spread([end - one.first_seen_at for one, end in ends]),
        total=spread([end - _occurred(one) for one, end in ends if not is_old(one)]),
    )


def is_old(one: Passage) -> bool:
    """It happened before its watch was ever read (`first_poll: all`, or a new watch): nobody could have been quick."""
    return one.first_read_at is None or _occurred(one) < one.first_read_at


def spread(values: Sequence[float]) -> Spread:
    """Nearest rank: each percentile is a value that was measured. A clock that disagrees gives 0, not less."""
    ordered = sorted(max(value, 0.0) for value in values)
    if not ordered:
        return Spread()
    p50, p95, p99 = (ordered[ceil(len(ordered) * share) - 1] for share in (0.50, 0.95, 0.99))
    return Spread(p50, p95, p99)


def _occurred(one: Passage) -> float:
    return clock.parse(one.occurred_at)
