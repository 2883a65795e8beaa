"""What happens next: planned polls, unsettled batches, the inbox, and the depth of the worker's queue."""

from dataclasses import dataclass, replace

from csi.runtime import Runtime
from csi.status.watch_states import states_by_id
from csi.status.worker import WorkerStatus, worker_status
from csi.store.queries import backlog_rows
from csi.store.queries.backlog_rows import Inbox, PlannedPoll, UnsettledBatch

SHOWN = 100
SOON = 60.0


@dataclass(frozen=True)
class Upcoming:
    """The worker's next steps, as its rows say."""

    now: float
    worker: WorkerStatus
    due: int
    soon: int
    """Watches that fall due within a minute, those that are due included."""
    polling: int
    polls: tuple[PlannedPoll, ...]
    inbox: Inbox
    batches: tuple[UnsettledBatch, ...]
    unsettled: dict[str, int]


def upcoming(rt: Runtime, limit: int = SHOWN) -> Upcoming:
    now = rt.now()
    due, soon = backlog_rows.due_counts(now, SOON)
    planned = backlog_rows.planned_polls(limit)
    states = states_by_id(rt, [poll.id for poll in planned])
    return Upcoming(
        now=now,
        worker=worker_status(rt),
        due=due,
        soon=soon,
        polling=backlog_rows.polls_running(now),
        polls=tuple(replace(poll, health=states.get(poll.id, poll.health)) for poll in planned),
        inbox=backlog_rows.inbox(),
        batches=tuple(backlog_rows.unsettled_batches(limit)),
        unsettled=backlog_rows.unsettled_counts(),
    )
