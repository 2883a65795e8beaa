"""Step five: one batch, one signed request, and what its answer means for each event."""

from dataclasses import dataclass

from csi import clock
from csi.dlq import store as dlq
from csi.emitter import breaker, http
from csi.emitter.batch import envelope
from csi.emitter.verdict import (
    Delivered,
    EndpointFault,
    Pause,
    PerEvent,
    Refused,
    Transient,
    Verdict,
    judge,
    next_attempt,
)
from csi.errors import NetError
from csi.flow import gate
from csi.flow.wake import Wake
from csi.ingester.signature import Form, new_request_id
from csi.logs import log
from csi.net import Answer
from csi.runtime import Runtime
from csi.store import attempts, batches, counters, endpoints, events
from csi.store.db import writing
from csi.store.models import Batch, Endpoint, Event

LEASE_MARGIN = 10.0
MAX_CRASHES = 3
PATIENCE_SECONDS = 86_400.0
"""How long an event may be held back by Retry-After before an attempt is counted after all (DECISIONS 22)."""

_LANES: dict[str, tuple[str, ...]] = {
    "urgent": ("urgent",),
    "standard": ("standard", "high_volume"),
    "high_volume": ("standard", "high_volume"),
}


@dataclass(frozen=True)
class Held:
    """A batch in our hands, and the attempt that was written before anything is sent."""

    batch: Batch
    rows: list[Event]
    endpoint: Endpoint
    attempt_id: int
    request_id: str
    form: Form


@dataclass(frozen=True)
class Sent:
    """One exchange with the receiver, and what it means."""

    attempt_id: int
    form: Form
    at: float
    answer: Answer | NetError
    verdict: Verdict

    @property
    def status(self) -> int | None:
        return self.answer.status if isinstance(self.answer, Answer) else None


@dataclass(frozen=True)
class RetryAt:
    """The batch is due again at this time: Huey carries the wait, the row decides."""

    when: float


def deliver(rt: Runtime, batch_id: int) -> list[Wake] | RetryAt:
    """Send one batch, if it is due and the gate lets it through, and settle it."""
    held = _take(rt, batch_id)
    if held is None:
        return []
    sent = _send_in_form(rt, held)
    with writing():
        return _settle(rt, held, sent)


def probe(rt: Runtime) -> list[Wake]:
    """Ask an absent receiver with an empty batch, when nothing is pending that could ask for us."""
    now, receiver = rt.now(), rt.receiver()
    with writing():
        endpoint = endpoints.get()
        if gate.look(endpoint, now) != "probe":
            return []
        gate.note_probe(endpoint, now)
        form, request_id = _form(rt, endpoint), new_request_id()
        attempt_id = attempts.start(None, endpoint.destination, request_id, 1, form, now)
    body = http.encode(envelope(rt.settings.csi.instance_id, batches.new_batch_id(now), []), form)
    answer = http.send(rt.net, receiver, body, request_id=request_id, now=now)
    verdict = judge(answer, 0, rt.now())
    alive = isinstance(verdict, Delivered | PerEvent | Refused)  # refusing an empty batch is an answer, too
    with writing():
        _finish_attempt(
            Sent(attempt_id, form, now, answer, verdict), "delivered" if alive else "probe_failed", rt.now()
        )
        if alive:
            gate.note_success(endpoint, rt.now())
    return []


def _take(rt: Runtime, batch_id: int) -> Held | None:
    """Claim the batch and write the attempt, in one commit before anything is sent."""
    now = rt.now()
    with writing():
        if not _may_send(rt, batch_id, now):
            return None
        batch = batches.claim(batch_id, now, rt.settings.delivery.timeout_seconds + LEASE_MARGIN)
        if batch is None:
            return None
        attempts.interrupt(batch.id, now)
        rows = events.of_batch(batch.id)
        if batch.crashes >= MAX_CRASHES or not rows:
            _set_aside(batch, rows, now)
            return None
        endpoint = endpoints.get(batch.destination)
        form, request_id = _form(rt, endpoint), new_request_id()
        attempt_id = attempts.start(batch.id, batch.destination, request_id, batch.attempts + 1, form, now)
    return Held(batch, rows, endpoint, attempt_id, request_id, form)


def _may_send(rt: Runtime, batch_id: int, now: float) -> bool:
    """The gate, and the number of requests at once. A batch that may not go is put off or dissolved, not lost."""
    batch = Batch.get_or_none(id=batch_id)
    if batch is None or batch.state not in batches.UNSETTLED:
        return False
    endpoint = endpoints.get(batch.destination)
    state = gate.look(endpoint, now)
    if state == "paused":
        batches.put_off(batch, endpoint.paused_until or now)
        return False
    if state != "open" and not batch.probe:
        canary = endpoint.canary
        batches.release_waiting(batch.destination, keep=canary, now=now)
        return batch.id == canary
    lane = _LANES[batch.tier]
    limit = rt.settings.delivery.max_concurrent_requests
    return batch.tier == "urgent" or batches.sending_count(batch.destination, lane, now) < limit


def _send_in_form(rt: Runtime, held: Held) -> Sent:
    """Send; on a 401 for text that the two canonical forms write differently, once more in the other (DECISIONS 1)."""
    sent = _send(rt, held, held.attempt_id, held.request_id, held.form)
    if rt.settings.delivery.canonical_json != "auto" or sent.status != 401 or _plain_ascii(held.rows):
        return sent
    other: Form = "utf8" if held.form == "ascii" else "ascii"
    with writing():
        _finish_attempt(sent, "other_form", rt.now())
        request_id = new_request_id()
        attempt_id = attempts.start(
            held.batch.id, held.batch.destination, request_id, held.batch.attempts + 1, other, rt.now()
        )
    return _send(rt, held, attempt_id, request_id, other)


def _send(rt: Runtime, held: Held, attempt_id: int, request_id: str, form: Form) -> Sent:
    now = rt.now()
    contents = [events.as_contract(row, clock.iso(now)) for row in held.rows]
    body = http.encode(envelope(rt.settings.csi.instance_id, held.batch.batch_id, contents), form)
    answer = http.send(rt.net, rt.receiver(), body, request_id=request_id, now=now)
    return Sent(attempt_id, form, now, answer, judge(answer, len(held.rows), rt.now()))


def _settle(rt: Runtime, held: Held, sent: Sent) -> list[Wake] | RetryAt:
    """One transaction: the attempt, the batch, its events and the endpoint move together."""
    now, batch, rows = rt.now(), held.batch, held.rows
    endpoint = endpoints.get(batch.destination)
    match sent.verdict:
        case Delivered():
            return _settle_delivered(rt, batch, rows, {}, endpoint, sent, now)
        case PerEvent(refused):
            return _settle_delivered(rt, batch, rows, dict(refused), endpoint, sent, now)
        case Refused(reason):
            gate.note_success(endpoint, now)  # it reads what we send, and says so
            return _settle_refused(batch, rows, sent, reason, now)
        case Pause(seconds, reason) if now - min(row.first_seen_at for row in rows) < PATIENCE_SECONDS:
            _finish_attempt(sent, "paused", now, reason)
            gate.note_pause(endpoint, now + seconds, reason)
            batches.retry_at(batch, now + seconds, used_attempt=False)
            return [Wake("deliver", batch.id, at=now + seconds)]
        case EndpointFault(reason):
            return _settle_endpoint_fault(batch, rows, endpoint, sent, reason, now)
        case Transient(reason) | Pause(_, reason):
            return _settle_transient(rt, batch, rows, endpoint, sent, reason, now)


def _settle_delivered(
    rt: Runtime,
    batch: Batch,
    rows: list[Event],
    refused: dict[int, str],
    endpoint: Endpoint,
    sent: Sent,
    now: float,
) -> list[Wake]:
    _finish_attempt(sent, "delivered", now)
    gate.note_success(endpoint, now)
    if sent.form != endpoint.form and not _plain_ascii(rows):
        _remember_form(rt, endpoint, sent.form)
    if batches.finish(batch, "delivered", now):
        for index, reason in refused.items():
            _bury(batch, [rows[index]], "event", reason or "refused", sent.status, now)
        _mark_delivered([row for index, row in enumerate(rows) if index not in refused], sent.at, now)
        log.info(
            "batch delivered",
            batch_id=batch.batch_id,
            tier=batch.tier,
            events=len(rows),
            attempt=batch.attempts + 1,
        )
    following = batches.next_ready(batch.destination, _LANES[batch.tier], now)
    wakes = [Wake("flush", batch.tier, urgent=batch.tier == "urgent")]
    return wakes if following is None else [*wakes, Wake("deliver", following)]


def _mark_delivered(rows: list[Event], sent_at: float, now: float) -> None:
    ids = [row.id for row in rows]
    events.settle(ids, "delivered", delivered=True, delivered_at=now, emitted_at=clock.iso(sent_at))
    dlq.close_replays([row.event_id for row in rows], result="delivered", now=now)
    for source in {row.source for row in rows}:
        counters.add("events", sum(row.source == source for row in rows), source=source, label="delivered")
    for row in rows:
        counters.observe("accept_seconds", now - row.first_seen_at, counters.LATENCY_BUCKETS, source=row.tier)


def _settle_refused(batch: Batch, rows: list[Event], sent: Sent, reason: str, now: float) -> list[Wake]:
    """Several events refused together are halved, until the guilty one stands alone; that one is dead."""
    _finish_attempt(sent, "refused", now, reason)
    if not batches.finish(batch, "split" if len(rows) > 1 else "dead", now):
        return []
    if len(rows) == 1:
        _bury(batch, rows, "event", reason, sent.status, now)
        return []
    middle = len(rows) // 2
    halves = [
        batches.create([row.id for row in half], destination=batch.destination, tier=batch.tier, now=now)
        for half in (rows[:middle], rows[middle:])
    ]
    return [Wake("deliver", half) for half in halves]


def _settle_endpoint_fault(
    batch: Batch, rows: list[Event], endpoint: Endpoint, sent: Sent, reason: str, now: float
) -> list[Wake]:
    """The batch in hand is dead (PRD §8.2); everything else stays pending until a probe gets through."""
    _finish_attempt(sent, "endpoint_fault", now, reason)
    if endpoint.breaker == "open":
        batches.release(batch, now)
    elif batches.finish(batch, "dead", now):
        _bury(batch, rows, "endpoint", reason, sent.status, now)
    gate.note_failure(
        endpoint, now, reason, opens=breaker.opens(endpoint_fault=True, exhausted=False, failing_batches=0)
    )
    batches.release_waiting(batch.destination, keep=None, now=now)
    return []


def _settle_transient(
    rt: Runtime, batch: Batch, rows: list[Event], endpoint: Endpoint, sent: Sent, reason: str, now: float
) -> list[Wake] | RetryAt:
    """Wait and try again; dead after three. While the receiver is away only the canary uses up attempts."""
    _finish_attempt(sent, "transient", now, reason)
    if batch.probe or (endpoint.breaker == "open" and batch.id != endpoint.canary):
        batches.release(batch, now)
        gate.note_failure(endpoint, now, reason, opens=False)
        return []
    at = next_attempt(batch.attempts + 1, now, rt.rng)
    if at is None:
        return _settle_exhausted(batch, rows, endpoint, sent, reason, now)
    batches.retry_at(batch, at, used_attempt=True)
    failing = endpoints.failing_batches(endpoint)
    if endpoint.breaker == "closed" and breaker.opens(endpoint_fault=False, exhausted=False, failing_batches=failing):
        canary = batches.oldest_failing(batch.destination)
        gate.note_failure(endpoint, now, reason, opens=True, canary=canary)
        batches.release_waiting(batch.destination, keep=canary, now=now)
        return RetryAt(at) if batch.id == canary else []
    gate.note_failure(endpoint, now, reason, opens=False)
    return RetryAt(at)


def _settle_exhausted(
    batch: Batch, rows: list[Event], endpoint: Endpoint, sent: Sent, reason: str, now: float
) -> list[Wake]:
    if batches.finish(batch, "dead", now):
        _bury(batch, rows, "transient", reason, sent.status, now)
    opens = breaker.opens(endpoint_fault=False, exhausted=True, failing_batches=0)
    gate.note_failure(endpoint, now, reason, opens=opens)
    batches.release_waiting(batch.destination, keep=None, now=now)
    return []


def _bury(batch: Batch, rows: list[Event], cause: dlq.Cause, reason: str, status: int | None, now: float) -> None:
    dlq.bury(rows, cause=cause, reason=reason, status=status, attempts=batch.attempts + 1, now=now)
    log.error("events are dead letters", batch_id=batch.batch_id, events=len(rows), error=reason, cause=cause)


def _set_aside(batch: Batch, rows: list[Event], now: float) -> None:
    """A batch whose sending ended the process three times: one event is quarantined, several are taken apart."""
    if len(rows) > 1:
        batches.finish(batch, "split", now)
        for row in rows:
            batches.create([row.id], destination=batch.destination, tier=batch.tier, now=now)
        return
    batches.finish(batch, "dead", now)
    if rows:
        reason = f"sending it ended the process {MAX_CRASHES} times"
        dlq.bury(
            rows,
            cause="crash",
            reason=reason,
            status=None,
            attempts=batch.attempts,
            now=now,
            state="quarantined",
        )
        log.error("event is quarantined", event_id=rows[0].event_id, error=reason)


def _finish_attempt(sent: Sent, outcome: str, now: float, reason: str = "") -> None:
    answer = (
        sent.answer.body[: attempts.ANSWER_CHARS].decode("utf-8", "replace") if isinstance(sent.answer, Answer) else ""
    )
    attempts.finish(sent.attempt_id, outcome, now, status=sent.status, reason=reason, answer=answer)


def _form(rt: Runtime, endpoint: Endpoint) -> Form:
    setting = rt.settings.delivery.canonical_json
    if setting != "auto":
        return setting
    return "utf8" if endpoint.form == "utf8" else "ascii"


def _remember_form(rt: Runtime, endpoint: Endpoint, form: Form) -> None:
    """The receiver verified text beyond ASCII in this form: from now on it is the first choice."""
    if rt.settings.delivery.canonical_json == "auto":
        endpoints.change(endpoint.destination, form=form)
        log.info("receiver verifies this form of JSON", destination=endpoint.destination, form=form)


def _plain_ascii(rows: list[Event]) -> bool:
    return all((row.subject_json + row.routing_json + row.metadata_json).isascii() for row in rows)
