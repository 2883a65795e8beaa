"""The state of a destination: pure transitions from row to row, and the one function that writes them.

accepting ──Retry-After──▶ throttled ──time──▶ accepting
    │ ▲
    │ └──success── half_open ◀──next probe is due── circuit_open
    └──fault, exhausted batch, 3 failing batches──────▲
paused (by the operator) hides all of them until `csi delivery resume`
"""

from dataclasses import fields, replace
from typing import Literal

from csi import clock
from csi.config.destination_profiles import Answers
from csi.emitter.failure_cause import REFUSES_ALL
from csi.emitter.verdict import MessageSent
from csi.errors import NetError
from csi.logs import log, redact
from csi.net import HttpResponse
from csi.store import batches, destinations
from csi.store.destinations import DestinationRow

State = Literal["accepting", "paused", "throttled", "circuit_open", "half_open"]

LONGEST_THROTTLE = 3600.0
PROBE_FIRST, PROBE_MAX = 5.0, 20.0
"""Probes come at most this far apart, so that redrive begins within 30 s of recovery."""
FAILING_BATCHES = 3
REFUSED_IN_A_ROW = 5
CONFIRMING = (200, 201, 202, 203, 204, 205)
"""Statuses of a batch that was accepted as a whole. A 207 has counts by definition."""
RAMP_END = 64
"""Concurrent requests from which recovery counts as complete."""


def current(row: DestinationRow, now: float) -> State:
    """The state now. Reads whether the canary is being sent."""
    return judge(row, now, canary_is_sending=row.circuit == "open" and batches.is_sending(row.canary))


def judge(row: DestinationRow, now: float, *, canary_is_sending: bool = False) -> State:
    """The state that follows from the row at this time, in the order pause, throttle, circuit.

    While the canary is being sent, its answer is awaited; while it waits for its next attempt, probes are sent. A time
    that is further off than any rule sets was written before the clock jumped, and counts as past.
    """
    if row.paused_reason is not None:
        return "paused"
    if is_throttled(row, now):
        return "throttled"
    if row.circuit == "closed":
        return "accepting"
    if canary_is_sending or now < (row.next_probe_at or 0) <= now + PROBE_MAX:
        return "circuit_open"
    return "half_open"


def is_throttled(row: DestinationRow, now: float) -> bool:
    return now < (row.throttled_until or 0) <= now + LONGEST_THROTTLE


def concurrency(row: DestinationRow, configured: int) -> int:
    """Concurrent requests: as configured, or fewer while recovery ramps up."""
    return min(configured, row.ramp) if row.ramp else configured


def succeeded(row: DestinationRow, now: float, *, sent_at: float, accepted: bool = True) -> DestinationRow:
    """The receiver answered as it should, so the circuit closes. `accepted`: it also accepted an event.

    A throttle that began after this request was sent stays: the answer is older than it. After an open circuit the
    concurrency starts at 1 and doubles with each success, so that a receiver that recovered is not flooded.
    """
    if row.circuit == "open":
        ramp = 1
    else:
        ramp = row.ramp * 2 if 0 < row.ramp < RAMP_END // 2 else 0
    return replace(
        row,
        circuit="closed",
        reason=None,
        opened_at=None,
        canary=None,
        next_probe_at=None,
        probes=0,
        throttled_until=row.throttled_until if sent_at < (row.throttled_at or 0) else None,
        last_success_at=now if accepted else row.last_success_at,
        ramp=ramp,
        failing_since=None,
        answered_at=now,
    )


def tested(row: DestinationRow, now: float, *, events_fail: bool) -> DestinationRow:
    """A closed circuit, and the receiver answered an empty batch. `last_success_at` stays: no event was accepted.

    `events_fail`: an event failed since the last success, so the receiver still counts as failing.
    """
    return replace(row, answered_at=now, failing_since=row.failing_since if events_fail else None)


def seen(
    row: DestinationRow, answer: HttpResponse | NetError | MessageSent, answers: Answers = "contract"
) -> DestinationRow:
    """What an answer shows of the receiver beside its verdict: its certificate, and whether it confirms counts."""
    expires_at = answer.certificate_expires_at
    if answers == "contract" and isinstance(answer, HttpResponse) and answer.status in CONFIRMING:
        row = replace(row, confirms_counts="accepted" in (answer.json_object() or {}))
    # A failure says nothing about the certificate unless the certificate is its cause; a plain address has none.
    is_known = isinstance(answer, HttpResponse) or expires_at is not None
    return replace(row, certificate_expires_at=expires_at) if is_known else row


def failed(row: DestinationRow, now: float, reason: str) -> DestinationRow:
    """A failure that does not open the circuit. An open circuit takes over the newest reason."""
    reason = redact(reason)  # it may quote the receiver, and the receiver may quote what we sent
    return replace(
        row,
        last_failure_at=now,
        last_error=reason,
        reason=reason if row.circuit == "open" else row.reason,
        failing_since=row.failing_since or now,
    )


def tripped(row: DestinationRow, now: float, reason: str, *, canary: int | None = None) -> DestinationRow:
    """A failure that opens the circuit. `canary` is the one batch that keeps its retries meanwhile."""
    row = failed(row, now, reason)
    if row.circuit == "open":
        return row
    return replace(
        row,
        circuit="open",
        reason=row.last_error,
        opened_at=now,
        probes=0,
        canary=canary,
        next_probe_at=now + probe_delay(0),
    )


def refuses_all(row: DestinationRow, refused_alone: int) -> bool:
    """So many single events were refused and none accepted that the receiver is the cause, not the events."""
    return refused_alone >= REFUSED_IN_A_ROW or (row.reason or "").startswith(REFUSES_ALL)


def probed(row: DestinationRow, now: float) -> DestinationRow:
    """A probe is sent: the next one waits, longer each time."""
    return replace(row, probes=row.probes + 1, next_probe_at=now + probe_delay(row.probes))


def probe_delay(probes_sent: int) -> float:
    return min(PROBE_FIRST * 2.0 ** min(probes_sent, 10), PROBE_MAX)


def throttled(row: DestinationRow, now: float, until: float, reason: str) -> DestinationRow:
    """The receiver sent Retry-After. Of several times the latest counts, unless a clock that jumped set it."""
    before = row.throttled_until or 0
    later = max(until, before) if before <= now + LONGEST_THROTTLE else until
    since = row.failing_since or now
    return replace(row, throttled_until=later, throttled_at=now, last_error=redact(reason), failing_since=since)


def paused(row: DestinationRow, now: float, reason: str) -> DestinationRow:
    """By the operator: nothing is sent, over restarts, until `resumed`."""
    return replace(row, paused_reason=reason, paused_at=now)


def resumed(row: DestinationRow) -> DestinationRow:
    """By the operator: neither a pause nor a Retry-After keeps events back."""
    return replace(row, paused_reason=None, paused_at=None, throttled_until=None)


def verified(row: DestinationRow, form: str) -> DestinationRow:
    """The receiver verified text beyond ASCII in this canonical JSON form: from now on it is tried first."""
    return replace(row, json_form=form)


def write(before: DestinationRow, after: DestinationRow) -> DestinationRow:
    """Write what differs, and log when the circuit opens or closes. Call it in the transaction that read `before`.

    Only columns that differ: on PostgreSQL another worker may have changed the others since they were read.
    """
    values = {field.name: getattr(after, field.name) for field in fields(after)}
    changes = {name: value for name, value in values.items() if value != getattr(before, name)}
    if not changes:
        return after
    destinations.change(after.destination, **changes)
    if (before.circuit, after.circuit) == ("closed", "open"):
        log.error("circuit opened; events stay pending", destination=after.destination, error=after.reason)
    elif (before.circuit, after.circuit) == ("open", "closed"):
        since = clock.iso(before.opened_at) if before.opened_at is not None else None
        log.info("circuit closed; delivery resumes", destination=after.destination, open_since=since)
    return after
