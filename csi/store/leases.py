"""The leader's lease among workers that share a database; and releasing all leases of a process that ended."""

from csi.store import attempts
from csi.store.catalog import jobs
from csi.store.db import OWNER, changed, column, fetch, is_postgres, run, writing

_SCHEDULED = {
    "watches": ("next_poll_at", "wake_at", "lease_until"),
    "inbox": ("wake_at", "lease_until"),
    "outbox": ("due_at",),
    "batches": ("next_attempt_at", "wake_at", "lease_until"),
    "destinations": ("next_probe_at", "throttled_until"),
    "jobs": ("scheduled_at", "lease_until"),
    "subscriptions": ("due_at", "expires_at", "lease_until"),
    "pushed_items": ("due_at",),
    "awaited_streams": ("due_at", "lease_until"),
    "inbound_messages": ("wake_at", "lease_until"),
}
LEADER_SECONDS = 4.0
"""How long a role is vacant at most after its holder died."""

# A lease that ends later than any could was written by a clock that is ahead: it is ignored.
_TAKE = """
    INSERT INTO leadership (role, holder, lease_until) VALUES (?, ?, ?)
    ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
    WHERE leadership.holder = excluded.holder OR leadership.lease_until < ? OR leadership.lease_until > ?
"""

_NO_LEASE = "lease_token = NULL, lease_until = NULL"
_FREE = "lease_token = NULL, lease_until = NULL, wake_at = ?"
_SENDING = "state = 'sending' AND lease_token LIKE ?"


def release_own(now: float) -> int:
    """At shutdown: unfinished work of this process is due again at once."""
    own = f"{OWNER}.%"
    with writing():
        run("DELETE FROM leadership WHERE holder = ?", OWNER)
        _interrupt_attempts(own, now)
        if not is_postgres():  # a database in a file has one worker: tests and probes that are still sent are its own
            attempts.interrupt_lone(now)
        freed = changed(f"UPDATE batches SET state = 'ready', {_FREE} WHERE {_SENDING}", now, own)
        freed += changed(f"UPDATE inbox SET {_FREE} WHERE state = 'new' AND lease_token LIKE ?", now, own)
        freed += changed(f"UPDATE watches SET {_FREE} WHERE lease_token LIKE ?", now, own)
        freed += changed(f"UPDATE inbound_messages SET {_FREE} WHERE state = 'new' AND lease_token LIKE ?", now, own)
        freed += changed(f"UPDATE subscriptions SET {_NO_LEASE} WHERE lease_token LIKE ?", own)
        freed += changed(f"UPDATE awaited_streams SET {_NO_LEASE} WHERE lease_token LIKE ?", own)
        return freed + jobs.release_own(now)


def release_all(now: float) -> int:
    """At the start of the only worker: every lease belongs to a process that is gone."""
    # Leases of batches and items expire and are not deleted: the next claim sees that and counts one crash.
    end = "SET lease_until = ?, wake_at = ? WHERE"
    with writing():
        _interrupt_attempts("%", now)
        attempts.interrupt_lone(now)
        freed = changed(f"UPDATE batches {end} {_SENDING}", now - 1, now, "%")
        freed += changed(f"UPDATE inbox {end} state = 'new' AND lease_token IS NOT NULL", now - 1, now)
        freed += changed(f"UPDATE watches SET {_FREE} WHERE lease_token IS NOT NULL", now)
        freed += changed(f"UPDATE inbound_messages {end} state = 'new' AND lease_token IS NOT NULL", now - 1, now)
        freed += changed(f"UPDATE subscriptions SET {_NO_LEASE} WHERE lease_token IS NOT NULL")
        freed += changed(f"UPDATE awaited_streams SET {_NO_LEASE} WHERE lease_token IS NOT NULL")
        freed += jobs.requeue_all(now)
        # Wake-ups that the process had taken from the queue died with it: what is due is woken now. What is due later
        # has its wake-up in the queue's schedule.
        run("UPDATE watches SET wake_at = next_poll_at WHERE next_poll_at <= ? AND wake_at > next_poll_at", now)
        return freed


def shift_times(seconds: float, now: float) -> int:
    """The clock was set back by this much: move future times back, so that the waits keep their length. Returns the
    number of rows."""
    with writing():
        return sum(
            changed(f"UPDATE {table} SET {name} = {name} - ? WHERE {name} > ?", seconds, now)
            for table, names in _SCHEDULED.items()
            for name in names
        )


def hold_leadership(role: str, now: float, seconds: float = LEADER_SECONDS, holder: str = OWNER) -> bool:
    """Take the role or extend its lease; writes only when half of the lease is used. False: another worker holds it."""
    found = fetch("SELECT holder, lease_until FROM leadership WHERE role = ?", role)
    if found and now <= found[0][1] <= now + 2 * seconds:
        owner, until = found[0]
        if owner != holder or until > now + seconds / 2:
            return bool(owner == holder)
    return bool(changed(_TAKE, role, holder, now + seconds, now, now + 2 * seconds))


def _interrupt_attempts(holder: str, now: float) -> None:
    for batch_id in column(f"SELECT id FROM batches WHERE {_SENDING}", holder):
        attempts.interrupt(batch_id, now)
