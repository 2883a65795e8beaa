"""Troubles as rows: each is told once when it has lasted a while and once when it is over, also across restarts."""

from dataclasses import dataclass

from csi.store.db import changed, fetch, run

KEPT_SECONDS = 90 * 86_400.0

_COLUMNS = "id, name, subject, text, since, told_at, ended_at, end_told_at"


@dataclass(frozen=True)
class Noted:
    """A trouble as it was when its row was read."""

    id: int
    name: str
    subject: str
    text: str
    since: float
    told_at: float | None
    ended_at: float | None
    end_told_at: float | None


@dataclass(frozen=True)
class SourceTimes:
    """When a source was last read, and how often it should be."""

    source: str
    interval: float
    last_success_at: float | None


def note(name: str, subject: str, text: str, now: float) -> bool:
    """It is there. True: it was not known before. Its words are those of the last look."""
    if changed("UPDATE troubles SET text = ? WHERE name = ? AND subject = ? AND ended_at IS NULL", text, name, subject):
        return False
    sql = "INSERT INTO troubles (name, subject, text, since) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return bool(changed(sql, name, subject, text, now))


def end(trouble: Noted, now: float) -> bool:
    """It is over. One that nobody was told of leaves nothing to tell. False: somebody else has ended it."""
    if trouble.told_at is None:
        return bool(changed("DELETE FROM troubles WHERE id = ? AND told_at IS NULL", trouble.id))
    sql = "UPDATE troubles SET ended_at = ?, next_try_at = 0 WHERE id = ? AND ended_at IS NULL"
    return bool(changed(sql, now, trouble.id))


def lasting() -> list[Noted]:
    """Those that are not over, oldest first."""
    return _select("ended_at IS NULL ORDER BY id")


def latest(limit: int) -> list[Noted]:
    return _select("1 = 1 ORDER BY id DESC LIMIT ?", limit)


def claim_untold(now: float, since: float, hold_seconds: float) -> list[Noted]:
    """What has to be told now, each to one caller only; one that is not marked as told comes again after the hold."""
    wanted = (
        "next_try_at <= ? AND ((told_at IS NULL AND ended_at IS NULL AND since <= ?) "
        "OR (ended_at IS NOT NULL AND end_told_at IS NULL)) ORDER BY id"
    )
    claim = "UPDATE troubles SET next_try_at = ? WHERE id = ? AND next_try_at <= ?"
    return [row for row in _select(wanted, now, since) if changed(claim, now + hold_seconds, row.id, now)]


def mark_told(trouble: Noted, now: float) -> None:
    column = "told_at" if trouble.ended_at is None else "end_told_at"
    run(f"UPDATE troubles SET {column} = ?, next_try_at = 0 WHERE id = ?", now, trouble.id)


def forget_old(now: float) -> int:
    return changed("DELETE FROM troubles WHERE ended_at < ?", now - KEPT_SECONDS)


def source_times() -> list[SourceTimes]:
    """Of every source with active watches: the shortest interval promised, the last success of any of them."""
    sql = (
        "SELECT source, MIN(COALESCE(planned_interval, interval_seconds)), MAX(last_success_at) FROM watches "
        "WHERE state = 'active' GROUP BY source ORDER BY source"
    )
    return [SourceTimes(*row) for row in fetch(sql)]


def _select(rest: str, *values: object) -> list[Noted]:
    return [Noted(*row) for row in fetch(f"SELECT {_COLUMNS} FROM troubles WHERE {rest}", *values)]
