"""Dead letters on their way back: the same event, the same id, once more through the line."""

from collections.abc import Sequence

from csi.dlq import store
from csi.store import outbox
from csi.store.db import writing
from csi.store.models import DeadLetter


def replay(letters: Sequence[DeadLetter], now: float) -> int:
    """Send these again. Returns how many events are pending now; letters without an event stay as they are."""
    with writing():
        return sum(_send_again(letter, now) for letter in letters)


def _send_again(letter: DeadLetter, now: float) -> bool:
    taken = (
        DeadLetter.update(state="replaying", rounds=DeadLetter.rounds + 1)
        .where((DeadLetter.id == letter.id) & (DeadLetter.state == "open"))
        .execute()
    )
    if taken and outbox.put_again(letter.event_id, letter.destination, due_at=now):
        return True
    if taken:
        DeadLetter.update(state="open", rounds=letter.rounds).where(DeadLetter.id == letter.id).execute()
    return False


def redrive(destination: str, now: float, *, max_rounds: int, limit: int = 50) -> int:
    """Send again what died of the receiver's fault, oldest first, a little at a time (DECISIONS 24)."""
    letters = store.redrivable(destination, max_rounds, limit)
    return replay(letters, now) if letters else 0
