"""Messages at set times: up to which time each was sent, so that a restart does not repeat it."""

from csi.store.db import changed, run


def claim(name: str, moment: float, now: float, hold_seconds: float) -> bool:
    """Whether this worker sends the message of that moment now. False: it was sent, or another worker sends it.

    The first call of a name returns False: a new installation sends nothing about the time before it. A claimed
    message is claimed again after `hold_seconds`, unless it was marked as done.
    """
    run("INSERT INTO scheduled_messages (name, done_to) VALUES (?, ?) ON CONFLICT DO NOTHING", name, now)
    # After the wall clock was set back.
    run("UPDATE scheduled_messages SET done_to = ?, claimed_until = 0 WHERE name = ? AND done_to > ?", now, name, now)
    sql = "UPDATE scheduled_messages SET claimed_until = ? WHERE name = ? AND done_to < ? AND claimed_until <= ?"
    return changed(sql, now + hold_seconds, name, moment, now) == 1


def done(name: str, moment: float) -> None:
    run("UPDATE scheduled_messages SET done_to = ?, claimed_until = 0 WHERE name = ?", moment, name)
