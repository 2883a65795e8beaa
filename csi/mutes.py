"""Mutes: for a set time, operators are not notified of any problem, or of the problems of one id. The ingester and
processing each have such a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.errors import CsiError
from csi.sql import SqlDatabase, columns

KEPT = 1_000
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 30 * 86_400.0


class CannotMute(CsiError):
    """There is no alert of this name, or the time is too short or too long."""


def check_mute(seconds: float, problem: str | None, known: Sequence[str]) -> None:
    """CannotMute unless the time and the alert can be muted."""
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise CannotMute("a mute lasts from 1 minute to 30 days")
    if problem is not None and problem not in known:
        raise CannotMute(f"there is no alert of this name; known are {', '.join(known)}")


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


class MuteTable:
    """The table `mutes` of one database. The caller opens the transactions."""

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

    def add(self, problem: str | None, reason: str | None, *, by: str, now: float, until: float) -> Mute:
        sql = "INSERT INTO mutes (problem, reason, created_by, since, until) VALUES (?, ?, ?, ?, ?) RETURNING id"
        mute_id = self._sql.number(sql, problem, reason, by, now, until)
        self._sql.run("DELETE FROM mutes WHERE id <= ?", mute_id - KEPT)
        return Mute(mute_id, problem, reason, by, now, until, None)

    def active(self, now: float) -> list[Mute]:
        """Oldest first."""
        sql = f"SELECT {columns(Mute)} FROM mutes WHERE ended_at IS NULL AND since <= ? AND until > ? ORDER BY id"
        return self._sql.fetch_all(Mute, sql, now, now)

    def end(self, now: float, mute_id: int | None = None) -> int:
        """End one mute, or every one. Returns how many were active."""
        one = "" if mute_id is None else " AND id = ?"
        sql = f"UPDATE mutes SET ended_at = ? WHERE ended_at IS NULL AND until > ?{one}"
        return self._sql.changed(sql, now, now, *(() if mute_id is None else (mute_id,)))
