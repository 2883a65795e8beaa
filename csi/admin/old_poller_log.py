"""Read the video ids that another poller has seen from its log, its state file or a plain list. Pure.

Not every word of eleven characters is an id: it counts after a name (`video_id=…`), in a URL or a key, alone on its
line, or in a JSON list.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.errors import CsiError

MAX_BYTES = 200 * 1024 * 1024
MAX_LINE = 20_000

_ID = r"[A-Za-z0-9_-]{11}"
_END = r"(?![A-Za-z0-9_-])"
_NAMED = re.compile(
    rf"(?:\bvideo(?:_?id|Id)?[\"']?\s*[=:]\s*[\"']?|[?&]v=|youtu\.be/|/(?:shorts|embed|live)/|\b(?:youtube|yt):video:)"
    rf"({_ID}){_END}",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"[\s\"',\[\]-]*?({_ID})[\s\"',\]]*")
_PLAYLIST = re.compile(
    rf"(?:\bplaylist(?:_?id|Id)?[\"']?\s*[=:]\s*[\"']?|[?&]list=|:)((?:PL|UU|FL)[A-Za-z0-9_-]{{3,60}}){_END}"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_WHOLE = re.compile(_ID)


class UnreadableLog(CsiError):
    """The file contains no video id, or is too large."""

    exit_code = 2


@dataclass(frozen=True)
class Sighting:
    """One video that the old poller has seen."""

    video: str
    playlist: str | None = None
    at: float | None = None


def read_sightings(content: bytes) -> list[Sighting]:
    """Each video (and playlist, where known) once, with its first time. UnreadableLog when there is none."""
    if len(content) > MAX_BYTES:
        raise UnreadableLog(f"the file is larger than {MAX_BYTES // 1024**2} MB; cut it to the days to compare")
    text = content.decode("utf-8-sig", "replace")
    found: dict[tuple[str, str | None], Sighting] = {}
    for sighting in _from_json(text) or _from_lines(text):
        found.setdefault((sighting.video, sighting.playlist), sighting)
    if not found:
        raise UnreadableLog(
            "the file contains no video id: expected one id per line, `video_id=…`, a watch URL, or JSON with ids"
        )
    return list(found.values())


def _from_lines(text: str) -> Iterator[Sighting]:
    for line in text.splitlines():
        line = line[:MAX_LINE]
        alone = _ALONE.fullmatch(line)
        videos = [alone[1]] if alone else _NAMED.findall(line)
        playlist, match, at = _PLAYLIST.search(line), _TIME.search(line), None
        with suppress(ValueError):  # an impossible date: the sighting counts without a time
            at = clock.parse(match[0].replace(",", ".")) if match else None
        for video in videos:
            yield Sighting(video, playlist[1] if playlist else None, at)


def _from_json(text: str) -> list[Sighting]:
    """Sightings in a state file of one JSON document. A log with one JSON object per line is read by `_from_lines`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return list(_walk(data, None)) if isinstance(data, list | dict) else []


def _walk(value: Any, playlist: str | None) -> Iterator[Sighting]:
    """Ids in lists, ids as keys, and values of `video_id`; a playlist id as a key applies to everything below it."""
    stack = [(value, playlist)]
    while stack:
        inner, playlist = stack.pop()
        if isinstance(inner, list):
            yield from (Sighting(item, playlist) for item in inner if isinstance(item, str) and _WHOLE.fullmatch(item))
            stack += [(item, playlist) for item in inner]
        elif isinstance(inner, dict):
            own = inner.get("playlist_id") or inner.get("playlistId") or playlist
            for key, item in inner.items():
                if _WHOLE.fullmatch(str(key)) and not str(key).isalpha():
                    yield Sighting(str(key), _list_id(own))
                elif key in ("video_id", "videoId", "id") and isinstance(item, str) and _WHOLE.fullmatch(item):
                    yield Sighting(item, _list_id(own))
                stack.append((item, _list_id(key) or _list_id(own)))


def _list_id(value: object) -> str | None:
    text = str(value) if value else ""
    return text if re.fullmatch(r"(?:PL|UU|FL)[A-Za-z0-9_-]{3,60}", text) else None
