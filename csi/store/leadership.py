"""Duties that one worker does for all that share a database: whoever holds the lease, until it runs out."""

from csi.store.db import OWNER, changed, fetch, run

LEASE_SECONDS = 4.0
"""How long nobody plans after the one who did has died."""

# A lease that ends later than any of ours could was given by a clock that is ahead: it binds nobody.
_TAKE = """
    INSERT INTO duties (name, holder, lease_until) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
    WHERE duties.holder = excluded.holder OR duties.lease_until < ? OR duties.lease_until > ?
"""


def hold(name: str, now: float, seconds: float = LEASE_SECONDS, holder: str = OWNER) -> bool:
    """Take the duty, or go on with it. False: somebody else has it. Writes only when half of the lease is used."""
    found = fetch("SELECT holder, lease_until FROM duties WHERE name = ?", name)
    if found and now <= found[0][1] <= now + 2 * seconds:
        owner, until = found[0]
        if owner != holder or until > now + seconds / 2:
            return bool(owner == holder)
    return bool(changed(_TAKE, name, holder, now + seconds, now, now + 2 * seconds))


def give_up(name: str | None = None, holder: str = OWNER) -> None:
    """This one, or all that are held: the next who asks has it at once."""
    which, params = (" AND name = ?", (name,)) if name else ("", ())
    run(f"DELETE FROM duties WHERE holder = ?{which}", holder, *params)
