"""Take-off: a video whose hourly views are many times its channel's own median makes an event."""

from collections.abc import Iterable

from csi import clock
from csi.adapters.youtube import take_off
from csi.catalog.refresh_schedule import DAY
from csi.config.settings import TakeOffSettings
from csi.logs import log
from csi.runtime import Runtime
from csi.store import dedupe, inbox, watches
from csi.store.catalog import channels, movers, stats, videos
from csi.store.catalog.movers import UsualViews

MEDIAN_DAYS = 14
FEWEST_VIDEOS = 3
"""Fewer other videos do not tell what is usual."""


def is_taking_off(hourly: int | None, usual: UsualViews, settings: TakeOffSettings) -> bool:
    """Pure. A channel whose usual views are 0 needs `min_hourly_views`."""
    if hourly is None or hourly < settings.min_hourly_views or usual.videos < FEWEST_VIDEOS:
        return False
    return hourly >= settings.factor * usual.hourly


def emit(rt: Runtime, captured: Iterable[str], now: float) -> int:
    """Part of the transaction that stored the counts of these videos. Returns how many events were begun.

    An event is delivered as an item of the watch of the channel's feed; a channel without a watch has none.
    """
    settings, begun = rt.settings.catalog.take_off, 0
    if not settings.enabled:
        return 0
    for ref in captured:
        newest = next(iter(stats.recent(ref, 1)), None)
        if newest is None or (newest.hourly_views or 0) < settings.min_hourly_views:
            continue
        video = videos.find(ref)
        usual = None if video is None else movers.usual_views(video.channel_id, ref, now - MEDIAN_DAYS * DAY)
        if video is None or usual is None or not is_taking_off(newest.hourly_views, usual, settings):
            continue
        feed = channels.feed_of(video.channel_id)
        watch = None if feed is None else watches.find(feed.watch_id)
        if watch is None or watch.source not in rt.enabled_sources():
            continue
        channel = channels.find(video.channel_id)
        subject = {
            "platform": "youtube",
            "video_id": video.id,
            "channel_id": video.channel_id,
            "channel_title": channel.title if channel else None,
            "url": f"https://www.youtube.com/watch?v={video.id}",
            "title": video.title,
            "published_at": clock.iso(video.published_at),
            "view_count": newest.view_count,
            "hourly_views": newest.hourly_views,
            "hourly_views_hours": newest.hourly_views_hours,
            "usual_hourly_views": round(usual.hourly),
        }
        known_facts = {name: value for name, value in subject.items() if value is not None}
        raw = take_off.item(known_facts, watch.source, newest.captured_at)
        key = take_off.key(raw)
        if dedupe.known([key]):
            continue
        if inbox.put(watch, [inbox.NewItem(key, raw.event_type, raw.occurred_at, raw.payload)], now):
            log.info("video takes off", video=ref, channel=video.channel_id, hourly_views=newest.hourly_views)
            begun += 1
    return begun
