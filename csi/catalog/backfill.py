"""BACKFILL_CHANNEL: the channel, then its uploads page by page, each with its videos and their first statistics.

`progress` holds the page that comes next. A crash costs the page in hand, which is read again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from csi.adapters.youtube.api import ApiPage, DataApi, is_readable
from csi.adapters.youtube.api_errors import LIST_CHANGED
from csi.catalog import capture, data_api
from csi.catalog.api_fields import listed_video
from csi.errors import SourceError
from csi.jobs.run_job import JobDone, StepDone
from csi.runtime import Runtime
from csi.store.catalog import channels, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.jobs import CatalogJob
from csi.store.catalog.videos import VideoFacts

MOST_RESTARTS = 3
"""A page's token grows old, or its list changes: then the walk begins anew, and what was stored is stored. A token
that is never good must not use up the day."""


def backfill(rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    api = data_api.open_api(rt, job)
    return _read_page(rt, api, job) if "uploads" in job.progress else _read_channel(rt, api, job)


def _read_channel(rt: Runtime, api: DataApi, job: CatalogJob) -> StepDone:
    channel_id = _channel_of(job)
    facts = data_api.read_channels(api, [channel_id]).get(channel_id)
    if facts is None:
        raise SourceError("YouTube does not show this channel", kind="missing")
    uploads = facts.uploads_playlist_id or f"UU{channel_id[2:]}"
    progress = {"uploads": uploads, "token": None, "pages": 0, "videos": 0, "missing": 0, "restarts": 0}
    return StepDone(progress, partial(_save_channel, rt, facts))


def _save_channel(rt: Runtime, facts: ChannelFacts) -> None:
    capture.record_channel(facts, rt.now())


def _read_page(rt: Runtime, api: DataApi, job: CatalogJob) -> StepDone | JobDone:
    channel_id, done = _channel_of(job), job.progress
    page = _page(api, done["uploads"], done["token"])
    if page is None:
        return _begin_anew(done)
    listed = _listed(page, channel_id, _room(rt, job))
    known = videos.known([facts.id for facts in listed])
    found = _ask(api, [facts.id for facts in listed], channel_id)
    unseen = [facts for facts in listed if facts.id not in found]
    progress = done | {
        "token": page.next,
        "pages": done["pages"] + 1,
        "videos": done["videos"] + len(found),
        "missing": done["missing"] + len(unseen),
    }
    save = partial(_save_videos, rt, list(found.values()), unseen)
    is_last = page.next is None or (job.payload.get("until_known") and len(known) == len(listed))
    if is_last or _is_full(rt, job, progress):
        counted = {name: progress[name] for name in ("pages", "videos", "missing")}
        return JobDone(counted, partial(_end, rt, channel_id, save))
    return StepDone(progress, save)


def _page(api: DataApi, uploads: str, token: str | None) -> ApiPage | None:
    """The uploads list of a channel without videos is "not found" (FACTS 1.1): it is empty. None: the token is old."""
    try:
        return api.items(uploads, token) or ApiPage(())
    except SourceError as error:
        if error.kind == "missing" and token is None:
            return ApiPage(())
        if token is not None and str(error) == LIST_CHANGED:
            return None
        raise


def _begin_anew(done: dict[str, Any]) -> StepDone:
    if done["restarts"] >= MOST_RESTARTS:
        raise SourceError(LIST_CHANGED)
    return StepDone(done | {"token": None, "pages": 0, "videos": 0, "missing": 0, "restarts": done["restarts"] + 1})


def _listed(page: ApiPage, channel_id: str, room: int | None) -> list[VideoFacts]:
    items = [facts for item in page.items if is_readable(item) and (facts := listed_video(item, channel_id))]
    once = list({facts.id: facts for facts in items}.values())
    return once if room is None else once[:room]


def _ask(api: DataApi, ids: Sequence[str], channel_id: str) -> dict[str, VideoFacts]:
    found = data_api.read_videos(api, ids) if ids else {}
    return {name: facts for name, facts in found.items() if facts.channel_id == channel_id}


def _save_videos(rt: Runtime, found: list[VideoFacts], unseen: list[VideoFacts]) -> None:
    capture.record_videos(found, rt.now())
    capture.enter_unseen(unseen, rt.now())


def _end(rt: Runtime, channel_id: str, save: partial[None]) -> None:
    save()
    channels.note_backfilled(channel_id, rt.now())


def _room(rt: Runtime, job: CatalogJob) -> int | None:
    """How many more videos are wanted; None: all."""
    cap = job.payload.get("videos") or rt.settings.catalog.backfill_videos
    return None if cap is None else max(int(cap) - job.progress["videos"] - job.progress["missing"], 0)


def _is_full(rt: Runtime, job: CatalogJob, progress: dict[str, Any]) -> bool:
    cap = job.payload.get("videos") or rt.settings.catalog.backfill_videos
    return cap is not None and progress["videos"] + progress["missing"] >= int(cap)


def _channel_of(job: CatalogJob) -> str:
    if job.channel_id is None:
        raise SourceError("the job names no channel", kind="denied")
    return job.channel_id
