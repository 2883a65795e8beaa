"""All watches for health checks: a row for each that a rule may find something at, totals of the ordinary ones."""

from dataclasses import dataclass

from csi.store.db import fetch_all
from csi.store.watches import TIMES, WatchTimes

IN_TIME_SECONDS = 120.0
"""The least time that a watch with a short interval gets to be read, or to begin a read that is due."""

DAY = 86_400.0

# `?`: the moment, and twice how many usual gaps without news make a watch quiet.
_WATCHES = f"""(SELECT {TIMES}, CAST(? AS DOUBLE PRECISION) AS moment, last_success_at - CASE
    WHEN CAST(? AS DOUBLE PRECISION) * usual_gap > {DAY} THEN CAST(? AS DOUBLE PRECISION) * usual_gap ELSE {DAY} END
    AS quiet_since FROM watches) AS w"""

# A row for each of 50,000 watches would make every health check last a second. What this condition accepts must give no
# rule of csi.status anything to report; what it refuses is judged by those rules alone, so it may refuse too much.
# `IS TRUE`: NULL, as of a watch that was never read, is not ordinary.
_ORDINARY = f"""(
    errors = 0 AND health = 'healthy' AND error_kind IS NULL AND gone_at IS NULL AND stale_since IS NULL
    AND first_read_at IS NOT NULL
    AND (ABS(moment - last_success_at) <= {IN_TIME_SECONDS} OR ABS(moment - last_success_at) <= 3 * interval_seconds
        OR ABS(moment - last_success_at) <= planned_interval + 60)
    AND (moment - next_poll_at <= {IN_TIME_SECONDS} OR moment - next_poll_at <= 3 * interval_seconds)
    AND (usual_gap IS NULL OR first_read_at >= quiet_since OR last_new_at >= quiet_since
        OR last_video_published_at >= quiet_since)
) IS TRUE"""


@dataclass(frozen=True)
class OrdinaryWatches:
    """The active watches of one source that were read in time, without an error or a long silence."""

    source: str
    number: int
    last_poll_at: float | None
    last_success_at: float
    last_new_at: float | None
    next_poll_at: float


@dataclass(frozen=True)
class WatchSurvey:
    """Every active watch: `others` one by one in the order of their ids, the ordinary ones as totals."""

    others: tuple[WatchTimes, ...]
    ordinary: tuple[OrdinaryWatches, ...]

    def sources(self) -> set[str]:
        return {one.source for one in self.others} | {one.source for one in self.ordinary}

    def of_source(self, name: str) -> "WatchSurvey":
        return WatchSurvey(
            tuple(one for one in self.others if one.source == name),
            tuple(one for one in self.ordinary if one.source == name),
        )


def survey(now: float, quiet_gaps: float, *, paused: bool = False) -> WatchSurvey:
    """`quiet_gaps`: how many usual gaps without news make a watch quiet. `paused`: paused ones are among the others."""
    values = (now, quiet_gaps, quiet_gaps)
    wanted = f"state = 'active' AND NOT {_ORDINARY}" + (" OR state = 'paused'" if paused else "")
    others = fetch_all(WatchTimes, f"SELECT {TIMES} FROM {_WATCHES} WHERE {wanted} ORDER BY id", *values)
    sql = f"""SELECT source, COUNT(*), MAX(last_poll_at), MAX(last_success_at), MAX(last_new_at), MIN(next_poll_at)
        FROM {_WATCHES} WHERE state = 'active' AND {_ORDINARY} GROUP BY source ORDER BY source"""
    return WatchSurvey(tuple(others), tuple(fetch_all(OrdinaryWatches, sql, *values)))
