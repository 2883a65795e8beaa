"""Objects that are collected from several tables, for the admin API and for `--json`."""

from csi.api_models.catalog import ChannelDetail, ChannelList
from csi.api_models.status import NoQuota, QuotaJson
from csi.catalog import data_api
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.channels import Channel
from csi.store.catalog.stats import day_of

DAY = 86_400.0


def all_channels(rt: Runtime, status: str | None = None) -> ChannelList:
    """Every channel with its gains of today, and what refreshing them costs."""
    rows = [row for row in channels.dashboard(day_of(rt.now())) if status in (None, row["status"])]
    share = data_api.share_of(rt)
    return ChannelList.of(channels=rows, units_per_day=share.needed, share=share.limit)


def one_channel(rt: Runtime, row: Channel) -> ChannelDetail:
    """A channel with its feed, its newest jobs and its last week."""
    total, missing = videos.count_of(row.id)
    return ChannelDetail.of(
        row,
        known_videos=total,
        missing_videos=missing,
        feed=channels.feed_of(row.id),
        jobs=jobs.page(channel_id=row.id, limit=5),
        stats=stats.trend(row.id, rt.now() - 7 * DAY),
    )


def quota(rt: Runtime) -> QuotaJson | NoQuota:
    """API units of this Pacific day, with the catalogue's share."""
    found = quota_schedule.forecast(rt, rt.now())
    if found is None:
        return NoQuota()
    return QuotaJson.of(found, forecast=quota_schedule.sentence(found), catalogue=data_api.share_of(rt))
