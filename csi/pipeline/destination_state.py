"""The gate before the receiver: open, closed for a pause, or ajar for one probe. Its state is the endpoint's row."""

from typing import Literal

from csi.emitter import circuit_breaker
from csi.logs import log, redact
from csi.store import batches, destinations
from csi.store.destinations import Endpoint

State = Literal["open", "held", "paused", "away", "probe"]

LONGEST_PAUSE = 3600.0
LONGEST_PROBE = 60.0
RAMP_END = 64
"""Requests at once from which recovery counts as complete."""


def look(endpoint: Endpoint, now: float) -> State:
    """May new batches be sent? A time further off than any rule allows is from a clock that jumped: it is over."""
    if endpoint.held is not None:
        return "held"
    if now < (endpoint.paused_until or 0) <= now + LONGEST_PAUSE:
        return "paused"
    if endpoint.breaker == "closed":
        return "open"
    if now < (endpoint.next_probe_at or 0) <= now + LONGEST_PROBE or batches.is_unsettled(endpoint.canary):
        return "away"
    return "probe"


def limit(endpoint: Endpoint, configured: int) -> int:
    """Requests at once: as configured, or fewer while recovery ramps up."""
    return min(configured, endpoint.ramp) if endpoint.ramp else configured


def note_success(endpoint: Endpoint, now: float, sent_at: float, *, took: bool = True) -> None:
    """The receiver answered as it should: whatever was wrong is over. `took`: it accepted something, too.

    Except a pause that it asked for after this request had been sent: that it still wants.
    """
    if endpoint.breaker == "open":
        log.info(
            "receiver works again",
            destination=endpoint.destination,
            away_seconds=round(now - (endpoint.opened_at or now)),
        )
    destinations.change(
        endpoint.destination,
        breaker="closed",
        reason=None,
        opened_at=None,
        canary=None,
        next_probe_at=None,
        probes=0,
        paused_until=endpoint.paused_until if sent_at < (endpoint.paused_at or 0) else None,
        last_success_at=now if took else endpoint.last_success_at,
        ramp=_next_ramp(endpoint),
    )


def _next_ramp(endpoint: Endpoint) -> int:
    """One request at once after an absence, then two, four and so on: a receiver that just came back is not flooded."""
    if endpoint.breaker == "open":
        return 1
    return endpoint.ramp * 2 if 0 < endpoint.ramp < RAMP_END // 2 else 0


def note_failure(endpoint: Endpoint, now: float, reason: str, *, opens: bool, canary: int | None = None) -> None:
    """Remember a failure. `opens`: the receiver counts as away; `canary` is the one batch that goes on trying."""
    reason = redact(reason)  # it may hold the receiver's own words, and those what we sent
    changes: dict[str, object] = {"last_failure_at": now, "last_error": reason}
    if opens and endpoint.breaker == "closed":
        changes |= {"breaker": "open", "reason": reason, "opened_at": now, "probes": 0, "canary": canary}
        changes["next_probe_at"] = now + circuit_breaker.probe_delay(0)
        log.error("receiver is away; events stay pending", destination=endpoint.destination, error=reason)
    elif endpoint.breaker == "open":
        changes["reason"] = reason  # one that was down and now refuses is away for another reason
    destinations.change(endpoint.destination, **changes)


def note_probe(endpoint: Endpoint, now: float) -> None:
    """A probe goes out: the next one has to wait for its turn."""
    destinations.change(
        endpoint.destination,
        probes=endpoint.probes + 1,
        next_probe_at=now + circuit_breaker.probe_delay(endpoint.probes),
    )


def note_pause(endpoint: Endpoint, now: float, until: float, reason: str) -> None:
    before = endpoint.paused_until or 0
    # One that ends later than any rule allows is from a clock that jumped.
    later = max(until, before) if before <= now + LONGEST_PAUSE else until
    destinations.change(endpoint.destination, paused_until=later, paused_at=now, last_error=redact(reason))
