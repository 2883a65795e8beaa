"""Step five: one batch, one signed request. What its answer means is settled in `csi.pipeline.settle`."""

from dataclasses import dataclass, replace

from csi import clock
from csi.config.settings import STREAM
from csi.emitter import http
from csi.emitter.destination import Destination
from csi.emitter.envelope import envelope
from csi.emitter.verdict import Delivered, Pause, PerEvent, Refused, judge
from csi.exclusive import SENDING
from csi.ingester.signature import Form, new_request_id
from csi.pipeline import destination_state, redrive, settle
from csi.pipeline.flush import fill
from csi.pipeline.settle import Held, RetryAt, Sent, Settling
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import attempts, batches, destinations, events, outbox
from csi.store.batches import Batch, Sending
from csi.store.db import at, is_postgres, writing
from csi.store.destinations import Endpoint

LEASE_MARGIN = 10.0
_NOWHERE = Endpoint("")


@dataclass(frozen=True)
class Carried:
    """A batch that was sent and settled: what has to be woken, when it is due again should it have failed, and the
    batch that was taken to its place."""

    wakes: list[Wake]
    retry: RetryAt | None = None
    following: Held | None = None


def deliver(rt: Runtime, batch_id: int) -> list[Wake] | RetryAt:
    """Send one batch, if it is due and the gate lets it through, and settle it."""
    held = take(rt, batch_id)
    if held is None:
        return []
    done = carry(rt, held, go_on=False)
    return done.retry or done.wakes


def take(rt: Runtime, batch_id: int) -> Held | None:
    """Claim the batch and write the attempt, in one commit before anything is sent."""
    with at(SENDING), writing():
        return _claim(rt, batch_id)


def carry(rt: Runtime, held: Held, *, go_on: bool) -> Carried:
    """Send a batch that was taken, and settle it. With `go_on` the next one that waits for its place is taken in the
    same commit: in a flood that is one commit for an event instead of three."""
    with at(SENDING):
        return _carry(rt, held, go_on=go_on)


def _carry(rt: Runtime, held: Held, *, go_on: bool) -> Carried:
    sent = _send_in_form(rt, held)
    with writing():
        result = settle.settle(rt, Settling(held, sent, destinations.get(held.batch.destination), rt.now()))
        if isinstance(result, RetryAt):
            return Carried(_wake_next(rt, held.batch), retry=result)
        return _pass_on(rt, held.batch, result, go_on=go_on)


def _pass_on(rt: Runtime, batch: Batch, wakes: list[Wake], *, go_on: bool) -> Carried:
    """The place is free: fill the lane up, and take or wake what comes next. On PostgreSQL a lane is filled in a
    transaction of its own: one that waits for a lane's lock must not hold the receiver's row meanwhile."""
    lanes = [] if is_postgres() else [wake for wake in wakes if wake.step == "flush"]
    rest = [wake for wake in wakes if wake not in lanes]
    opened = [wake for lane in lanes for wake in fill(rt, str(lane.key))]
    if not go_on:
        return Carried([*rest, *opened, *_wake_next(rt, batch)])
    following = _claim_next(rt, batch)
    others = [wake for wake in opened if following is None or wake.key != following.batch.id]
    return Carried([*rest, *others[: _free_places(rt, batch)]], following=following)


def _claim_next(rt: Runtime, batch: Batch) -> Held | None:
    number = _next(rt, batch)
    return None if number is None else _claim(rt, number)


def _wake_next(rt: Runtime, batch: Batch) -> list[Wake]:
    number = _next(rt, batch)
    return [] if number is None else [Wake("deliver", number, urgent=batch.tier == "urgent")]


def _next(rt: Runtime, batch: Batch) -> int | None:
    return batches.next_ready(batch.destination, rt.now(), urgent=batch.tier == "urgent")


def _free_places(rt: Runtime, batch: Batch) -> int:
    """How many threads could take a batch up. Whoever ends takes the next one by himself."""
    return max(_places(rt, batch.tier) - sum(it.count for it in _own(batches.sending(rt.now()), batch.tier)), 0)


def probe(rt: Runtime, name: str) -> list[Wake]:
    """Ask an absent receiver with an empty batch, where dead letters have to go first.

    They have used up their attempts: none of them is sent again before somebody answers.
    """
    destination, now = rt.destinations[name], rt.now()
    with writing():
        endpoint = destinations.get(name)
        if destination_state.look(endpoint, now) != "probe":
            return []
        destination_state.note_probe(endpoint, now)
        form, request_id = _form(destination, endpoint), new_request_id()
        attempt_id = attempts.start(None, name, request_id, 1, form, now)
    batch_id = batches.new_batch_id(now)
    body = http.encode(envelope(rt.settings.csi.instance_id, batch_id, []), form)
    answer = http.send(rt.net, destination.receiver, body, batch_id=batch_id, request_id=request_id, now=now)
    verdict = judge(answer, 0, rt.now())
    took = isinstance(verdict, Delivered | PerEvent)
    with writing():
        sent = Sent(attempt_id, form, now, answer, verdict)
        if not isinstance(verdict, Delivered | PerEvent | Refused):  # refusing an empty batch is an answer, too
            settle.finish_attempt(sent, "probe_failed", rt.now(), verdict.reason)
            destination_state.note_failure(destinations.get(name), rt.now(), verdict.reason, opens=False)
            if isinstance(verdict, Pause):
                destination_state.note_pause(
                    destinations.get(name), rt.now(), rt.now() + verdict.seconds, verdict.reason
                )
            return []
        settle.finish_attempt(sent, "delivered", rt.now())
        return redrive.ask_with_first(rt, name) or settle.note_success(rt, destinations.get(name), now, took=took)


def _claim(rt: Runtime, batch_id: int) -> Held | None:
    """None: it is not its turn, or somebody else has it."""
    now = rt.now()
    found, endpoint = _may_send(rt, batch_id, now)
    if found is None:
        return None
    destination = rt.destinations[found.destination]
    batch = batches.claim(batch_id, now, destination.receiver.timeout + LEASE_MARGIN)
    if batch is None:
        return None
    if batch.crashes:
        attempts.interrupt(batch.id, now)
    rows = outbox.contents(batch.id)
    if batch.crashes >= settle.MAX_CRASHES or not rows:
        settle.set_aside(batch, rows, now)
        return None
    form, request_id = _form(destination, endpoint), new_request_id()
    attempt_id = attempts.start(batch.id, batch.destination, request_id, batch.attempts + 1, form, now)
    return Held(batch, rows, destination, attempt_id, request_id, form)


def _may_send(rt: Runtime, batch_id: int, now: float) -> tuple[Batch | None, Endpoint]:
    """The batch, if the gate lets it through and there is a place for it, and its receiver's row. One that may not go
    is put off or dissolved, not lost."""
    batch = batches.find(batch_id)
    if batch is None or batch.state not in batches.UNSETTLED or batch.destination not in rt.destinations:
        return None, _NOWHERE
    endpoint = destinations.get(batch.destination)
    return (batch if _passes(rt, batch, endpoint, now) else None), endpoint


def _passes(rt: Runtime, batch: Batch, endpoint: Endpoint, now: float) -> bool:
    if not rt.settings.features.delivery:
        return False
    state = destination_state.look(endpoint, now)
    if state in ("paused", "held"):
        batches.put_off(batch, endpoint.paused_until or now)
        return False
    if state != "open" and not batch.probe:
        batches.release_waiting(batch.destination, keep=endpoint.canary, now=now)
        return batch.id == endpoint.canary
    return _has_place(rt, batch, endpoint, now)


def _has_place(rt: Runtime, batch: Batch, endpoint: Endpoint, now: float) -> bool:
    """Urgent has places of its own: no other lane can take them, and it takes none of theirs."""
    sending, places = batches.sending(now), _places(rt, batch.tier)
    ours = _own(sending, batch.tier)
    here = sum(it.count for it in ours if it.destination == batch.destination)
    if sum(it.count for it in ours) >= places or here >= _fair_part(places, rt):
        return False
    together = settle.TOGETHER[batch.tier]
    there = sum(it.count for it in sending if it.destination == batch.destination and it.tier in together)
    return there < destination_state.limit(endpoint, _most_at_once(rt.destinations[batch.destination], batch.tier))


def _places(rt: Runtime, tier: str) -> int:
    return rt.share.urgent if tier == "urgent" else rt.share.requests


def _own(sending: list[Sending], tier: str) -> list[Sending]:
    """Requests of this process that take places of the same kind."""
    return [it for it in sending if it.is_own and (it.tier == "urgent") == (tier == "urgent")]


def _fair_part(places: int, rt: Runtime) -> int:
    """One of several receivers leaves a place for the others: a slow one must not hold them up."""
    return places if len(rt.destinations) == 1 else max(places - 1, 1)


def _most_at_once(destination: Destination, lane: str) -> int:
    """Requests that this receiver gets at once, from all workers together."""
    return destination.max_streaming_requests if lane == STREAM else destination.max_concurrent_requests


def _send_in_form(rt: Runtime, held: Held) -> Sent:
    """Send; on a 401 for text that the two canonical forms write differently, once more in the other (DECISIONS 1)."""
    sent = _send(rt, held, held.attempt_id, held.request_id, held.form)
    if held.destination.canonical_json != "auto" or sent.status != 401 or settle.plain_ascii(held.rows):
        return sent
    other: Form = "utf8" if held.form == "ascii" else "ascii"
    with writing():
        settle.finish_attempt(sent, "other_form", rt.now())
        request_id = new_request_id()
        attempt_id = attempts.start(
            held.batch.id, held.batch.destination, request_id, held.batch.attempts + 1, other, rt.now()
        )
    left = max(held.destination.receiver.timeout - (rt.now() - sent.at), 1.0)  # both within one lease
    return _send(rt, held, attempt_id, request_id, other, timeout=left)


def _send(rt: Runtime, held: Held, attempt_id: int, request_id: str, form: Form, timeout: float | None = None) -> Sent:
    now, receiver = rt.now(), held.destination.receiver
    contents = [events.as_contract(row, clock.iso(now)) for row in held.rows]
    batch_id = held.batch.batch_id
    body = http.encode(envelope(rt.settings.csi.instance_id, batch_id, contents), form)
    receiver = replace(receiver, timeout=timeout or receiver.timeout)
    answer = http.send(rt.net, receiver, body, batch_id=batch_id, request_id=request_id, now=now)
    return Sent(attempt_id, form, now, answer, judge(answer, len(held.rows), rt.now()))


def _form(destination: Destination, endpoint: Endpoint) -> Form:
    setting = destination.canonical_json
    if setting != "auto":
        return setting
    return "utf8" if endpoint.form == "utf8" else "ascii"
