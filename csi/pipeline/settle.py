"""What an answer means for a batch, its events and its destination: all of them change in one transaction."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from csi import clock
from csi.config.delivery_settings import RESEND, STREAM
from csi.config.destination_profiles import Answers
from csi.dlq import dead_letters
from csi.emitter.destination import Destination
from csi.emitter.failure_cause import REFUSES_ALL, without_code
from csi.emitter.verdict import (
    ClockOff,
    Delivered,
    EndpointFault,
    MessageSent,
    PerEvent,
    Refused,
    Throttled,
    Transient,
    Verdict,
    next_attempt,
)
from csi.errors import NetError
from csi.ingester.signature import Form
from csi.logs import log
from csi.net import HttpResponse
from csi.pipeline import bisect, destination_state, redrive
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import attempts, batches, counters, destinations, events, outbox
from csi.store.batches import Batch
from csi.store.counters import Count
from csi.store.db import chunks
from csi.store.destinations import DestinationRow
from csi.store.events import StoredEvent

MAX_CRASHES = 3
PATIENCE_SECONDS = 86_400.0
"""How long Retry-After may delay an event before an attempt is counted after all."""

SHARED_LIMIT: dict[str, tuple[str, ...]] = {
    "urgent": ("urgent",),
    **dict.fromkeys(("standard", "high_volume", RESEND), ("standard", "high_volume", RESEND)),
    STREAM: (STREAM,),
}
"""Lanes that share one limit of concurrent requests."""

LOGGED_IDS = 20
"""Event ids in one log line: a value of more than 2,000 characters would be cut."""


@dataclass(frozen=True)
class ClaimedBatch:
    """A batch under our lease, and the attempt that was written before anything is sent."""

    batch: Batch
    rows: list[StoredEvent]
    destination: Destination
    attempt_id: int
    request_id: str
    form: Form


@dataclass(frozen=True)
class AttemptResult:
    """One exchange with the receiver, and its verdict."""

    attempt_id: int
    form: Form
    sent_at: float
    answer: HttpResponse | NetError | MessageSent
    verdict: Verdict

    @property
    def status(self) -> int | None:
        return self.answer.status if isinstance(self.answer, HttpResponse) else None


@dataclass(frozen=True)
class Settlement:
    """A claimed batch, its answer, the destination's row and the time at which it is settled."""

    claimed: ClaimedBatch
    result: AttemptResult
    destination: DestinationRow
    now: float

    @property
    def batch(self) -> Batch:
        return self.claimed.batch

    @property
    def rows(self) -> list[StoredEvent]:
        return self.claimed.rows


def settle(rt: Runtime, claimed: ClaimedBatch, result: AttemptResult) -> list[Wake]:
    """Call it inside a transaction: the attempt, the batch, its events and the destination change together.

    A lease that was lost meanwhile shows in the row count of `batches.finish` and `batches.retry_at`: then another
    thread settles the batch, and this answer changes only the attempt and the destination.
    """
    row = note_seen(claimed.batch.destination, result.answer, claimed.destination.profile.answers)
    this = Settlement(claimed, result, row, rt.now())
    match result.verdict:
        case Delivered():
            return _settle_delivered(rt, this, {})
        case PerEvent(refused) if len(refused) == len(this.rows):
            return _settle_each_refused(rt, this, dict(refused))
        case PerEvent(refused):
            return _settle_delivered(rt, this, dict(refused))
        case Refused(reason):
            return _settle_refused(rt, this, reason)
        # Retry-After uses no attempt until an event is older than PATIENCE_SECONDS; then each one does (below).
        case Throttled(seconds, reason) if this.now - min(row.first_seen_at for row in this.rows) < PATIENCE_SECONDS:
            return _settle_throttled(this, seconds, reason)
        case EndpointFault(reason):
            return _settle_endpoint_fault(this, reason, spare=False)
        case ClockOff(reason):
            return _settle_endpoint_fault(this, reason, spare=True)
        case Throttled(seconds, reason):
            until = this.now + seconds
            row = destination_state.throttled(this.destination, this.now, until, reason)
            return _settle_transient(rt, this, reason, row, not_before=until)
        case Transient(reason):
            return _settle_transient(rt, this, reason, this.destination)


def note_seen(
    name: str, answer: HttpResponse | NetError | MessageSent, answers: Answers = "contract"
) -> DestinationRow:
    """Store what the answer shows beside its verdict, where that is new. Returns the destination's row."""
    row = destinations.get(name)
    return destination_state.write(row, destination_state.seen(row, answer, answers))


def _settle_delivered(rt: Runtime, this: Settlement, refused: dict[int, str]) -> list[Wake]:
    batch, rows, now = this.batch, this.rows, this.now
    finish_attempt(this.result, "delivered", now)
    learned = this.claimed.destination.canonical_json == "auto" and not plain_ascii(rows)
    form = this.result.form if learned else this.destination.json_form
    if form != this.destination.json_form:
        log.info("receiver verified this form of JSON", destination=batch.destination, form=form)
    wakes = note_success(rt, this.destination, this.result.sent_at, form=form)
    # False after a lost lease: the new holder sends the batch again, and the receiver knows the events by their ids.
    if batches.finish(batch, "delivered", now):
        for index, reason in refused.items():
            _add_dead_letters(this, [rows[index]], "event", reason or "refused")
        delivered = [row for index, row in enumerate(rows) if index not in refused]
        _mark_delivered(this, delivered)
        for named in _named(batch, delivered):
            log.info("batch delivered", attempt=batch.attempts + 1, **named)
    return [*wakes, *_flush_rest(batch), *_search_sibling(this)]


def note_success(
    rt: Runtime, row: DestinationRow, sent_at: float, *, accepted: bool = True, form: str | None = None
) -> list[Wake]:
    """The receiver answered as it should. If the circuit was open, events that died meanwhile and those of the canary
    are sent again, before everything that waits."""
    after = destination_state.succeeded(row, rt.now(), sent_at=sent_at, accepted=accepted)
    destination_state.write(row, destination_state.verified(after, form) if form else after)
    if row.circuit != "open":
        return []
    # Its next attempt may be due in a minute only, and the receiver is back now.
    if row.canary is not None and batches.settle_waiting(row.canary, "released", rt.now()):
        outbox.put_back([row.canary])
    return redrive.send_first(rt, row.destination)


def _flush_rest(batch: Batch) -> list[Wake]:
    """Flush what waits behind this batch, or schedule that."""
    if outbox.oldest_due(batch.destination, batch.tier) is None:
        return []
    return [Wake("flush", f"{batch.destination}/{batch.tier}", urgent=batch.tier == "urgent")]


def _search_sibling(this: Settlement) -> list[Wake]:
    """In the search for a refused event: this half was accepted, so the refused event is in the other half."""
    wakes, proven = bisect.search_sibling(this.batch, this.now)
    if proven is not None:
        rows, reason = outbox.contents(proven.id), proven.refusal or "refused"
        dead_letters.add_events(proven, rows, cause="event", reason=reason, status=None, attempts=1, now=this.now)
        _log_dead(proven, rows, "event", reason)
    return wakes


def _mark_delivered(this: Settlement, rows: list[StoredEvent]) -> None:
    batch, now, ids = this.batch, this.now, [row.id for row in rows]
    # In the commit that settles the batch: a crash before it leaves all of this undone, and the batch is sent again.
    outbox.remove(batch.id, ids)
    events.mark_delivered(ids, emitted_at=clock.iso(this.result.sent_at), now=now)
    dead_letters.close_replays([row.event_id for row in rows], batch.destination, result="delivered", now=now)
    delivered = Counter(row.source for row in rows)
    # the receiver had them: their latency and their number were counted then
    if batch.tier == RESEND:
        counts = [Count("events", number, source, "resent") for source, number in delivered.items()]
    else:
        # Where events wait by design, their wait says nothing about how fast delivery is.
        waits = [] if this.claimed.destination.collects else [now - row.first_seen_at for row in rows]
        counts = [
            *(Count("events", number, source, "delivered") for source, number in delivered.items()),
            *counters.observed("accept_seconds", waits, counters.LATENCY_BUCKETS, source=batch.tier),
            *counters.observed("seen_seconds", [_age(row) for row in rows], counters.AGE_BUCKETS, source=batch.tier),
        ]
    counters.add_all(counts)


def _age(row: StoredEvent) -> float:
    """The age of the event when the poll found it. A date that cannot be parsed must not undo a delivery."""
    try:
        return max(row.first_seen_at - clock.parse(row.occurred_at), 0.0)
    except (ValueError, OverflowError):
        return 0.0


def _settle_refused(rt: Runtime, this: Settlement, reason: str) -> list[Wake]:
    """A single event is dead; among several the refused one is searched (csi.pipeline.bisect)."""
    rows, now = this.rows, this.now
    finish_attempt(this.result, "refused", now, reason)
    if len(rows) == 1 and destination_state.refuses_all(this.destination, destinations.refused_alone(this.destination)):
        return _settle_refuses_all(this, reason)
    wakes = note_success(rt, this.destination, this.result.sent_at, accepted=False)  # it reads what we send
    if not batches.finish(this.batch, "split" if len(rows) > 1 else "dead", now):
        return wakes  # the lease was lost: the new holder gets the same refusal and divides the batch
    batch = bisect.clear_sibling(this.batch, now)
    if len(rows) == 1:
        _add_dead_letters(this, rows, "event", reason)
        return [*wakes, *bisect.end_search(batch, now)]
    # 413 is about the size of the request: neither half is suspected, so both are sent.
    if this.result.status == 413:
        return [*wakes, *bisect.halve_both(batch, rows, now)]
    return [*wakes, *bisect.halve(batch, rows, now, refused=reason)]


def _settle_each_refused(rt: Runtime, this: Settlement, refused: dict[int, str]) -> list[Wake]:
    """A 207 that accepts no event. A few of them: the events are dead. More, and none accepted: the receiver is the
    cause, as when it answers 400 to every event."""
    reason = refused[0] or "refused"
    finish_attempt(this.result, "refused", this.now, f"http 207: {reason}")
    if destination_state.refuses_all(this.destination, destinations.refused_alone(this.destination)):
        return _settle_refuses_all(this, f"http 207: {reason}")
    wakes = note_success(rt, this.destination, this.result.sent_at, accepted=False)
    if batches.finish(this.batch, "dead", this.now):
        for index, own_reason in refused.items():
            _add_dead_letters(this, [this.rows[index]], "event", own_reason or "refused")
    return [*wakes, *_flush_rest(this.batch), *_search_sibling(this)]


def _settle_refuses_all(this: Settlement, reason: str) -> list[Wake]:
    """Every single event was refused and none accepted: the receiver is the cause, and the events that it refused are
    sent again when it recovers."""
    batch, now, since = this.batch, this.now, this.destination.last_success_at or 0.0
    # Behind an open circuit this is known: a probe costs its event nothing, be it a dead letter or a pending event.
    if batch.letter_id is not None or this.destination.circuit == "open":
        _release(this)
    elif batches.finish(batch, "dead", now):
        _add_dead_letters(this, this.rows, "destination", reason)
        bisect.end_search(bisect.clear_sibling(batch, now), now)
    dead_letters.attribute_to_receiver(batch.destination, since)
    return _trip(this, this.destination, f"{REFUSES_ALL}: {reason}")


def _settle_throttled(this: Settlement, seconds: float, reason: str) -> list[Wake]:
    """Retry-After: nothing is sent to this destination before, and no attempt was used."""
    batch, until = this.batch, this.now + seconds
    for named in _named(batch, this.rows):
        log.info("receiver throttles delivery", error=reason, seconds=round(seconds, 1), **named)
    finish_attempt(this.result, "throttled", this.now, reason)
    after = destination_state.throttled(this.destination, this.now, until, reason)
    destination_state.write(this.destination, after)
    batches.retry_at(batch, until, used_attempt=False)
    return [Wake("deliver", batch.id, at=until)]


def _settle_endpoint_fault(this: Settlement, reason: str, *, spare: bool) -> list[Wake]:
    """This batch is dead (PRD §8.2) unless spared; everything else stays pending until a probe succeeds."""
    finish_attempt(this.result, "endpoint_fault", this.now, reason)
    # With an open circuit the fault is known: one batch has died of it, and no other has to.
    if spare or this.destination.circuit == "open":
        _release(this)
    elif batches.finish(this.batch, "dead", this.now):
        _add_dead_letters(this, this.rows, "destination", reason)
    return _trip(this, this.destination, reason)


def _settle_transient(
    rt: Runtime, this: Settlement, reason: str, row: DestinationRow, not_before: float = 0.0
) -> list[Wake]:
    """Wait and try again; dead after three attempts. While the circuit is open only the canary uses up attempts."""
    batch, now, is_open = this.batch, this.now, this.destination.circuit == "open"
    for named in _named(batch, this.rows):
        log.info("batch not delivered", error=reason, attempt=batch.attempts + 1, **named)
    finish_attempt(this.result, "transient", now, reason)
    # Behind an open circuit a failure says nothing about these events: they are pending again, and no attempt is used.
    if batch.probe or (is_open and batch.id != row.canary):
        _release(this)
        destination_state.write(this.destination, destination_state.failed(row, now, reason))
        return _flush_rest(batch)
    at = next_attempt(batch.attempts + 1, now, rt.rng)
    if at is None:  # all attempts are used; a batch that exhausts them also opens the circuit
        if batches.finish(batch, "dead", now):
            _add_dead_letters(this, this.rows, "transient", reason)
        return _trip(this, row, reason)
    at = max(at, not_before)
    batches.retry_at(batch, at, used_attempt=True)
    retry = [Wake("deliver", batch.id, at=at, urgent=batch.tier == "urgent", is_retry=True)]
    if is_open or destinations.failing_batches(row) < destination_state.FAILING_BATCHES:
        # Too few batches fail to open the circuit, or this is the canary of an open one: it keeps its retries.
        destination_state.write(this.destination, destination_state.failed(row, now, reason))
        return retry
    canary = batches.oldest_failing(batch.destination)
    wakes = _trip(this, row, reason, canary=canary)
    # Opening the circuit has dissolved this batch, unless it is the canary: then there is nothing to retry.
    return [*retry, *wakes] if batch.id == canary else wakes


def _trip(this: Settlement, row: DestinationRow, reason: str, *, canary: int | None = None) -> list[Wake]:
    """Open the circuit. Batches that wait are dissolved, so that a probe can use any of their events; the canary keeps
    its retries. The flush that is woken schedules the first probe."""
    after = destination_state.tripped(row, this.now, reason, canary=canary)
    destination_state.write(this.destination, after)
    # In the same commit as the state: a thread that claims one of these batches next finds it dissolved.
    batches.release_waiting(this.batch.destination, keep=canary, now=this.now)
    return _flush_rest(this.batch)


def _release(this: Settlement) -> None:
    """The circuit is open: the events of this batch are pending again, or a dead letter again."""
    if this.batch.letter_id is None:
        batches.release(this.batch, this.now)
    elif batches.finish(this.batch, "released", this.now):
        dead_letters.reopen_after_probe(this.batch, this.rows)


def _add_dead_letters(this: Settlement, rows: list[StoredEvent], cause: dead_letters.Cause, reason: str) -> None:
    batch, status, attempts_made = this.batch, this.result.status, this.batch.attempts + 1
    reason = without_code(reason)
    dead_letters.add_events(
        batch, rows, cause=cause, reason=reason, status=status, attempts=attempts_made, now=this.now
    )
    _log_dead(batch, rows, cause, reason)


def _log_dead(batch: Batch, rows: list[StoredEvent], cause: dead_letters.Cause, reason: str) -> None:
    for named in _named(batch, rows):
        log.error("events became dead letters", error=reason, cause=cause, **named)


def _named(batch: Batch, rows: Sequence[StoredEvent]) -> Iterator[dict[str, object]]:
    """The fields of each log line about these events of a batch: one event by its own fields, several by their ids."""
    facts: dict[str, object] = {"batch_id": batch.batch_id, "destination": batch.destination, "tier": batch.tier}
    if len(rows) == 1:
        row = rows[0]
        yield facts | {"events": 1, "source": row.source, "event_type": row.event_type, "event_id": row.event_id}
        return
    for part in chunks(rows, LOGGED_IDS):
        yield facts | {"events": len(part), "event_ids": " ".join(row.event_id for row in part)}


def quarantine(batch: Batch, rows: list[StoredEvent], now: float) -> None:
    """A batch whose sending ended the process three times: one event is quarantined, several are sent one by one."""
    # One by one: the event that ends the process is then alone in its batch, and the others are delivered.
    if len(rows) > 1:
        batches.finish(batch, "split", now)
        for row in rows:
            batches.split_off(batch, [row.id], now)
        return
    batches.finish(batch, "dead", now)
    if rows:
        reason = f"sending it ended the process {MAX_CRASHES} times"
        dead_letters.add_events(
            batch, rows, cause="crash", reason=reason, status=None, attempts=batch.attempts, now=now
        )
        log.error("event is quarantined", event_id=rows[0].event_id, source=rows[0].source, error=reason)


def finish_attempt(result: AttemptResult, outcome: str, now: float, reason: str = "") -> None:
    answer = result.answer.body.decode("utf-8", "replace") if isinstance(result.answer, HttpResponse) else ""
    attempts.finish(result.attempt_id, outcome, now, status=result.status, reason=reason, answer=answer)


def plain_ascii(rows: list[StoredEvent]) -> bool:
    return all(row.is_ascii for row in rows)
