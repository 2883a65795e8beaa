"""The search for the guilty event of a refused batch: halve, ask about one half, keep the innocent together.

A batch of 50 with one bad event takes eight requests: the whole, six halves, and everything innocent in one (DECISIONS
25). No event dies without its own refusal, or that of a pair whose other half was accepted: a receiver may refuse a
batch for its length alone.
"""

from collections.abc import Sequence

from csi.pipeline.wake import Wake
from csi.store import batches, outbox
from csi.store.batches import Batch
from csi.store.events import StoredEvent

WAIT_SECONDS = 60.0
"""A part that waits for the search goes out by itself after this long, should the search be lost with its process."""


def halve(batch: Batch, rows: Sequence[StoredEvent], now: float, *, refused: str | None = None) -> list[Wake]:
    """Ask about the first half; the second waits for the answer. `refused`: why this very batch was refused."""
    middle = (len(rows) + 1) // 2
    first = batches.split_off(batch, [row.id for row in rows[:middle]], now)
    proof = refused if len(rows) == 2 else None
    second = batches.split_off(batch, [row.id for row in rows[middle:]], now, wait=WAIT_SECONDS, proof=proof)
    batches.tie(first, sibling=second, rest=batch.rest)
    return [Wake("deliver", first)]


def halve_both(batch: Batch, rows: Sequence[StoredEvent], now: float) -> list[Wake]:
    """Too large as it was: both halves go out."""
    middle = (len(rows) + 1) // 2
    parts = [batches.split_off(batch, [row.id for row in half], now) for half in (rows[:middle], rows[middle:])]
    return [Wake("deliver", part) for part in parts]


def clear_sibling(batch: Batch, now: float) -> Batch:
    """This half was refused, so the other seems innocent: it joins the rest. Returns the batch with its new rest."""
    if batch.sibling is None:
        return batch
    rest = _join(batch.sibling, batch.rest, now)
    batches.postpone(rest, now + WAIT_SECONDS)
    return batches.with_rest(batch, rest)


def _join(part: int, rest: int | None, now: float) -> int:
    """Put the events of one waiting part into another. Returns where they are: a rest that was sent or dissolved
    meanwhile takes nobody in."""
    # Postponing it holds its row: until this transaction ends, nobody can send or dissolve it.
    if rest is None or not batches.postpone(rest, now + WAIT_SECONDS) or not batches.take_waiting(part, "split", now):
        return part
    outbox.move([row.id for row in outbox.contents(part)], part, rest)
    return rest


def blame_sibling(batch: Batch, now: float) -> tuple[list[Wake], Batch | None]:
    """This half was accepted, so the other is guilty. Returns what follows, and a batch that is proven to be guilty."""
    waiting = batches.find(batch.sibling) if batch.sibling else None
    if waiting is None or waiting.state != "ready":
        return [], None
    if waiting.size == 1 and waiting.proof is None:
        batches.tie(waiting.id, sibling=None, rest=batch.rest)
        batches.hurry(waiting.id, now)
        return [Wake("deliver", waiting.id)], None
    taken = batches.take_waiting(waiting.id, "dead" if waiting.size == 1 else "split", now)
    if taken is None:
        return [], None
    taken = batches.with_rest(taken, batch.rest)
    if taken.size == 1:
        return end_search(taken, now), taken
    return halve(taken, outbox.contents(taken.id), now), None


def end_search(batch: Batch, now: float) -> list[Wake]:
    """The guilty event is found: everything innocent goes out together."""
    if batch.rest is None:
        return []
    batches.hurry(batch.rest, now)
    return [Wake("deliver", batch.rest)]
