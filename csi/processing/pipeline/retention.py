"""Retention of processing's tables and files: hourly, in chunks that hold the database for a moment only."""

from collections import Counter

from csi.logs import log
from csi.processing.runtime import Processing
from csi.processing.store import notification_log, retention, videos
from csi.processing.store.db import writing

DAY, HOUR = 86_400.0, 3600.0
CHUNK = 200
VIDEOS = 20
"""Each has files, too."""


def remove_old_hourly(rt: Processing) -> dict[str, int]:
    """At most one chunk of each table; a full one is continued at the next call, else an hour later."""
    now = rt.now()
    if 0 <= now - rt.retention_ran_at < HOUR:
        return {}
    days, removed = rt.settings.retention, Counter[str]()
    with writing():
        removed["signals"] = retention.clear_signals(now - days.signals_days * DAY, CHUNK)
        removed["notices"] = retention.drop_notices(now - days.messages_days * DAY, CHUNK)
        removed["notifications"] = notification_log.table.drop_older(now - days.messages_days * DAY)
        removed["calls"] = retention.drop_calls(now - days.calls_days * DAY, CHUNK)
        removed["dead_letters"] = retention.drop_dead_letters(now - days.dead_letters_days * DAY, CHUNK)
    if days.videos_days is not None:
        # Files first: rows without files are removed by the next run, files without rows would stay for ever.
        ids = retention.old_videos(now - days.videos_days * DAY, VIDEOS)
        for video_id in ids:
            if videos.find(video_id) is not None and not rt.artifacts.remove(video_id):
                folder = str(rt.artifacts.root)
                log.warning("files of a video cannot be removed; it stays", video_id=video_id, folder=folder)
                ids = [one for one in ids if one != video_id]
        with writing():
            removed["videos"] = retention.drop_videos(ids)
    found = {name: count for name, count in removed.items() if count}
    if found:
        log.info("old rows removed", **found)
    if not any(count >= (VIDEOS if name == "videos" else CHUNK) for name, count in found.items()):
        rt.retention_ran_at = now
    return found
