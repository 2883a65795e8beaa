"""What an answer means for a batch, its events and the receiver: one transaction in which all of them move together."""

from collections import Counter
from dataclasses import dataclass

from csi import clock
from csi.config.settings import STREAM
from csi.dlq import dead_letters
from csi.emitter import circuit_breaker
from csi.emitter.destination import Destination
from csi.emitter.verdict import (
    ClockOff,
    Delivered,
    EndpointFault,
    Pause,
    PerEvent,
    Refused,
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
from csi.store.destinations import Endpoint
from csi.store.events import StoredEvent

MAX_CRASHES = 3
PATIENCE_SECONDS = 86_400.0
"""How long an event may be held back by Retry-After before an attempt is counted after all (DECISIONS 22)."""

TOGETHER: dict[str, tuple[str, ...]] = {
    "urgent": ("urgent",),
    "standard": ("standard", "high_volume"),
    "high_volume": ("standard", "high_volume"),
    STREAM: (STREAM,),
}
"""Lanes that share the number of requests at once."""


@dataclass(frozen=True)
class Held:
    """A batch in our hands, and the attempt that was written before anything is sent."""

    batch: Batch
    rows: list[StoredEvent]
    destination: Destination
    attempt_id: int
    request_id: str
    form: Form


@dataclass(frozen=True)
class Sent:
    """One exchange with the receiver, and what it means."""

    attempt_id: int
    form: Form
    at: float
    answer: HttpResponse | NetError
    verdict: Verdict

    @property
    def status(self) -> int | None:
        return self.answer.status if isinstance(self.answer, HttpResponse) else None


@dataclass(frozen=True)
class Settling:
    """A batch that was answered, the receiver's row, and the moment it is settled."""

    held: Held
    sent: Sent
    endpoint: Endpoint
    now: float

    @property
    def batch(self) -> Batch:
        return self.held.batch

    @property
    def rows(self) -> list[StoredEvent]:
        return self.held.rows


@dataclass(frozen=True)
class RetryAt:
    """The batch is due again at this time: Huey carries the wait, the row decides."""

    when: float


def settle(rt: Runtime, this: Settling) -> list[Wake] | RetryAt:
    """Call it inside a transaction: the attempt, the batch, its events and the endpoint move together."""
    match this.sent.verdict:
        case Delivered():
            return _settle_delivered(rt, this, {})
        case PerEvent(refused):
            return _settle_delivered(rt, this, dict(refused))
        case Refused(reason):
            return _settle_refused(rt, this, reason)
        case Pause(seconds, reason) if this.now - min(row.first_seen_at for row in this.rows) < PATIENCE_SECONDS:
            return _settle_pause(this, seconds, reason)
        case EndpointFault(reason):
            return _settle_endpoint_fault(this, reason, spare=False)
        case ClockOff(reason):
            return _settle_endpoint_fault(this, reason, spare=True)
        case Pause(seconds, reason):
            destination_state.note_pause(this.endpoint, this.now, this.now + seconds, reason)
            return _settle_transient(rt, this, reason, not_before=this.now + seconds)
        case Transient(reason):
            return _settle_transient(rt, this, reason)


def _settle_delivered(rt: Runtime, this: Settling, refused: dict[int, str]) -> list[Wake]:
    batch, rows, now = this.batch, this.rows, this.now
    finish_attempt(this.sent, "delivered", now)
    wakes = note_success(rt, this.endpoint, this.sent.at)
    if this.sent.form != this.endpoint.form and not plain_ascii(rows):
        _remember_form(this.held.destination, this.sent.form)
    if batches.finish(batch, "delivered", now):
        for index, reason in refused.items():
            _bury(this, [rows[index]], "event", reason or "refused")
        _mark_delivered(this, [row for index, row in enumerate(rows) if index not in refused])
        made = batch.attempts + 1
        log.info("batch delivered", batch_id=batch.batch_id, tier=batch.tier, events=len(rows), attempt=made)
    return [*wakes, *_flush_rest(batch), *_blame_sibling(this)]


def _flush_rest(batch: Batch) -> list[Wake]:
    """There is a place again for what waits behind this batch."""
    if outbox.oldest_due(batch.destination, batch.tier) is None:
        return []
    return [Wake("flush", f"{batch.destination}/{batch.tier}", urgent=batch.tier == "urgent")]


def note_success(rt: Runtime, endpoint: Endpoint, sent_at: float, *, took: bool = True) -> list[Wake]:
    """The receiver answered as it should. Had it been away, what died of that goes out again, before all that waits."""
    was_away, now = endpoint.breaker == "open", rt.now()
    destination_state.note_success(endpoint, now, sent_at, took=took)
    return redrive.send_first(rt, endpoint.destination) if was_away else []


def _blame_sibling(this: Settling) -> list[Wake]:
    """In the search for a guilty event: this half is innocent, so it is in the other one."""
    wakes, guilty = bisect.blame_sibling(this.batch, this.now)
    if guilty is not None:
        rows, reason = outbox.contents(guilty.id), guilty.proof or "refused"
        dead_letters.add_events(guilty, rows, cause="event", reason=reason, status=None, attempts=1, now=this.now)
        log.error("events are dead letters", batch_id=guilty.batch_id, events=1, error=reason, cause="event")
    return wakes


def _mark_delivered(this: Settling, rows: list[StoredEvent]) -> None:
    batch, now, ids = this.batch, this.now, [row.id for row in rows]
    outbox.leave(batch.id, ids)
    events.mark_delivered(ids, emitted_at=clock.iso(this.sent.at), now=now)
    dead_letters.close_replays([row.event_id for row in rows], batch.destination, result="delivered", now=now)
    counters.add_all(_counts(batch.tier, rows, now))


def _counts(tier: str, rows: list[StoredEvent], now: float) -> list[Count]:
    delivered = Counter(row.source for row in rows)
    waits = [now - row.first_seen_at for row in rows]
    return [
        *(Count("events", number, source, "delivered") for source, number in delivered.items()),
        *counters.observed("accept_seconds", waits, counters.LATENCY_BUCKETS, source=tier),
        *counters.observed("seen_seconds", [_age(row) for row in rows], counters.AGE_BUCKETS, source=tier),
    ]


def _age(row: StoredEvent) -> float:
    """How old it was when we saw it. A date that cannot be read must not undo a delivery."""
    try:
        return max(row.first_seen_at - clock.parse(row.occurred_at), 0.0)
    except (ValueError, OverflowError):
        return 0.0


def _settle_refused(rt: Runtime, this: Settling, reason: str) -> list[Wake]:
    """One event is dead; among several the guilty one is looked for (csi.pipeline.bisect)."""
    rows, now = this.rows, this.now
    finish_attempt(this.sent, "refused", now, reason)
    if len(rows) == 1 and _refuses_all(this.endpoint):
        return _settle_refuses_all(this, reason)
    wakes = note_success(rt, this.endpoint, this.sent.at, took=False)  # it reads what we send, and says so
    if not batches.finish(this.batch, "split" if len(rows) > 1 else "dead", now):
        return wakes
    batch = bisect.clear_sibling(this.batch, now)
    if len(rows) == 1:
        _bury(this, rows, "event", reason)
        return [*wakes, *bisect.end_search(batch, now)]
    if this.sent.status == 413:
        return [*wakes, *bisect.halve_both(batch, rows, now)]
    return [*wakes, *bisect.halve(batch, rows, now, refused=reason)]


def _refuses_all(endpoint: Endpoint) -> bool:
    return circuit_breaker.refuses_all(refused=destinations.refused_alone(endpoint), reason=endpoint.reason)


def _settle_refuses_all(this: Settling, reason: str) -> list[Wake]:
    """Refusal after refusal and nothing taken: the receiver is at fault. What died of it so far comes back, too."""
    batch, now, since = this.batch, this.now, this.endpoint.last_success_at or 0.0
    if batch.letter_id is not None:
        _give_back(this)
    elif batches.finish(batch, "dead", now):
        _bury(this, this.rows, "endpoint", reason)
        bisect.end_search(bisect.clear_sibling(batch, now), now)
    dead_letters.attribute_to_receiver(batch.destination, since)
    destination_state.note_failure(this.endpoint, now, f"{circuit_breaker.REFUSES}: {reason}", opens=True)
    batches.release_waiting(batch.destination, keep=None, now=now)
    return []


def _settle_pause(this: Settling, seconds: float, reason: str) -> list[Wake]:
    """The receiver asked for time: nobody sends to it before, and no attempt was used."""
    at = this.now + seconds
    log.info("receiver asked for a pause", batch_id=this.batch.batch_id, error=reason, seconds=round(seconds, 1))
    finish_attempt(this.sent, "paused", this.now, reason)
    destination_state.note_pause(this.endpoint, this.now, at, reason)
    batches.retry_at(this.batch, at, used_attempt=False)
    return [Wake("deliver", this.batch.id, at=at)]


def _settle_endpoint_fault(this: Settling, reason: str, *, spare: bool) -> list[Wake]:
    """The batch in hand is dead (PRD §8.2) unless spared; everything else stays pending until a probe gets through."""
    batch, now = this.batch, this.now
    finish_attempt(this.sent, "endpoint_fault", now, reason)
    if spare or this.endpoint.breaker == "open":
        _give_back(this)
    elif batches.finish(batch, "dead", now):
        _bury(this, this.rows, "endpoint", reason)
    opens = circuit_breaker.opens(endpoint_fault=True, exhausted=False, failing_batches=0)
    destination_state.note_failure(this.endpoint, now, reason, opens=opens)
    batches.release_waiting(batch.destination, keep=None, now=now)
    return []


def _settle_transient(rt: Runtime, this: Settling, reason: str, not_before: float = 0.0) -> list[Wake] | RetryAt:
    """Wait and try again; dead after three. While the receiver is away only the canary uses up attempts."""
    batch, endpoint, now = this.batch, this.endpoint, this.now
    log.info("batch not delivered", batch_id=batch.batch_id, tier=batch.tier, error=reason, attempt=batch.attempts + 1)
    finish_attempt(this.sent, "transient", now, reason)
    if batch.probe or (endpoint.breaker == "open" and batch.id != endpoint.canary):
        _give_back(this)
        destination_state.note_failure(endpoint, now, reason, opens=False)
        return []
    at = next_attempt(batch.attempts + 1, now, rt.rng)
    if at is None:
        return _settle_exhausted(this, reason)
    at = max(at, not_before)
    batches.retry_at(batch, at, used_attempt=True)
    failing = destinations.failing_batches(endpoint)
    if endpoint.breaker == "closed" and circuit_breaker.opens(
        endpoint_fault=False, exhausted=False, failing_batches=failing
    ):
        canary = batches.oldest_failing(batch.destination)
        destination_state.note_failure(endpoint, now, reason, opens=True, canary=canary)
        batches.release_waiting(batch.destination, keep=canary, now=now)
        return RetryAt(at) if batch.id == canary else []
    destination_state.note_failure(endpoint, now, reason, opens=False)
    return RetryAt(at)


def _give_back(this: Settling) -> None:
    """The receiver is away: what is in hand waits on, each event where it was."""
    if this.batch.letter_id is None:
        batches.release(this.batch, this.now)
    elif batches.finish(this.batch, "released", this.now):
        dead_letters.reopen_after_probe(this.batch, this.rows)


def _settle_exhausted(this: Settling, reason: str) -> list[Wake]:
    if batches.finish(this.batch, "dead", this.now):
        _bury(this, this.rows, "transient", reason)
    opens = circuit_breaker.opens(endpoint_fault=False, exhausted=True, failing_batches=0)
    destination_state.note_failure(this.endpoint, this.now, reason, opens=opens)
    batches.release_waiting(this.batch.destination, keep=None, now=this.now)
    return []


def _bury(this: Settling, rows: list[StoredEvent], cause: dead_letters.Cause, reason: str) -> None:
    batch = this.batch
    attempts_made = batch.attempts + 1
    dead_letters.add_events(
        batch, rows, cause=cause, reason=reason, status=this.sent.status, attempts=attempts_made, now=this.now
    )
    log.error("events are dead letters", batch_id=batch.batch_id, events=len(rows), error=reason, cause=cause)


def set_aside(batch: Batch, rows: list[StoredEvent], now: float) -> None:
    """A batch whose sending ended the process three times: one event is quarantined, several are taken apart."""
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
        log.error("event is quarantined", event_id=rows[0].event_id, error=reason)


def finish_attempt(sent: Sent, outcome: str, now: float, reason: str = "") -> None:
    answer = sent.answer.body.decode("utf-8", "replace") if isinstance(sent.answer, HttpResponse) else ""
    attempts.finish(sent.attempt_id, outcome, now, status=sent.status, reason=reason, answer=answer)


def _remember_form(destination: Destination, form: Form) -> None:
    """The receiver verified text beyond ASCII in this form: from now on it is the first choice."""
    if destination.canonical_json == "auto":
        destinations.change(destination.name, form=form)
        log.info("receiver verifies this form of JSON", destination=destination.name, form=form)


def plain_ascii(rows: list[StoredEvent]) -> bool:
    return all(row.is_ascii for row in rows)
