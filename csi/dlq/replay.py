"""Dead letters on their way back: the same event, the same id, once more through the line."""

from collections.abc import Sequence

from csi.dlq import store
from csi.store import events
from csi.store.db import writing
from csi.store.models import DeadLetter


def replay(letters: Sequence[DeadLetter], now: float) -> int:
    """Send these again. Returns how many events are pending now; letters without an event stay as they are."""
    with writing():
        revived = set(events.revive([letter.event_id for letter in letters], due_at=now))
        ids = [letter.id for letter in letters if letter.event_id in revived]
        if ids:
            DeadLetter.update(state="replaying", rounds=DeadLetter.rounds + 1).where(
                DeadLetter.id.in_(ids) & (DeadLetter.state == "open")
            ).execute()
        return len(revived)


def redrive(now: float, *, max_rounds: int, limit: int = 50) -> int:
    """Send again what died of the receiver's fault, oldest first, a little at a time (DECISIONS 24)."""
    letters = store.redrivable(max_rounds, limit)
    return replay(letters, now) if letters else 0
