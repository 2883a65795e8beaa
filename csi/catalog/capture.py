"""What the API told, written down: facts as they are now, and statistics as they were at this moment."""

from collections.abc import Iterable, Sequence

from csi.catalog import gains, refresh_schedule
from csi.catalog.gains import DAILY, HOURLY, BaselineWindow
from csi.store.catalog import channels, stats, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.stats import CountSample
from csi.store.catalog.videos import DueVideo, RefreshPlan, VideoFacts
from csi.store.uuid7 import new_id


def record_channel(facts: ChannelFacts, now: float) -> None:
    """Part of the caller's transaction."""
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
    """Part of the caller's transaction."""
    plans = {facts.id: refresh_schedule.plan_video(facts.id, facts.published_at, now) for facts in found}
    videos.save([(facts, plans[facts.id]) for facts in found], now)
    hot = [facts.id for facts in found if plans[facts.id].tier == "hot"]
    hourly, daily = _baselines(hot, HOURLY, now), _baselines([facts.id for facts in found], DAILY, now)
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
    """The API does not show them: marked, never deleted, and looked for again. Returns how many are newly missing."""
    return sum(videos.note_missing(video.id, refresh_schedule.plan_missing(video, now), now) for video in gone)


def enter_unseen(listed: Sequence[VideoFacts], now: float) -> None:
    """An uploads list names them, and the API does not show them: they are known as missing."""
    rows = [
        (facts, RefreshPlan(refresh_schedule.tier_of(facts.published_at, now), now + refresh_schedule.HOUR))
        for facts in listed
    ]
    videos.add_unknown(rows, now, missing=True)


def _baselines(ids: Sequence[str], window: BaselineWindow, now: float) -> dict[str, CountSample]:
    return stats.view_baselines(ids, *window.bounds(now))
