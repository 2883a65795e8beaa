"""When a receiver is tested with an empty signed batch, and what the answer means.

At the worker's start, after each reload, hourly when nothing is sent, and a minute after a failure that no batch
repeats. An open circuit has its own probes. The row remembers a test that is wanted until it has ended. A receiver that
does not know empty batches is not tested: its first event is the test, and `untested` is its state until then.
"""

from dataclasses import replace

from csi.emitter.destination import LANES
from csi.emitter.verdict import Delivered, PerEvent, Refused, Throttled, Transient
from csi.pipeline import destination_state, settle
from csi.pipeline.settle import AttemptResult
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, destinations
from csi.store.db import writing
from csi.store.destinations import DestinationRow

IDLE_SECONDS = 3600.0
"""Without any answer for this long, the receiver is tested."""
AGAIN_SECONDS = 60.0
LEASE_MARGIN = 10.0
"""Added to the request timeout: a test that has not ended by then is sent again."""


def request_all(rt: Runtime) -> None:
    """Each destination that knows empty batches is tested, whatever is sent to it meanwhile: its address or its secret
    may be new."""
    with writing():
        for name, destination in rt.destinations.items():
            if destination.profile.takes_empty_batch:
                destinations.request_test(name, rt.now())


def due_tests(rt: Runtime) -> list[Wake]:
    return [Wake("test", name) for name in rt.destinations if is_due(rt, destinations.get(name))]


def is_due(rt: Runtime, row: DestinationRow) -> bool:
    """Never while delivery is off or paused, and not where deliveries or probes are the test."""
    now, destination = rt.now(), rt.destinations.get(row.destination)
    if destination is None or not rt.settings.features.delivery or not destination.profile.takes_empty_batch:
        return False
    if not is_wanted(row, now, destination.receiver.timeout + LEASE_MARGIN):
        return False
    if destination_state.current(row, now) != "accepting":
        return False
    return row.test_requested_at is not None or not _is_sending(row.destination)


def is_wanted(row: DestinationRow, now: float, lease: float) -> bool:
    """Pure. A row that was never contacted waits for the worker's start, which requests a test."""
    tested_at = row.tested_at or 0.0
    if row.test_requested_at is not None:
        return row.test_requested_at > tested_at or not 0 <= now - tested_at < lease
    if row.failing_since is not None:
        return now - max(tested_at, row.last_failure_at or 0.0) >= AGAIN_SECONDS
    answered_at = max(row.answered_at or 0.0, row.last_success_at or 0.0)
    return row.was_contacted and now - max(tested_at, answered_at) >= IDLE_SECONDS


def settle_test(rt: Runtime, name: str, result: AttemptResult) -> None:
    """A failed test opens the circuit, so that no event dies of what is known. Batches that are under way decide
    themselves about what may pass."""
    row, now, verdict = settle.note_seen(name, result.answer), rt.now(), result.verdict
    is_new = row.test_requested_at is not None and row.test_requested_at > result.sent_at
    after = replace(row, test_requested_at=row.test_requested_at if is_new else None)
    if isinstance(verdict, Delivered | PerEvent | Refused):  # a receiver that refuses an empty batch is reachable
        settle.finish_attempt(result, "test_ok", now)
        if row.circuit == "closed":
            after = destination_state.tested(after, now, events_fail=destinations.failing_batches(row) > 0)
        destination_state.write(row, after)
        return
    settle.finish_attempt(result, "test_failed", now, verdict.reason)
    if isinstance(verdict, Throttled):
        after = destination_state.throttled(after, now, now + verdict.seconds, verdict.reason)
    elif row.circuit == "open" or (isinstance(verdict, Transient) and _is_sending(name)):
        after = destination_state.failed(after, now, verdict.reason)
    else:
        after = destination_state.tripped(after, now, verdict.reason)
        batches.release_waiting(name, keep=None, now=now)
    destination_state.write(row, after)


def _is_sending(name: str) -> bool:
    return any(batches.unsettled_count(name, tier) for tier in LANES)
