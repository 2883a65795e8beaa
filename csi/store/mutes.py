"""Mutes: for a set time, operators are not notified of any problem, or of the problems of one id."""

from dataclasses import dataclass

from csi.store.db import changed, columns, fetch_all, number, run

KEPT = 1_000


@dataclass(frozen=True)
class Mute:
    """`problem` None: all problems. `ended_at`: the operator ended it before `until`."""

    id: int
    problem: str | None
    reason: str | None
    created_by: str
    since: float
    until: float
    ended_at: float | None


def add(problem: str | None, reason: str | None, *, by: str, now: float, until: float) -> Mute:
    sql = "INSERT INTO mutes (problem, reason, created_by, since, until) VALUES (?, ?, ?, ?, ?) RETURNING id"
    mute_id = number(sql, problem, reason, by, now, until)
    run("DELETE FROM mutes WHERE id <= ?", mute_id - KEPT)
    return Mute(mute_id, problem, reason, by, now, until, None)


def active(now: float) -> list[Mute]:
    """Oldest first."""
    sql = f"SELECT {columns(Mute)} FROM mutes WHERE ended_at IS NULL AND since <= ? AND until > ? ORDER BY id"
    return fetch_all(Mute, sql, now, now)


def end(now: float, mute_id: int | None = None) -> int:
    """End one mute, or every one. Returns how many were active."""
    one = "" if mute_id is None else " AND id = ?"
    sql = f"UPDATE mutes SET ended_at = ? WHERE ended_at IS NULL AND until > ?{one}"
    return changed(sql, now, now, *(() if mute_id is None else (mute_id,)))
