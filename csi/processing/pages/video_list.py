"""`/ui/videos`: every video, filtered by words, status, channel, pipeline and time."""

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from csi.config.durations import parse_since
from csi.processing.runtime import Processing
from csi.processing.sanitize import plain_line
from csi.processing.states import STATUSES
from csi.processing.store import videos
from csi.processing.store.videos import VideoFilter

SHOWN = 50
MAX_CHANNELS = 500
MAX_OFFSET = 1_000_000
SPANS = {"24h": "last day", "7d": "last week", "30d": "last month"}


def video_list_facts(rt: Processing, request: Request) -> dict[str, Any]:
    """A filter value that does not exist is ignored: links to this page stay valid."""
    given = {name: plain_line(value, 200).strip() for name, value in request.query_params.items()}
    channels = dict(videos.channels(MAX_CHANNELS))
    choices = {"status": STATUSES, "pipeline": videos.pipelines(), "channel": channels, "since": SPANS}
    kept = {name: given[name] if given.get(name) in words else "" for name, words in choices.items()}
    kept["q"] = given.get("q", "")
    wanted = VideoFilter(
        status=kept["status"] or None,
        pipeline=kept["pipeline"] or None,
        channel=kept["channel"] or None,
        text=kept["q"] or None,
        since=rt.now() - parse_since(kept["since"]) if kept["since"] else None,
    )
    offset = _offset(given.get("offset", ""))
    found = videos.page(SHOWN + 1, wanted=wanted, offset=offset)
    filters = {name: value for name, value in kept.items() if value}
    return {
        "videos": found[:SHOWN],
        "matching": videos.matching(wanted),
        "given": kept,
        "choices": choices,
        "channels": channels,
        "spans": SPANS,
        "older": urlencode(filters | {"offset": offset + SHOWN}) if len(found) > SHOWN else None,
        "newer": urlencode(filters | {"offset": max(offset - SHOWN, 0)}) if offset else None,
    }


def _offset(text: str) -> int:
    return min(int(text), MAX_OFFSET) if text.isascii() and text.isdigit() and len(text) < 10 else 0
