"""The kinds of jobs: purpose, priority, and which channel or videos each needs."""

import hashlib
from dataclasses import dataclass

from csi.adapters.youtube.video_fields import valid_id
from csi.errors import CsiError
from csi.store.catalog.jobs import NewCatalogJob

MOST_VIDEOS = 1_000
LONGEST_KEY = 200


class JobRefused(CsiError):
    """The job cannot be stored; the text says why and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class JobKind:
    """One kind of job."""

    type: str
    priority: int
    meaning: str
    needs_channel: bool = False
    takes_videos: bool = False
    yields: bool = False
    """It leaves API units for the hourly and daily refreshes."""


KINDS = {
    kind.type: kind
    for kind in (
        JobKind("BACKFILL_CHANNEL", 5, "all videos of a channel", needs_channel=True, yields=True),
        JobKind("REFRESH_CHANNEL_STATS", 8, "statistics of every channel, once a day"),
        JobKind("REFRESH_HOT_VIDEOS", 10, "statistics of videos up to 7 days old, every hour", takes_videos=True),
        JobKind("REFRESH_MEDIUM_VIDEOS", 9, "statistics of videos 7 to 30 days old, every day", takes_videos=True),
        JobKind(
            "REFRESH_VIDEO_STATS", 6, "statistics of all older videos, once a week", takes_videos=True, yields=True
        ),
        JobKind("RSS_POLL_CHANNEL", 5, "one poll of a channel's feed, now", needs_channel=True),
        JobKind("REQUEUE_STUCK", 7, "requeue jobs whose lease has expired"),
    )
}  # fmt: skip


def new_job(
    type: str,
    *,
    channel_id: str | None = None,
    video_ids: tuple[str, ...] = (),
    priority: int | None = None,
    payload: dict[str, object] | None = None,
    scheduled_at: float | None = None,
    max_attempts: int = 5,
) -> NewCatalogJob:
    """A job of this kind, or JobRefused with the reason. The same kind, channel and videos get the same dedup key."""
    kind = KINDS.get(type)
    if kind is None:
        raise JobRefused(f"there is no job type {type[:40]!r}; there are {', '.join(KINDS)}")
    if priority is not None and not 1 <= priority <= 10:
        raise JobRefused("a priority is a whole number from 1 to 10; higher runs sooner")
    if kind.needs_channel and channel_id is None:
        raise JobRefused(f"{type} needs a channel")
    if channel_id is not None and not kind.needs_channel:
        raise JobRefused(f"{type} is for all channels; omit the channel")
    if video_ids and not kind.takes_videos:
        raise JobRefused(f"{type} takes no videos")
    if len(video_ids) > MOST_VIDEOS:
        raise JobRefused(f"a job takes at most {MOST_VIDEOS:,} videos; enqueue several jobs")
    if any(valid_id(ref) is None for ref in video_ids):
        raise JobRefused("one of the videos is not an id; the id is the part behind watch?v=")
    ids = tuple(sorted(set(video_ids)))
    key = ":".join([type, *([channel_id] if channel_id else []), *ids])
    return NewCatalogJob(
        type=type,
        # Many video ids make a long key: a fingerprint of them serves the same purpose.
        dedup_key=key if len(key) <= LONGEST_KEY else f"{type}:{hashlib.sha256(key.encode()).hexdigest()}",
        priority=kind.priority if priority is None else priority,
        channel_id=channel_id,
        video_ids=ids,
        payload=dict(payload or {}),
        scheduled_at=scheduled_at,
        max_attempts=max_attempts,
    )
