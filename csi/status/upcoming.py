"""What happens next: reads that come, batches that travel, and how many wake-ups wait in the worker's queue."""

from dataclasses import dataclass

from csi.runtime import Runtime
from csi.store import heartbeats
from csi.store.heartbeats import Beat
from csi.store.queries import upcoming
from csi.store.queries.upcoming import Coming, Inbox, Travelling

SHOWN = 100
SOON = 60.0


@dataclass(frozen=True)
class Agenda:
    """The worker's next steps, as its rows say."""

    now: float
    worker: Beat | None
    due: int
    soon: int
    """Watches that fall due within a minute, those that are due included."""
    reading: int
    reads: tuple[Coming, ...]
    inbox: Inbox
    batches: tuple[Travelling, ...]
    unsettled: dict[str, int]


def agenda_of(rt: Runtime, limit: int = SHOWN) -> Agenda:
    now = rt.now()
    due, soon = upcoming.due_counts(now, SOON)
    return Agenda(
        now=now,
        worker=heartbeats.latest("worker"),
        due=due,
        soon=soon,
        reading=upcoming.being_read(now),
        reads=tuple(upcoming.coming_reads(limit)),
        inbox=upcoming.inbox(),
        batches=tuple(upcoming.travelling(limit)),
        unsettled=upcoming.unsettled(),
    )
