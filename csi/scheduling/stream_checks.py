"""When an announced stream is looked at, until it begins. Pure."""

SOONEST, LATEST = 60.0, 21_600.0
"""Between two checks before the announced time: it may be moved."""
CLOSELY, HOURS = 1800.0, 21_600.0
"""After the announced time: every minute for CLOSELY, every five minutes until HOURS, then once an hour."""
GIVEN_UP = 7 * 86_400.0
MISSES = 5
"""So many checks in a row did not list the video: it is deleted or private."""


def next_check(now: float, announced: float) -> float | None:
    """The time of the next check of a stream that is announced for this time. None: it does not begin any more."""
    if now < announced:
        return now + min(max(announced - now, SOONEST), LATEST)
    late = now - announced
    if late >= GIVEN_UP:
        return None
    return now + (SOONEST if late < CLOSELY else 300.0 if late < HOURS else 3600.0)
