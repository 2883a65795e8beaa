"""Store API responses: the current facts of channels and videos, and a row of statistics for this moment."""

from collections.abc import Iterable, Sequence

from csi.catalog import gains, refresh_schedule
from csi.catalog.gains import DAILY, HOURLY
from csi.store.catalog import channels, stats, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.stats import CountSample
from csi.store.catalog.videos import DueVideo, RefreshPlan, VideoFacts
from csi.store.uuid7 import new_id


def record_channel(facts: ChannelFacts, now: float) -> None:
    """Runs in the caller's transaction."""
    channels.save(facts, refresh_schedule.next_channel_refresh(now), now)
    before = stats.channel_baseline(facts.id, *DAILY.bounds(now))

    def daily(name: str) -> int | None:
        old = None if before is None else CountSample(before.captured_at, getattr(before, name))
        return gains.gain(getattr(facts, name), now, old, DAILY)

    stats.save_channel(
        stats.make_channel_stats(
            facts.id,
            now,
            subscriber_count=facts.subscriber_count,
            video_count=facts.video_count,
            view_count=facts.view_count,
            daily_views=daily("view_count"),
            daily_subscribers=daily("subscriber_count"),
            daily_videos=daily("video_count"),
        )
    )


def record_videos(found: Sequence[VideoFacts], now: float) -> None:
    """Runs in the caller's transaction."""
    plans = {facts.id: refresh_schedule.plan_video(facts.id, facts.published_at, now) for facts in found}
    videos.save([(facts, plans[facts.id]) for facts in found], now)
    hot = [facts.id for facts in found if plans[facts.id].tier == "hot"]
    hourly = stats.view_baselines(hot, *HOURLY.bounds(now))
    daily = stats.view_baselines([facts.id for facts in found], *DAILY.bounds(now))
    stats.save_videos(
        [
            stats.VideoStats(
                id=new_id(now),
                video_id=facts.id,
                captured_at=now,
                view_count=facts.view_count,
                like_count=facts.like_count,
                comment_count=facts.comment_count,
                hourly_views=gains.gain(facts.view_count, now, hourly.get(facts.id), HOURLY),
                daily_views=gains.gain(facts.view_count, now, daily.get(facts.id), DAILY),
            )
            for facts in found
        ]
    )


def record_missing(gone: Iterable[DueVideo], now: float) -> int:
    """Mark videos that the API does not show. They are not deleted, and are requested again later. Returns how many are
    newly missing."""
    return sum(videos.note_missing(video.id, refresh_schedule.plan_missing(video, now), now) for video in gone)


def record_unseen(listed: Sequence[VideoFacts], now: float) -> None:
    """Store videos that an uploads list names and the API does not show, as missing."""
    rows = [
        (facts, RefreshPlan(refresh_schedule.tier_of(facts.published_at, now), now + refresh_schedule.HOUR))
        for facts in listed
    ]
    videos.add_unknown(rows, now, missing=True)
