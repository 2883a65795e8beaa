"""`/ui/videos`: every video, filtered by words, status, channel, pipeline, tag, kind, day and time."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from csi.config.durations import parse_since
from csi.processing.collection_models import SummarizationJobDocument
from csi.processing.runtime import Processing, day_span
from csi.processing.sanitize import plain_line
from csi.processing.states import STATUSES
from csi.processing.store import jobs, texts, videos
from csi.processing.store.videos import ProcessingVideo, VideoFilter

SHOWN = 50
MAX_CHANNELS = 500
MAX_FOUND = 500
MAX_OFFSET = 1_000_000
SPANS = {"24h": "last day", "7d": "last week", "30d": "last month"}


def video_list_facts(rt: Processing, request: Request) -> dict[str, Any]:
    """A filter value that does not exist is ignored: links to this page stay valid."""
    given = {name: plain_line(value, 200).strip() for name, value in request.query_params.items()}
    channels = dict(videos.channels(MAX_CHANNELS))
    choices = {
        "status": STATUSES,
        "pipeline": videos.pipelines(),
        "channel": channels,
        "tag": videos.tags(MAX_CHANNELS),
        "kind": videos.kinds(),
        "since": SPANS,
    }
    kept = {name: given[name] if given.get(name) in words else "" for name, words in choices.items()}
    kept |= {"q": given.get("q", ""), "text": given.get("text", ""), "day": ""}
    with suppress(ValueError):
        kept["day"] = date.fromisoformat(given.get("day", "")).isoformat()
    found = texts.search(kept["text"], MAX_FOUND) if kept["text"] else []
    wanted = wanted_videos(rt, kept, tuple(one.video_id for one in found) if kept["text"] else None)
    number = given.get("offset", "")
    offset = min(int(number), MAX_OFFSET) if number.isascii() and number.isdigit() and len(number) < 10 else 0
    page = videos.page(SHOWN + 1, wanted=wanted, offset=offset)
    filters = {name: value for name, value in kept.items() if value}
    return {
        "videos": page[:SHOWN],
        "bullets": {video.id: bullets_of(video)[:2] for video in page[:SHOWN]},
        "excerpts": {one.video_id: one.excerpt for one in found},
        "matching": videos.matching(wanted),
        "given": kept,
        "choices": choices,
        "channels": channels,
        "spans": SPANS,
        "thumbnails": rt.settings.pages.thumbnails,
        "older": urlencode(filters | {"offset": offset + SHOWN}) if len(page) > SHOWN else None,
        "newer": urlencode(filters | {"offset": max(offset - SHOWN, 0)}) if offset else None,
    }


def wanted_videos(rt: Processing, kept: Mapping[str, str], ids: tuple[str, ...] | None) -> VideoFilter:
    since, until = day_span(kept["day"]) if kept.get("day") else (None, None)
    if kept.get("since") and since is None:
        since = rt.now() - parse_since(kept["since"])
    return VideoFilter(
        status=kept.get("status") or None,
        pipeline=kept.get("pipeline") or None,
        channel=kept.get("channel") or None,
        tag=kept.get("tag") or None,
        kind=kept.get("kind") or None,
        text=kept.get("q") or None,
        since=since,
        until=until,
        ids=ids,
    )


def bullets_of(video: ProcessingVideo) -> list[str]:
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video.id)) if video.status == "summarized" else None
    return job.doc.summary.bullets if job and isinstance(job.doc, SummarizationJobDocument) else []
