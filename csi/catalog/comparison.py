"""One figure of several channels, day by day."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.catalog.channel_admin import CatalogRefused
from csi.catalog.refresh_schedule import DAY
from csi.runtime import Runtime
from csi.store.catalog import stats
from csi.store.catalog.channels import Channel

MOST_CHANNELS = 10
MOVERS_DAYS = 2
"""A capture that is older says nothing about what moves now."""
MEASURES = ("subscriber_count", "daily_subscribers", "view_count", "daily_views", "video_count", "daily_videos")


@dataclass(frozen=True)
class ComparedDay:
    """The figure of each channel on one day (UTC), in the order of the channels. None: not known."""

    date: str
    values: tuple[int | None, ...]


@dataclass(frozen=True)
class Comparison:
    measure: str
    channels: tuple[Channel, ...]
    days: tuple[ComparedDay, ...]


def compare(rt: Runtime, rows: Sequence[Channel], measure: str, days: int) -> Comparison:
    if not 2 <= len(rows) <= MOST_CHANNELS:
        raise CatalogRefused(f"a comparison needs 2 to {MOST_CHANNELS} different channels; these are {len(rows)}")
    if measure not in MEASURES:
        raise CatalogRefused(f"there is no figure {measure[:40]!r}; there are {', '.join(MEASURES)}")
    since = rt.now() - days * DAY
    found = [{day.captured_on: getattr(day, measure) for day in stats.trend(row.id, since)} for row in rows]
    dates = sorted(set().union(*found))
    compared = tuple(ComparedDay(date, tuple(one.get(date) for one in found)) for date in dates)
    return Comparison(measure, tuple(rows), compared)
