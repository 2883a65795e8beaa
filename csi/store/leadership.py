"""Leader roles: one of several workers that share a database holds a role until its lease expires."""

from csi.store.db import OWNER, changed, fetch

LEASE_SECONDS = 4.0
"""How long a role is vacant at most after its holder died."""

# A lease that ends later than any could was written by a clock that is ahead: it is ignored.
_TAKE = """
    INSERT INTO leadership (role, holder, lease_until) VALUES (?, ?, ?)
    ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
    WHERE leadership.holder = excluded.holder OR leadership.lease_until < ? OR leadership.lease_until > ?
"""


def hold(role: str, now: float, seconds: float = LEASE_SECONDS, holder: str = OWNER) -> bool:
    """Take the role or extend its lease; writes only when half of the lease is used. False: another worker holds it."""
    found = fetch("SELECT holder, lease_until FROM leadership WHERE role = ?", role)
    if found and now <= found[0][1] <= now + 2 * seconds:
        owner, until = found[0]
        if owner != holder or until > now + seconds / 2:
            return bool(owner == holder)
    return bool(changed(_TAKE, role, holder, now + seconds, now, now + 2 * seconds))
