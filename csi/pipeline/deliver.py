"""Step five: one batch, one signed request. `csi.pipeline.settle` decides what the answer means."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from csi import clock
from csi.config.delivery_settings import STREAM
from csi.emitter import http
from csi.emitter.verdict import Delivered, PerEvent, Refused, Throttled, judge
from csi.exclusive_section import DELIVERY_SECTION
from csi.ingester.signature import Form, canonical, new_request_id
from csi.pipeline import destination_state, flush, receiver_test, redrive, settle
from csi.pipeline.settle import AttemptResult, ClaimedBatch
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import attempts, batches, destinations, events, outbox, suspects
from csi.store.batches import Batch, Sending
from csi.store.db import exclusive_on_sqlite, is_postgres, writing
from csi.store.destinations import DestinationRow

LEASE_MARGIN = 10.0
"""Added to the request timeout: a request that times out is settled before another thread may claim its batch."""

MAX_TASK_SECONDS = 20.0
"""A thread continues with the next batch for this long. Then its task ends, which shows that the worker is alive."""


def deliver(rt: Runtime, batch_id: int) -> Iterator[list[Wake]]:
    """Send and settle this batch and then, in the slot that it leaves, the batches that wait behind it.

    Yields the wake-ups of each batch after its commit. The next batch is claimed in the commit that settles the one
    before: in a flood that is one commit per event instead of three, and no message in the queue. It keeps the slot in
    this worker, while a message in a shared queue might reach a worker that has no free slot. Decision 0034.
    """
    end = time.monotonic() + MAX_TASK_SECONDS
    with (
        exclusive_on_sqlite(DELIVERY_SECTION),
        writing(),
    ):  # committed before anything is sent: a crash leaves an attempt and a lease behind
        claimed = _claim(rt, batches.find(batch_id), batches.sending(rt.now()))
    while claimed is not None:
        is_suspect = claimed.batch.crashes > 0
        wakes, claimed = _send_and_settle(rt, claimed, end)
        # While a batch that was in two crashes was sent, wake-ups of others like it were ignored.
        if is_suspect and (suspect := suspects.next_batch(rt.now())) is not None:
            wakes = [*wakes, Wake("deliver", suspect)]
        yield flush.flush_due_lanes(rt, wakes)


def _send_and_settle(rt: Runtime, claimed: ClaimedBatch, end: float) -> tuple[list[Wake], ClaimedBatch | None]:
    """A crash after the request and before the commit leaves the batch `sending`; its lease brings it back, and the
    receiver recognises the events by their ids."""
    with exclusive_on_sqlite(DELIVERY_SECTION):
        result = _send_in_form(rt, claimed)
        with writing():
            wakes = settle.settle(rt, claimed, result)
            # Huey's own retry needs this task to end, so the slot goes to another task.
            if any(wake.is_retry for wake in wakes):
                return [*wakes, *_wake_next(rt, claimed.batch)], None
            return _use_slot(rt, claimed.batch, wakes, continues=not rt.stopping() and time.monotonic() < end)


def _use_slot(
    rt: Runtime, batch: Batch, wakes: list[Wake], *, continues: bool
) -> tuple[list[Wake], ClaimedBatch | None]:
    """Fill the lanes that have room now, then claim (`continues`) or wake the next batch.

    Not on PostgreSQL: there a lane is filled in a transaction of its own, because one that waits for a lane's lock must
    not hold the destination's row meanwhile. Decision 0034.
    """
    flushes = [] if is_postgres() else [wake for wake in wakes if wake.step == "flush" and wake.at is None]
    rest = [wake for wake in wakes if wake not in flushes]
    opened = [wake for lane in flushes for wake in flush.open_due(rt, str(lane.key))]
    if not continues:
        return [*rest, *opened, *_wake_next(rt, batch)], None
    sending = batches.sending(rt.now())
    following = _claim(rt, _next_ready(rt, batch), sending)
    others = [wake for wake in opened if following is None or wake.key != following.batch.id]
    # Only as many as there are free slots: each thread that ends claims its next batch without a wake-up.
    if following is not None:
        sending = [*sending, Sending(following.batch.destination, following.batch.tier, is_own=True, count=1)]
    used = sum(it.count for it in _own(rt, sending, batch.tier))
    return [*rest, *others[: max(_slots(rt, batch.tier) - used, 0)]], following


def _wake_next(rt: Runtime, batch: Batch) -> list[Wake]:
    found = _next_ready(rt, batch)
    return [] if found is None else [Wake("deliver", found.id, urgent=batch.tier == "urgent")]


def _next_ready(rt: Runtime, batch: Batch) -> Batch | None:
    return batches.next_ready(batch.destination, rt.now(), urgent=batch.tier == "urgent")


# ── claiming ────────────────────────────────────────────────────────────────────────────────────────────


def _claim(rt: Runtime, found: Batch | None, sending: list[Sending]) -> ClaimedBatch | None:
    """Claim a due batch and write its attempt. None: it may not be sent now, or another thread has it. `sending` was
    read in this transaction."""
    now = rt.now()
    if found is None or found.state not in batches.UNSETTLED or found.destination not in rt.destinations:
        return None
    destination, row = rt.destinations[found.destination], destinations.get(found.destination)
    if not _may_send(rt, found, row, sending, now):
        return None
    if found.state == "sending" and found.crashes and suspects.batch_must_wait(found.id, now):
        return None  # rescue wakes it again
    batch = batches.claim(found.id, now, destination.receiver.timeout + LEASE_MARGIN)
    if batch is None:
        return None
    # The process ended between claim and commit. Whether the receiver has the events is unknown: they are sent again.
    if batch.crashes:
        attempts.interrupt(batch.id, now)
    rows = outbox.contents(batch.id)
    if batch.crashes >= settle.MAX_CRASHES or not rows:
        settle.quarantine(batch, rows, now)
        return None
    form, request_id = destination.form(row.json_form), new_request_id()
    attempt_id = attempts.start(
        batch.id, batch.destination, request_id, batch.attempts + 1, form, now, url=destination.address
    )
    return ClaimedBatch(batch, rows, destination, attempt_id, request_id, form)


def _may_send(rt: Runtime, batch: Batch, row: DestinationRow, sending: list[Sending], now: float) -> bool:
    """A batch that may not be sent waits longer or is dissolved; none is lost."""
    if not rt.settings.features.delivery:
        return False
    state = destination_state.current(row, now)
    # The state may have changed since the batch was opened, or while it waited for a slot.
    if state in ("paused", "throttled"):
        batches.delay(batch, row.throttled_until or now)
        return False
    if (quiet_until := rt.destinations[batch.destination].quiet_until(now)) is not None:
        batches.delay(batch, quiet_until)
        return False
    # Behind an open circuit only probes and the canary are sent; other events go back to pending without an attempt.
    if state != "accepting" and not batch.probe:
        batches.release_waiting(batch.destination, keep=row.canary, now=now)
        return batch.id == row.canary
    return _has_slot(rt, batch, row, sending)


def _has_slot(rt: Runtime, batch: Batch, row: DestinationRow, sending: list[Sending]) -> bool:
    """Urgent batches have slots of their own: no other lane takes them, and they take none of the others'. So have
    streamed events, where the worker has threads for them.

    With several destinations each leaves one slot to the others, so that a slow receiver does not block them.
    """
    slots = _slots(rt, batch.tier)
    own = _own(rt, sending, batch.tier)
    to_destination = sum(it.count for it in own if it.destination == batch.destination)
    fair_part = slots if len(rt.destinations) == 1 else max(slots - 1, 1)
    if sum(it.count for it in own) >= slots or to_destination >= fair_part:
        return False
    lanes, destination = settle.SHARED_LIMIT[batch.tier], rt.destinations[batch.destination]
    everywhere = sum(it.count for it in sending if it.destination == batch.destination and it.tier in lanes)
    configured = destination.max_streaming_requests if batch.tier == STREAM else destination.max_concurrent_requests
    return everywhere < destination_state.concurrency(row, configured)


def _slots(rt: Runtime, tier: str) -> int:
    return {"urgent": rt.share.urgent, STREAM: rt.share.streaming}.get(tier) or rt.share.requests


def _own(rt: Runtime, sending: list[Sending], tier: str) -> list[Sending]:
    """Requests of this process that use slots of the same kind."""
    apart = {"urgent", STREAM} if rt.share.streaming else {"urgent"}
    return [it for it in sending if it.is_own and (it.tier == tier or not {it.tier, tier} & apart)]


# ── sending ─────────────────────────────────────────────────────────────────────────────────────────────


def _send_in_form(rt: Runtime, claimed: ClaimedBatch) -> AttemptResult:
    """Send; on a 401 for text that the two canonical JSON forms encode differently, once more in the other form."""
    result = _send(rt, claimed)
    if claimed.destination.canonical_json != "auto" or result.status != 401 or settle.plain_ascii(claimed.rows):
        return result
    other: Form = "utf8" if claimed.form == "ascii" else "ascii"
    batch, request_id = claimed.batch, new_request_id()
    # The second request is an attempt of its own, committed before it is sent like the first.
    with writing():
        settle.finish_attempt(result, "other_form", rt.now())
        url, number = claimed.destination.address, batch.attempts + 1
        attempt_id = attempts.start(batch.id, batch.destination, request_id, number, other, rt.now(), url=url)
    left = max(claimed.destination.receiver.timeout - (rt.now() - result.sent_at), 1.0)  # both within one lease
    return _send(rt, replace(claimed, attempt_id=attempt_id, request_id=request_id, form=other), timeout=left)


def _send(rt: Runtime, claimed: ClaimedBatch, timeout: float | None = None) -> AttemptResult:
    now, receiver, batch_id = rt.now(), claimed.destination.receiver, claimed.batch.batch_id
    answer = http.send_events(
        rt.net_to(claimed.destination),
        replace(receiver, timeout=timeout or receiver.timeout),
        [events.as_contract(row, clock.iso(now)) for row in claimed.rows],
        instance_id=rt.settings.csi.instance_id,
        batch_id=batch_id,
        request_id=claimed.request_id,
        form=claimed.form,
        now=now,
    )
    verdict = judge(answer, len(claimed.rows), rt.now(), receiver.profile.answers)
    return AttemptResult(claimed.attempt_id, claimed.form, now, answer, verdict)


def probe(rt: Runtime, name: str) -> list[Wake]:
    """Ask a receiver behind an open circuit with an empty batch: where dead letters have to go first, which have used
    up their attempts, while the canary waits for its next attempt, and where no event is due. No event's attempt is
    used. A receiver that does not know empty batches is asked with an event, be it a dead letter."""
    # Committed before the request: two tasks cannot both probe, and the write lock is free while the receiver answers.
    with writing():
        row, now = destinations.get(name), rt.now()
        if destination_state.current(row, now) != "half_open":
            return []
        if not rt.destinations[name].profile.takes_empty_batch:
            wakes = redrive.probe_with_first(rt, name)
            if not wakes:
                return flush.open_probe(rt, row)  # if nothing is pending either, the next event is the probe
            destination_state.write(row, destination_state.probed(row, now))
            return wakes
        destination_state.write(row, destination_state.probed(row, now))
        request = _start_empty(rt, row)
    result = _send_empty(rt, name, request)
    with writing():
        wakes = _settle_probe(rt, name, result)
    return flush.flush_due_lanes(rt, wakes)


def test(rt: Runtime, name: str) -> list[Wake]:
    """Ask a receiver whose circuit is closed with an empty batch, where `receiver_test` says that it is due."""
    with writing():
        row = destinations.get(name)
        if not receiver_test.is_due(rt, row) or not destinations.claim_test(row, rt.now()):
            return []
        request = _start_empty(rt, row)
    result = _send_empty(rt, name, request)
    with writing():
        receiver_test.settle_test(rt, name, result)
    return []


@dataclass(frozen=True)
class EmptyRequest:
    """A request without events, whose attempt is committed before it is sent."""

    attempt_id: int
    request_id: str
    form: Form
    sent_at: float


def _start_empty(rt: Runtime, row: DestinationRow) -> EmptyRequest:
    destination, request_id, now = rt.destinations[row.destination], new_request_id(), rt.now()
    form = destination.form(row.json_form)
    attempt_id = attempts.start(None, row.destination, request_id, 1, form, now, url=destination.address)
    return EmptyRequest(attempt_id, request_id, form, now)


def _send_empty(rt: Runtime, name: str, request: EmptyRequest) -> AttemptResult:
    now, batch_id = request.sent_at, batches.new_batch_id(request.sent_at)
    body = canonical(http.envelope(rt.settings.csi.instance_id, batch_id, []), request.form)
    destination = rt.destinations[name]
    receiver, net = destination.receiver, rt.net_to(destination)
    answer = http.send(net, receiver, body, message_id=batch_id, request_id=request.request_id, now=now)
    return AttemptResult(request.attempt_id, request.form, now, answer, judge(answer, 0, rt.now()))


def _settle_probe(rt: Runtime, name: str, result: AttemptResult) -> list[Wake]:
    row, now, verdict = settle.note_seen(name, result.answer), rt.now(), result.verdict
    if isinstance(verdict, Delivered | PerEvent | Refused):  # a receiver that refuses an empty batch is reachable
        settle.finish_attempt(result, "delivered", now)
        accepted = isinstance(verdict, Delivered | PerEvent)
        return (
            redrive.probe_with_first(rt, name)
            # One event that uses no attempt: a receiver that accepts empty batches may still refuse events.
            or (flush.open_probe(rt, row) if batches.is_unsettled(row.canary) else [])
            or settle.note_success(rt, row, result.sent_at, accepted=accepted)
        )
    settle.finish_attempt(result, "probe_failed", now, verdict.reason)
    after = destination_state.failed(row, now, verdict.reason)
    if isinstance(verdict, Throttled):
        after = destination_state.throttled(after, now, now + verdict.seconds, verdict.reason)
    destination_state.write(row, after)
    return []
