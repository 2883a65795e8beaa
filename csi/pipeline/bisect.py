"""The search for the refused event of a batch: halve it, send one half, keep the cleared events together.

A batch of 50 with one bad event takes eight requests: the whole, six halves, and all cleared events in one. No event
becomes a dead letter without a refusal of its own, or that of a pair whose other event was accepted: a receiver may
refuse a batch for its length alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from csi.pipeline.wake import Wake
from csi.store import batches, outbox
from csi.store.batches import Batch
from csi.store.events import StoredEvent

WAIT_SECONDS = 60.0
"""A part that waits for the search is sent after this long, in case the search was lost with its process."""


def halve(batch: Batch, rows: Sequence[StoredEvent], now: float, *, refused: str | None = None) -> list[Wake]:
    """Send the first half; the second waits for the answer. `refused`: why this batch was refused."""
    middle = (len(rows) + 1) // 2
    first = batches.split_off(batch, [row.id for row in rows[:middle]], now)
    refusal = refused if len(rows) == 2 else None
    second = batches.split_off(batch, [row.id for row in rows[middle:]], now, wait=WAIT_SECONDS, refusal=refusal)
    batches.link_parts(first, sibling=second, cleared_id=batch.cleared_id)
    return [Wake("deliver", first)]


def halve_both(batch: Batch, rows: Sequence[StoredEvent], now: float) -> list[Wake]:
    """The request was too large: send both halves."""
    middle = (len(rows) + 1) // 2
    parts = [batches.split_off(batch, [row.id for row in half], now) for half in (rows[:middle], rows[middle:])]
    return [Wake("deliver", part) for part in parts]


def clear_sibling(batch: Batch, now: float) -> Batch:
    """This half was refused, so the other is cleared and joins the cleared events. Returns the batch with
    its new `cleared_id`."""
    if batch.sibling is None:
        return batch
    cleared_id = _join(batch.sibling, batch.cleared_id, now)
    batches.set_due(cleared_id, now + WAIT_SECONDS)
    return replace(batch, cleared_id=cleared_id)


def _join(part: int, cleared_id: int | None, now: float) -> int:
    """Move the events of one waiting part into the cleared ones. Returns the batch that has them: this part itself
    where the cleared events were sent or dissolved meanwhile."""
    # The update locks the row: until this transaction ends, no thread can send or dissolve the cleared events.
    if cleared_id is None or not batches.set_due(cleared_id, now + WAIT_SECONDS):
        return part
    if not batches.settle_waiting(part, "split", now):
        return part
    outbox.move([row.id for row in outbox.contents(part)], part, cleared_id)
    return cleared_id


def search_sibling(batch: Batch, now: float) -> tuple[list[Wake], Batch | None]:
    """This half was accepted, so the refused event is in the other. Returns wake-ups, and the batch of a single event
    that is proven to be the refused one."""
    waiting = batches.find(batch.sibling) if batch.sibling else None
    if waiting is None or waiting.state != "ready":
        return [], None
    if waiting.size == 1 and waiting.refusal is None:
        batches.link_parts(waiting.id, sibling=None, cleared_id=batch.cleared_id)
        batches.set_due(waiting.id, now)
        return [Wake("deliver", waiting.id)], None
    settled = batches.settle_waiting(waiting.id, "dead" if waiting.size == 1 else "split", now)
    if settled is None:
        return [], None
    settled = replace(settled, cleared_id=batch.cleared_id)
    if settled.size == 1:
        return end_search(settled, now), settled
    return halve(settled, outbox.contents(settled.id), now), None


def end_search(batch: Batch, now: float) -> list[Wake]:
    """The refused event is found: send everything that was cleared, together."""
    if batch.cleared_id is None:
        return []
    batches.set_due(batch.cleared_id, now)
    return [Wake("deliver", batch.cleared_id)]
