"""Store API responses: the current facts of channels and videos, and a row of statistics with gains for this moment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from csi.catalog import refresh_schedule
from csi.catalog.refresh_schedule import DAY, HOUR
from csi.store.catalog import channels, stats, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.stats import CountSample
from csi.store.catalog.videos import DueVideo, RefreshPlan, VideoCounts, VideoFacts
from csi.store.uuid7 import new_id


@dataclass(frozen=True)
class BaselineWindow:
    """The allowed age of the earlier count: at least 0.9 periods, so that minutes are not extrapolated to a day, and at
    most `oldest`, so that the average still describes the period."""

    period: float
    oldest: float

    def bounds(self, now: float) -> tuple[float, float]:
        """The earliest and latest time of a count that can be the baseline. The newest count between them is used."""
        return now - self.oldest, now - 0.9 * self.period


HOURLY = BaselineWindow(HOUR, DAY)
DAILY = BaselineWindow(DAY, 8 * DAY)
"""Eight days, so that a video that is counted once a week also has a daily gain, the average of its week."""


def gain(value: int | None, now: float, before: CountSample | None, window: BaselineWindow) -> int | None:
    """None without a baseline or when one count is hidden. Can be negative: YouTube corrects view counts."""
    if value is None or before is None or before.value is None or before.at >= now:
        return None
    return round((value - before.value) * window.period / (now - before.at))


def record_channel(facts: ChannelFacts, now: float) -> None:
    """Runs in the caller's transaction."""
    channels.save(facts, refresh_schedule.next_channel_refresh(now), now)
    before = stats.channel_baseline(facts.id, *DAILY.bounds(now))

    def daily(name: str) -> int | None:
        old = None if before is None else CountSample(before.captured_at, getattr(before, name))
        return gain(getattr(facts, name), now, old, DAILY)

    counts = {name: getattr(facts, name) for name in ("subscriber_count", "video_count", "view_count")}
    daily_gains = {
        "daily_views": daily("view_count"),
        "daily_subscribers": daily("subscriber_count"),
        "daily_videos": daily("video_count"),
    }
    stats.save_channel(stats.make_channel_stats(facts.id, now, **counts, **daily_gains))


def record_videos(found: Sequence[VideoFacts], now: float) -> None:
    """Runs in the caller's transaction."""
    plans = {facts.id: refresh_schedule.plan_video(facts.id, facts.published_at, now) for facts in found}
    videos.save([(facts, plans[facts.id]) for facts in found], now)
    _save_statistics(found, plans, now)


def record_counts(found: Sequence[VideoCounts], wanted: Sequence[DueVideo], now: float) -> None:
    """Like `record_videos`, for known videos of which only the statistics were read."""
    published = {video.id: video.published_at for video in wanted}
    plans = {counts.id: refresh_schedule.plan_video(counts.id, published[counts.id], now) for counts in found}
    videos.save_counts([(counts, plans[counts.id]) for counts in found], now)
    _save_statistics(found, plans, now)


def _save_statistics(
    found: Sequence[VideoFacts] | Sequence[VideoCounts], plans: Mapping[str, RefreshPlan], now: float
) -> None:
    hot = [facts.id for facts in found if plans[facts.id].tier == "hot"]
    hourly = stats.view_baselines(hot, *HOURLY.bounds(now))
    daily = stats.view_baselines([facts.id for facts in found], *DAILY.bounds(now))
    rows = []
    for facts in found:
        before = hourly.get(facts.id)
        hourly_views = gain(facts.view_count, now, before, HOURLY)
        # None where there is no hourly gain.
        hours = None if before is None or hourly_views is None else round((now - before.at) / HOUR, 2)
        rows.append(
            stats.VideoStats(
                id=new_id(now),
                video_id=facts.id,
                captured_at=now,
                view_count=facts.view_count,
                like_count=facts.like_count,
                comment_count=facts.comment_count,
                hourly_views=hourly_views,
                hourly_views_hours=hours,
                daily_views=gain(facts.view_count, now, daily.get(facts.id), DAILY),
            )
        )
    stats.save_videos(rows)


def record_missing(gone: Iterable[DueVideo], now: float) -> int:
    """Mark videos that the API does not show. They are not deleted, and are requested again later. Returns how many are
    newly missing."""
    return sum(videos.note_missing(video.id, refresh_schedule.plan_missing(video, now), now) for video in gone)


def record_unseen(listed: Sequence[VideoFacts], now: float) -> None:
    """Store videos that an uploads list names and the API does not show, as missing."""
    rows = [(facts, RefreshPlan(refresh_schedule.tier_of(facts.published_at, now), now + HOUR)) for facts in listed]
    videos.add_unknown(rows, now, missing=True)
