"""What a person types or pastes, read as a channel, a playlist, a video or a name. Pure.

Only what has the exact form of an id or a name leaves this module: nothing else ever reaches a URL.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from csi.errors import CsiError

ReferenceKind = Literal["channel", "playlist", "video", "handle", "user", "custom"]

LONGEST = 2_000
FREE_FORMS = "a channel id (UC…), a /channel/UC… URL, a playlist id or URL (list=…), or a feed URL"
"""What needs no API key."""

_CHANNEL = re.compile(r"UC[A-Za-z0-9_-]{22}")
_PLAYLIST = re.compile(r"(?:PL|UU|FL|LL|OLAK5uy_|EL|SP)[A-Za-z0-9_-]{10,60}")
_VIDEO = re.compile(r"[A-Za-z0-9_-]{11}")
_HANDLE = re.compile(r"@[\w.·-]{3,30}")
_NAME = re.compile(r"[\w.-]{1,100}")
_UNREADABLE = {
    "WL": "the watch-later list cannot be read by anyone but YouTube",
    "HL": "the history cannot be read by anyone but YouTube",
    "LL": "the list of liked videos is private to its owner",
}
_HOSTS = ("youtube.com", "youtube-nocookie.com")
_VIDEO_PATHS = ("shorts", "live", "embed", "v")


class UnknownReference(CsiError):
    """A text that names nothing that can be watched."""

    exit_code = 2


@dataclass(frozen=True)
class Reference:
    """What was meant. A `channel` or `playlist` can be watched as it is; the others are looked up first."""

    kind: ReferenceKind
    value: str

    @property
    def is_ready(self) -> bool:
        return self.kind in ("channel", "playlist")


def parse_reference(text: str, hosts: Iterable[str] = ()) -> Reference:
    """UnknownReference says what is accepted. `hosts` stand in for YouTube, where the configuration names some."""
    typed = text.strip().strip("<>\"'")
    if not typed or len(typed) > LONGEST or not typed.isprintable():
        raise UnknownReference(f"that is not a channel, playlist or video; {_accepted()}")
    if typed.startswith("@") or "/" not in typed:
        return _bare(typed)
    return _from_url(typed, (*_HOSTS, *hosts))


def _bare(typed: str) -> Reference:
    if _CHANNEL.fullmatch(typed):
        return Reference("channel", typed)
    if typed in _UNREADABLE:
        raise UnknownReference(_UNREADABLE[typed])
    if _PLAYLIST.fullmatch(typed):
        return Reference("playlist", typed)
    if typed.startswith("@"):
        return _named("handle", typed, _HANDLE)
    if typed.startswith("UC"):
        raise UnknownReference(f"{_shown(typed)} is not a channel id: those are UC and 22 characters")
    if _VIDEO.fullmatch(typed):
        raise UnknownReference(f"{_shown(typed)} may be a video id or a name; give its URL, or @{typed} for a handle")
    raise UnknownReference(f"{_shown(typed)} is not a channel, playlist or video; {_accepted()}")


def _from_url(typed: str, hosts: tuple[str, ...]) -> Reference:
    parts = _split(typed if "://" in typed else f"https://{typed}")
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.").removeprefix("music.")
    path = [unquote(step) for step in parts.path.split("/") if step]
    query = {name: values[0] for name, values in parse_qs(parts.query, max_num_fields=50).items()}
    if host == "youtu.be":
        return _listed(query) or _named("video", path[0] if path else "", _VIDEO)
    if host not in hosts:
        raise UnknownReference(f"{_shown(host or typed)} is not YouTube; {_accepted()}")
    return _on_youtube(path, query)


def _on_youtube(path: list[str], query: dict[str, str]) -> Reference:
    first, second = [*path, "", ""][:2]
    if first == "feeds":
        return _feed(query)
    if found := _listed(query):
        return found
    if first == "watch":
        return _named("video", query.get("v", ""), _VIDEO)
    if first in _VIDEO_PATHS:
        return _named("video", second, _VIDEO)
    return _page(first, second)


def _page(first: str, second: str) -> Reference:
    if first == "channel":
        return _named("channel", second, _CHANNEL)
    if first.startswith("@"):
        return _named("handle", first, _HANDLE)
    if first in ("c", "user"):
        return _named("custom" if first == "c" else "user", second, _NAME)
    raise UnknownReference(f"that page of YouTube is not a channel, playlist or video; {_accepted()}")


def _feed(query: dict[str, str]) -> Reference:
    if "channel_id" in query:
        return _named("channel", query["channel_id"], _CHANNEL)
    if "playlist_id" in query:
        return _bare(query["playlist_id"])
    return _named("user", query.get("user", ""), _NAME)


def _listed(query: dict[str, str]) -> Reference | None:
    """The list in a URL, where there is one that can be watched. A mix (RD…) is made up anew for every viewer."""
    name = query.get("list", "")
    if _PLAYLIST.fullmatch(name):
        return Reference("playlist", name)
    if name in _UNREADABLE and "v" not in query:
        raise UnknownReference(_UNREADABLE[name])
    return None


def _named(kind: ReferenceKind, value: str, form: re.Pattern[str]) -> Reference:
    if form.fullmatch(value):
        return Reference(kind, value)
    what = {"custom": "channel name", "user": "user name", "channel": "channel id", "video": "video id"}.get(kind, kind)
    raise UnknownReference(f"{_shown(value) if value else 'that URL'} has no usable {what}; {_accepted()}")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError as error:
        raise UnknownReference(f"that is not a URL; {_accepted()}") from error
    if parts.scheme not in ("http", "https"):
        raise UnknownReference(f"that is not a web address; {_accepted()}")
    return parts


def _shown(text: str) -> str:
    return repr(text[:60])


def _accepted() -> str:
    return "give a channel id (UC…), a channel, playlist or video URL, a playlist id, or an @handle"
