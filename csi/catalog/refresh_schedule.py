"""When a video or channel is refreshed next. Pure.

Times are full hours, so that many videos share an API call: hot videos every hour, others at an hour of the day or of
the week that a hash of their id selects. This spreads the calls evenly without storing a schedule.
"""

import zlib

from csi.store.catalog.videos import DueVideo, RefreshPlan, Tier

HOUR, DAY = 3600.0, 86_400.0
HOT_DAYS, MEDIUM_DAYS = 7, 30
GIVE_UP = DAY
"""A video that is missing for longer is requested only once a week."""

DETAILS_DAYS: dict[Tier, int] = {"hot": 1, "medium": 7, "tail": 28}
"""How often title, tags and the like are read again, where statistics alone cost units of their own bucket."""

HOURS = {"hot": 1, "medium": 24, "tail": 168}


def tier_of(published_at: float, now: float) -> Tier:
    age = now - published_at
    return "hot" if age <= HOT_DAYS * DAY else "medium" if age <= MEDIUM_DAYS * DAY else "tail"


def plan_video(video_id: str, published_at: float, now: float) -> RefreshPlan:
    """The next refresh of a video that was just refreshed."""
    tier = tier_of(published_at, now)
    return RefreshPlan(tier, _slot(video_id, HOURS[tier], now))


def plan_missing(video: DueVideo, now: float) -> RefreshPlan:
    """The next request for a video that the API did not show. The first one is within the hour, whatever the tier,
    because the response may have been incomplete."""
    tier = tier_of(video.published_at, now)
    if video.missing_since is None:
        return RefreshPlan(tier, _slot(video.id, HOURS["hot"], now))
    is_given_up = now - video.missing_since >= GIVE_UP
    return RefreshPlan(tier, _slot(video.id, HOURS["tail" if is_given_up else tier], now))


def next_channel_refresh(now: float) -> float:
    """Once a day, by UTC: one row of statistics per day."""
    return (now // DAY + 1) * DAY


def _slot(name: str, hours: int, now: float) -> float:
    """The next full hour that the hash of this name selects in a cycle of `hours`."""
    this_hour = int(now // HOUR)
    ours = zlib.crc32(name.encode()) % hours
    wait = (ours - this_hour) % hours or hours
    return (this_hour + wait) * HOUR
