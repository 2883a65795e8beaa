"""Release the leases of a process: at its shutdown, or when the next one starts after it died."""

from typing import Any

from csi.store import attempts, leadership
from csi.store.catalog import jobs
from csi.store.db import OWNER, changed, writing
from csi.store.models import BatchModel, InboxItem, Watch

_SCHEDULED = {
    "watches": ("next_poll_at", "wake_at", "lease_until"),
    "inbox": ("wake_at", "lease_until"),
    "outbox": ("due_at",),
    "batches": ("next_attempt_at", "wake_at", "lease_until"),
    "destinations": ("next_probe_at", "throttled_until"),
    "jobs": ("scheduled_at", "lease_until"),
}


def release_own(now: float) -> int:
    """At shutdown: unfinished work of this process is due again at once."""
    with writing():
        leadership.release()
        held = _held_batches(f"{OWNER}.", now)
        batches = (
            BatchModel.update(state="ready", lease_token=None, lease_until=None, wake_at=now).where(held).execute()
        )
        items = (InboxItem.state == "new") & InboxItem.lease_token.startswith(f"{OWNER}.")
        given_back = InboxItem.update(lease_token=None, lease_until=None, wake_at=now).where(items).execute()
        return int(batches) + int(given_back) + _free_watches(f"{OWNER}.", now) + jobs.release_own(now)


def release_all(now: float) -> int:
    """At the start of the only worker: every lease belongs to a process that is gone."""
    with writing():
        # Expired, not deleted: the next claim sees an expired lease and counts one crash for the batch.
        batches = BatchModel.update(lease_until=now - 1, wake_at=now).where(_held_batches("", now)).execute()
        freed = int(batches) + _end_items(now) + _free_watches("", now) + jobs.requeue_all(now)
        _wake_due_watches(now)
        return freed


def shift_times(seconds: float, now: float) -> int:
    """The clock was set back by this much: move future times back, so that the waits keep their length. Returns the
    number of rows."""
    with writing():
        return sum(
            changed(f"UPDATE {table} SET {column} = {column} - ? WHERE {column} > ?", seconds, now)
            for table, columns in _SCHEDULED.items()
            for column in columns
        )


def _held_batches(prefix: str, now: float) -> Any:
    held = (BatchModel.state == "sending") & BatchModel.lease_token.startswith(prefix)
    for row in BatchModel.select(BatchModel.id).where(held):
        attempts.interrupt(row.id, now)
    return held


def _end_items(now: float) -> int:
    held = (InboxItem.state == "new") & InboxItem.lease_token.is_null(False)
    return int(InboxItem.update(lease_until=now - 1, wake_at=now).where(held).execute())


def _wake_due_watches(now: float) -> None:
    """Wake-ups that the process had taken from the queue died with it: what is due is woken now. What is due later has
    its wake-up in the queue's schedule."""
    due = (Watch.next_poll_at <= now) & (Watch.wake_at > Watch.next_poll_at)
    Watch.update(wake_at=Watch.next_poll_at).where(due).execute()


def _free_watches(prefix: str, now: float) -> int:
    held = Watch.lease_token.startswith(prefix)
    return int(Watch.update(lease_until=None, lease_token=None, wake_at=now).where(held).execute())
