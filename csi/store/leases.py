"""Giving back what a process held: at its orderly end, or for a dead one that was alone on this database."""

from typing import Any

from csi.store import attempts
from csi.store.db import OWNER, changed, writing
from csi.store.models import Batch, InboxItem, Watch

LONGEST_WAIT = 3700.0
"""Further than any Retry-After or tier's delay."""

LONGEST_LEASE = 120.0


def release_own(now: float) -> int:
    """At shutdown: work that did not finish is due again at once, for whoever comes next."""
    with writing():
        held = _held_batches(f"{OWNER}.", now)
        batches = Batch.update(state="ready", lease_token=None, lease_until=None, wake_at=now).where(held).execute()
        return int(batches) + _free_items(f"{OWNER}.", now) + _free_watches(f"{OWNER}.", now)


def release_all(now: float) -> int:
    """At the start of the only worker: every lease belongs to a process that is gone."""
    with writing():
        # Ended, not erased: the claim that follows finds an orphan and counts one crash for the batch.
        batches = Batch.update(lease_until=now - 1, wake_at=now).where(_held_batches("", now)).execute()
        return int(batches) + _free_items("", now) + _free_watches("", now)


def repair_times(now: float) -> int:
    """After the clock jumped back: what is further away than any rule allows is due now. Returns the rows."""
    with writing():
        return (
            changed(
                "UPDATE batches SET next_attempt_at = ?, wake_at = ? "
                "WHERE state IN ('ready', 'sending') AND state = 'ready' AND next_attempt_at > ?",
                now,
                now,
                now + LONGEST_WAIT,
            )
            + changed(
                "UPDATE batches SET lease_until = ?, wake_at = ? "
                "WHERE state IN ('ready', 'sending') AND state = 'sending' AND lease_until > ?",
                now - 1,
                now,
                now + LONGEST_LEASE,
            )
            + changed(
                "UPDATE inbox SET wake_at = ?, lease_until = NULL WHERE state = 'new' AND wake_at > ?",
                now,
                now + LONGEST_LEASE,
            )
            + changed("UPDATE outbox SET due_at = ? WHERE state = 'pending' AND due_at > ?", now, now + LONGEST_WAIT)
        )


def _held_batches(prefix: str, now: float) -> Any:
    held = (Batch.state == "sending") & Batch.lease_token.startswith(prefix)
    for row in Batch.select(Batch.id).where(held):
        attempts.interrupt(row.id, now)
    return held


def _free_items(prefix: str, now: float) -> int:
    held = (InboxItem.state == "new") & InboxItem.lease_token.startswith(prefix)
    return int(InboxItem.update(lease_until=None, wake_at=now).where(held).execute())


def _free_watches(prefix: str, now: float) -> int:
    held = Watch.lease_token.startswith(prefix)
    return int(Watch.update(lease_until=None, lease_token=None, wake_at=now).where(held).execute())
