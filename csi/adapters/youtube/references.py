"""Parse the text that an operator gives for a channel, playlist, video or name: an id, a handle or a URL. Pure.

The value of a Reference has the exact form of an id or a name, so that it can be put into a URL.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from csi.errors import CsiError

ReferenceKind = Literal["channel", "playlist", "video", "handle", "user", "custom"]

LONGEST = 2_000
ACCEPTED = (
    "give a channel id (UC…), a channel, playlist or video URL, a playlist id, an @handle, r/subreddit, or the address "
    "of a page that has a feed"
)
FREE_FORMS = "a channel id (UC…), a /channel/UC… URL, a playlist id or URL (list=…), or a feed URL"
"""The forms that need no API key."""

_CHANNEL = re.compile(r"UC[A-Za-z0-9_-]{22}")
_PLAYLIST = re.compile(r"(?:PL|PU|UU|FL|LL|OL|RDCLAK5uy_|EL|SP)[A-Za-z0-9_-]{10,60}")
_VIDEO = re.compile(r"[A-Za-z0-9_-]{11}")
_HANDLE = re.compile(r"@[\w.·-]{3,30}")
_NAME = re.compile(r"[\w.-]{1,100}")
_UNREADABLE = {
    "WL": "YouTube does not offer the watch-later list to other programs",
    "HL": "YouTube does not offer the history to other programs",
    "LL": "the list of liked videos is private to its owner",
}
_HOSTS = ("youtube.com", "youtube-nocookie.com")


class UnknownReference(CsiError):
    """The text is not a reference to anything that can be watched."""

    exit_code = 2


@dataclass(frozen=True)
class Reference:
    """A parsed reference. A `channel` or `playlist` can be watched as it is; the others are looked up first."""

    kind: ReferenceKind
    value: str

    @property
    def is_ready(self) -> bool:
        return self.kind in ("channel", "playlist")


def channel_id_fault(text: str) -> str | None:
    """Why this cannot be the id of a channel, and how to find the right one. None: it can."""
    if _CHANNEL.fullmatch(text):
        return None
    if _PLAYLIST.fullmatch(text):
        return "this is the id of a playlist; watch it under sources.youtube_playlist.playlists"
    return (
        "no channel can have this id: those are UC and 22 characters; "
        "`csi sources add --dry-run @handle`, or with the channel's URL, shows the right one"
    )


def playlist_id_fault(text: str) -> str | None:
    """Why this cannot be the id of a playlist, and how to find the right one. None: it can."""
    if _CHANNEL.fullmatch(text):
        return "this is the id of a channel; watch it under sources.youtube_channel_rss.watchlist"
    if text in _UNREADABLE:
        return _UNREADABLE[text]
    if _PLAYLIST.fullmatch(text):
        return None
    return (
        "no playlist can have this id: it is what follows list= in the playlist's URL, such as PL and 32 characters; "
        "`csi sources add --dry-run` with that URL shows it"
    )


def is_youtube_address(text: str) -> bool:
    """Whether this is a URL of YouTube. Other texts may mean something to another source."""
    typed = text.strip().lower()
    if not typed.startswith(("http://", "https://")):
        return False
    host = (_split(typed).hostname or "").removeprefix("www.").removeprefix("m.").removeprefix("music.")
    return not host or host in (*_HOSTS, "youtu.be")


def parse_reference(text: str, hosts: Iterable[str] = ()) -> Reference:
    """Raises UnknownReference, whose message says what is accepted. `hosts`: configured stand-ins for YouTube, with
    their ports."""
    typed = text.strip().strip("<>\"'")
    if not typed or len(typed) > LONGEST or not typed.isprintable():
        raise UnknownReference(f"that is not a channel, playlist or video; {ACCEPTED}")
    if typed.startswith("@") or "/" not in typed:
        return _from_word(typed)
    parts = _split(typed if "://" in typed else f"https://{typed}")
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.").removeprefix("music.")
    path = [unquote(step) for step in parts.path.split("/") if step]
    query = {name: values[0] for name, values in parse_qs(parts.query, max_num_fields=50).items()}
    if host == "youtu.be":
        return _from_list_parameter(query) or _checked("video", path[0] if path else "", _VIDEO)
    if host not in _HOSTS and parts.netloc.lower() not in hosts:
        raise UnknownReference(f"{_shown(host or typed)} is not YouTube; {ACCEPTED}")
    return _from_page(path, query)


def _from_word(typed: str) -> Reference:
    if _CHANNEL.fullmatch(typed):
        return Reference("channel", typed)
    if typed in _UNREADABLE:
        raise UnknownReference(_UNREADABLE[typed])
    if _PLAYLIST.fullmatch(typed):
        return Reference("playlist", typed)
    if typed.startswith("@"):
        return _checked("handle", typed, _HANDLE)
    if typed.startswith("UC"):
        raise UnknownReference(
            f"{_shown(typed)} is not a channel id: those are UC and 22 characters; "
            "give the channel's @handle or its URL"
        )
    if _VIDEO.fullmatch(typed):
        raise UnknownReference(f"{_shown(typed)} may be a video id or a name; give its URL, or @{typed} for a handle")
    if typed.startswith("PL"):
        raise UnknownReference(f"{_shown(typed)} is not a playlist id: give the playlist's URL, which contains it")
    raise UnknownReference(f"{_shown(typed)} is not a channel, playlist or video; {ACCEPTED}")


def _from_page(path: list[str], query: dict[str, str]) -> Reference:
    first, second = [*path, "", ""][:2]
    if first == "feeds":
        if "channel_id" in query:
            return _checked("channel", query["channel_id"], _CHANNEL)
        if "playlist_id" in query:
            return _from_word(query["playlist_id"])
        return _checked("user", query.get("user", ""), _NAME)
    if playlist := _from_list_parameter(query):
        return playlist
    match first:
        case "watch":
            return _checked("video", query.get("v", ""), _VIDEO)
        case "shorts" | "live" | "embed" | "v":
            return _checked("video", second, _VIDEO)
        case "channel":
            return _checked("channel", second, _CHANNEL)
        case "c" | "user":
            return _checked("custom" if first == "c" else "user", second, _NAME)
    if first.startswith("@"):
        return _checked("handle", first, _HANDLE)
    raise UnknownReference(f"that page of YouTube is not a channel, playlist or video; {ACCEPTED}")


def _from_list_parameter(query: dict[str, str]) -> Reference | None:
    """The playlist in a URL, if it can be watched. A mix (RD…) cannot: YouTube makes a new one for every viewer."""
    name = query.get("list", "")
    if _PLAYLIST.fullmatch(name):
        return Reference("playlist", name)
    if name in _UNREADABLE and "v" not in query:
        raise UnknownReference(_UNREADABLE[name])
    return None


def _checked(kind: ReferenceKind, value: str, form: re.Pattern[str]) -> Reference:
    if form.fullmatch(value):
        return Reference(kind, value)
    what = {"custom": "channel name", "user": "user name", "channel": "channel id", "video": "video id"}.get(kind, kind)
    raise UnknownReference(f"{_shown(value) if value else 'that URL'} has no usable {what}; {ACCEPTED}")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError as error:
        raise UnknownReference(f"that is not a URL; {ACCEPTED}") from error
    if parts.scheme not in ("http", "https"):
        raise UnknownReference(f"that is not a web address; {ACCEPTED}")
    return parts


def _shown(text: str) -> str:
    return repr(text[:60])
