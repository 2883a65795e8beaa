"""Is it alive, is it ready, and if not, why: rules over what the database knows. Pure.

These pages are open to everybody who can reach them: counts and source names, never a title, an id or a URL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.pipeline.disk_guard import Place
from csi.store.heartbeats import Beat
from csi.store.watches import WatchTimes

FRESH_SECONDS = 30.0
DEAD_SECONDS = 60.0
ON_TIME_SECONDS = 120.0
OVERDUE_SECONDS = 180.0
"""The least that a watch with a short interval is given, to be on time and before it is long overdue."""
STUMBLES = 3
"""Failures in a row before a watch that was resting counts as failing."""


@dataclass(frozen=True)
class SourcePlan:
    """What the configuration wants of one source."""

    name: str
    watches: int
    idle_interval: float
    """The longest pause that is planned; 0: a watch's own interval."""


@dataclass(frozen=True)
class Receiver:
    """How it stands with one more destination, beside the one of PRD §11.2."""

    name: str
    breaker: str = "closed"
    last_success_at: float | None = None
    last_failure_at: float | None = None
    last_error: str | None = None

    @property
    def is_reachable(self) -> bool:
        """Its breaker is closed: one bad answer is not an absence."""
        return self.breaker == "closed"


@dataclass(frozen=True)
class Delivery:
    """How it stands with the receiver."""

    is_on: bool
    form: str
    breaker: str = "closed"
    paused_until: float | None = None
    last_success_at: float | None = None
    last_failure_at: float | None = None
    last_error: str | None = None
    held: tuple[str, ...] = ()
    """Destinations whose delivery was paused by command."""
    others: tuple[Receiver, ...] = ()

    @property
    def is_reachable(self) -> bool | None:
        """Its breaker is closed: one bad answer is not an absence. None: delivery is switched off, nobody asks it."""
        return self.breaker == "closed" if self.is_on else None

    @property
    def failed_last(self) -> bool:
        return self.last_failure_at is not None and self.last_failure_at > (self.last_success_at or 0)


@dataclass(frozen=True)
class Facts:
    """What is known at one moment."""

    now: float
    polling: bool
    beat: Beat | None
    sources: tuple[SourcePlan, ...]
    watches: tuple[WatchTimes, ...]
    delivery: Delivery
    place: Place = field(default_factory=Place)
    clock_hold: str | None = None
    """Why the worker does not poll; None: it trusts the clock."""

    def watches_of(self, source: str) -> list[WatchTimes]:
        return [watch for watch in self.watches if watch.source == source]

    @property
    def beat_age(self) -> float | None:
        return None if self.beat is None else self.now - self.beat.beat_at


@dataclass(frozen=True)
class Report:
    """A page, and whether it is good news."""

    is_good: bool
    body: dict[str, Any]


def is_beating(facts: Facts, seconds: float) -> bool:
    # A clock that was set back leaves a beat in the future, which proves as little as an old one.
    return facts.beat_age is not None and abs(facts.beat_age) < seconds


def is_on_time(watch: WatchTimes, idle_interval: float, now: float) -> bool:
    """Read with success within three intervals (two minutes at least), or resting as planned."""
    if watch.last_success_at is None:
        return False
    limit = max(3 * watch.interval, ON_TIME_SECONDS)
    if watch.errors < STUMBLES:
        limit = max(limit, idle_interval + 60.0)
    return abs(now - watch.last_success_at) <= limit


def is_overdue(watch: WatchTimes, started_at: float, now: float) -> bool:
    """Long past its time. A worker that has just started is given that long to catch up."""
    return now - max(watch.next_poll_at, started_at) > max(3 * watch.interval, OVERDUE_SECONDS)


def readiness(facts: Facts) -> Report:
    """PRD §11.2: ready when every source that has something to watch is read, and the receiver is there."""
    alive = is_beating(facts, FRESH_SECONDS)
    adapters = {plan.name: _adapter(plan, facts, alive=alive) for plan in facts.sources}
    reasons = [*_worker_reasons(facts, FRESH_SECONDS), *_source_reasons(facts), *_delivery_reasons(facts)]
    reasons += facts.place.reasons
    body = {
        "status": "not_ready" if reasons else "ready",
        "timestamp": clock.iso(facts.now),
        "adapters": adapters,
        "delivery": _delivery(facts.delivery, facts.now),
        "worker": _worker(facts),
        "database": _database(facts.place),
        "reasons": reasons,
    }
    return Report(not reasons, body)


def liveness(facts: Facts) -> Report:
    """Does what should happen happen? Failing sources are not our death; silence is."""
    late = overdue(facts) if facts.polling and facts.clock_hold is None else {}
    reasons = _worker_reasons(facts, DEAD_SECONDS)
    reasons += [f"{source}: {count} watches are long overdue" for source, count in late.items()]
    body = {
        "status": "stalled" if reasons else "alive",
        "timestamp": clock.iso(facts.now),
        "worker": _worker(facts),
        "overdue": late,
        "reasons": reasons,
    }
    return Report(not reasons, body)


def unknown(status: str, reason: str, now: float) -> Report:
    """Nothing can be said, because the database or the configuration cannot be read."""
    body: dict[str, Any] = {"status": status, "timestamp": clock.iso(now)}
    if status == "not_ready":
        body |= {"adapters": {}, "delivery": {"ua_reachable": False, "last_success": None}}
    return Report(False, body | {"database": {"ok": False}, "reasons": [reason]})


def _adapter(plan: SourcePlan, facts: Facts, *, alive: bool) -> dict[str, Any]:
    watches = facts.watches_of(plan.name)
    on_time = sum(is_on_time(watch, plan.idle_interval, facts.now) for watch in watches)
    return {
        "polling": facts.polling and alive and on_time > 0,
        "last_poll": _latest([watch.last_poll_at for watch in watches]),
        "last_success": _latest([watch.last_success_at for watch in watches]),
        "watches": max(plan.watches, len(watches)),
        "on_time": on_time,
        "failing": sum(watch.errors > 0 for watch in watches),
    }


def _delivery(delivery: Delivery, now: float) -> dict[str, Any]:
    """Further destinations are named where there are any."""
    others = {"destinations": {one.name: _receiver(one) for one in delivery.others}} if delivery.others else {}
    paused = delivery.paused_until if delivery.paused_until and delivery.paused_until > now else None
    return {
        "ua_reachable": delivery.is_reachable,
        "last_success": _iso(delivery.last_success_at),
        "last_failure": _iso(delivery.last_failure_at),
        "note": _delivery_note(delivery, is_paused=paused is not None),
        "enabled": delivery.is_on,
        "breaker": delivery.breaker,
        "paused_until": _iso(paused),
        "canonical_json": delivery.form,
        "held": list(delivery.held),
        **others,
    }


def _delivery_note(delivery: Delivery, *, is_paused: bool) -> str | None:
    """What is worth knowing of a receiver that still counts as there. None: nothing, or `reasons` says it."""
    if not delivery.is_reachable:
        return None
    if is_paused:
        return f"the receiver asked for a pause{_cause(delivery.last_error)}; nothing is sent before it is over"
    if delivery.failed_last:
        return f"the last answer was not good{_cause(delivery.last_error)}; it is tried again"
    return None


def _cause(error: str | None) -> str:
    """The status or the kind of failure, in brackets. After a colon come the receiver's own words: not for here."""
    return f" ({error.partition(':')[0]})" if error else ""


def _database(place: Place) -> dict[str, Any]:
    return {"ok": not place.reasons, "note": place.note, "free_mb": place.free_mb, "log_mb": place.log_mb}


def _receiver(one: Receiver) -> dict[str, Any]:
    return {"reachable": one.is_reachable, "last_success": _iso(one.last_success_at), "breaker": one.breaker}


def _worker(facts: Facts) -> dict[str, Any]:
    age = facts.beat_age
    return {"heartbeat_age_seconds": None if age is None else round(age, 1)}


def _worker_reasons(facts: Facts, seconds: float) -> list[str]:
    if facts.beat_age is None:
        return ["no worker has ever run on this database; start one"]
    if not is_beating(facts, seconds):
        return [f"the worker gave its last sign of life {facts.beat_age:.0f} s ago"]
    return []


def _source_reasons(facts: Facts) -> list[str]:
    if not facts.polling:
        return []
    if facts.clock_hold is not None:
        return [facts.clock_hold]
    return [reason for plan in facts.sources if (reason := _source_reason(plan, facts))]


def _source_reason(plan: SourcePlan, facts: Facts) -> str | None:
    watches = facts.watches_of(plan.name)
    if not (plan.watches or watches):
        return None
    if all(watch.last_success_at is None for watch in watches):
        if failed := sum(watch.errors > 0 for watch in watches):
            return f"{plan.name}: none of its watches could be read, {failed} failed; csi sources list says why"
        return f"{plan.name}: not read yet"
    if any(is_on_time(watch, plan.idle_interval, facts.now) for watch in watches):
        return None
    return f"{plan.name}: none of its {len(watches)} watches was read in time"


def _delivery_reasons(facts: Facts) -> list[str]:
    if not facts.delivery.is_on:
        return []
    held = [f"delivery to {name} is paused by command; csi delivery resume" for name in facts.delivery.held]
    gone = [one for one in facts.delivery.others if not one.is_reachable]
    away = [f"the receiver {one.name} is away{_cause(one.last_error)}" for one in gone]
    if not facts.delivery.is_reachable:
        away.insert(0, f"the receiver is away{_cause(facts.delivery.last_error)}; events stay pending until it answers")
    return [*held, *away]


def overdue(facts: Facts) -> Mapping[str, int]:
    """Watches that are long overdue, by source."""
    started_at = facts.beat.started_at if facts.beat else 0.0
    late = [watch.source for watch in facts.watches if is_overdue(watch, started_at, facts.now)]
    return {source: late.count(source) for source in sorted(set(late))}


def _latest(times: Sequence[float | None]) -> str | None:
    known = [moment for moment in times if moment is not None]
    return clock.iso(max(known)) if known else None


def _iso(moment: float | None) -> str | None:
    return None if moment is None else clock.iso(moment)
