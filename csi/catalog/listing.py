"""What is told of channels as plain data: the same by `csi channels … --json` and by the admin API."""

from typing import Any

from csi.catalog import data_api
from csi.catalog.json_shapes import shape
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.channels import Channel
from csi.store.catalog.stats import ChannelStats, day_of

DAY = 86_400.0
GAINS = ("daily_views", "daily_subscribers", "daily_videos")
TREND = (
    "date", "subscriber_count", "daily_subscribers", "view_count", "daily_views", "video_count", "daily_videos",
)  # fmt: skip


def all_channels(rt: Runtime, status: str | None = None) -> dict[str, Any]:
    """Every channel with its gains of today, and what keeping them fresh costs."""
    rows = [row for row in channels.dashboard(day_of(rt.now())) if status in (None, row["status"])]
    share = data_api.share_of(rt)
    return {"channels": [_today(row) for row in rows], "units_a_day": share.needed, "share": share.limit}


def one_channel(rt: Runtime, row: Channel) -> dict[str, Any]:
    """All that is known of it: its feed, its newest jobs, its last week."""
    (total, missing), feed = videos.count_of(row.id), channels.feed_of(row.id)
    return shape(row) | {
        "known_videos": total,
        "missing_videos": missing,
        "feed": shape(feed) if feed else None,
        "jobs": [shape(job) for job in jobs.page(channel_id=row.id, limit=5)],
        "stats": [shape(one) for one in stats.trend(row.id, rt.now() - 7 * DAY)],
    }


def trend_day(one: ChannelStats) -> dict[str, Any]:
    return {"date": one.captured_on} | {name: getattr(one, name) for name in TREND[1:]}


def _today(row: dict[str, Any]) -> dict[str, Any]:
    channel = Channel(**{name: row[name] for name in Channel.__dataclass_fields__})
    return shape(channel) | {name: row[name] for name in GAINS}
