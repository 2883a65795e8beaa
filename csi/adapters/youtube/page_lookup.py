"""Find the channel of a handle, a name or a video without an API key: one bounded read of YouTube's page.

The page's markup is not documented and changes; each fact is looked for in several places.
"""

import html
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from csi.adapters.youtube.references import Reference
from csi.errors import NetError, SourceError
from csi.ingester.text import TITLE_CHARS, clean
from csi.net import HttpLimits, Net

YOUTUBE = "https://www.youtube.com"
LIMITS = HttpLimits(total=15.0, max_body=4 * 1024 * 1024)
HEADERS = {
    "Accept": "text/html",
    "Accept-Language": "en",
    "Cookie": "SOCS=CAI",  # no optional cookies: without this choice visitors from Europe get a page that asks for it
}

_ID = "(UC[A-Za-z0-9_-]{22})"
_PATHS = {"handle": "/{}", "user": "/user/{}", "custom": "/c/{}", "video": "/watch?v={}"}
_OF_CHANNEL = [
    re.compile(rf'<link rel="canonical" href="https?://www\.youtube\.com/channel/{_ID}"'),
    re.compile(rf'<meta itemprop="(?:identifier|channelId)" content="{_ID}"'),
    re.compile(rf'"externalId":"{_ID}"'),
    re.compile(rf'type="application/rss\+xml"[^>]{{0,200}}channel_id={_ID}"'),
]
_OF_VIDEO = [
    re.compile(rf'<meta itemprop="channelId" content="{_ID}"'),
    re.compile(rf'"externalChannelId":"{_ID}"'),
    re.compile(rf'"videoDetails":\{{.{{0,20000}}?"channelId":"{_ID}"', re.DOTALL),
]
_TITLE_OF_CHANNEL = re.compile(r'<meta property="og:title" content="([^"]{1,500})"')
_TITLE_OF_VIDEO = re.compile(r'<link itemprop="name" content="([^"]{1,500})"')
_OWNER = re.compile(r'"ownerChannelName":("(?:[^"\\]|\\.){1,500}")')


@dataclass(frozen=True)
class ChannelOfPage:
    """A channel's id, and its name if the page has it."""

    id: str
    title: str | None


def find_channel(net: Net, reference: Reference, base: str | None = None) -> ChannelOfPage | None:
    """The channel of a handle, a user or custom name, or a video. None: YouTube has none of this name. SourceError: the
    page could not be read, or shows no channel."""
    path = _PATHS[reference.kind].format(quote(reference.value, safe="@"))
    try:
        answer = net.get(f"{base or YOUTUBE}{path}", headers=HEADERS, limits=LIMITS)
    except NetError as error:
        raise SourceError(f"YouTube's page could not be read: {error}", kind="transient") from error
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise SourceError(f"YouTube's page answered {answer.status}", kind="transient")
    page = answer.body.decode("utf-8", "replace")
    is_video = reference.kind == "video"
    forms = _OF_VIDEO if is_video else _OF_CHANNEL
    found = next((match[1] for form in forms if (match := form.search(page))), None)
    if found is None:
        if is_video and f'"videoId":"{reference.value}"' in page:
            return None  # the page says that the video is not available
        raise SourceError("YouTube's page shows no channel; it may be a page that asks for consent", kind="malformed")
    title = match[1] if (match := (_TITLE_OF_VIDEO if is_video else _TITLE_OF_CHANNEL).search(page)) else ""
    if not title and is_video and (owner := _OWNER.search(page)):
        with suppress(ValueError):
            return ChannelOfPage(found, clean(json.loads(owner[1]), TITLE_CHARS) or None)
    return ChannelOfPage(found, clean(html.unescape(title), TITLE_CHARS).strip() or None)


def page_base(feed_url_template: str) -> str:
    """The site that serves the pages: that of the feeds, which may be a stand-in."""
    parts = urlsplit(feed_url_template)
    return f"{parts.scheme}://{parts.netloc}"
