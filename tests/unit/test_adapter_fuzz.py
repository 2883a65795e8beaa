"""Answers with anything anywhere in them: a clean error, or items that are events or malformed. Never a crash."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from csi.adapters.base import Position, WatchedSource
from csi.adapters.youtube_channel_rss import YouTubeChannelRSSAdapter
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.errors import MalformedItem, SourceError
from csi.scheduling import filters
from tests.fakes.stub_net import Asked, StubNet, reply, tools
from tests.fakes.youtube_feed import entry, feed

CHANNEL, PLAYLIST, VIDEO = "UCaaaaaaaaaaaaaaaaaaaaaa", "PLaaaaaaaaaaaa", "vvvvvvvvvvv"
ITEM = {
    "id": "item",
    "snippet": {
        "publishedAt": "2026-01-01T00:00:00Z",
        "channelId": CHANNEL,
        "title": "A title",
        "thumbnails": {"default": {"url": "https://i.ytimg.com/x.jpg"}},
        "playlistId": PLAYLIST,
        "position": 0,
        "resourceId": {"videoId": VIDEO},
        "videoOwnerChannelId": CHANNEL,
    },
    "contentDetails": {"videoId": VIDEO, "videoPublishedAt": "2026-01-01T00:00:00Z"},
    "status": {"privacyStatus": "public"},
}
PAGE = {"etag": "tag", "nextPageToken": "next", "items": [ITEM, ITEM], "pageInfo": {"totalResults": 2}}
FACTS = {"items": [{"id": VIDEO, "snippet": {"liveBroadcastContent": "live"}, "contentDetails": {"duration": "PT1M"}}]}
NUMBERS = [0, -1, 1e308, float("nan"), float("inf"), 10**30]
TEXTS = [
    "",
    "\0",
    "\ud800",
    "x" * 50_000,
    "2026-13-45T99:99:99Z",
    "9999-12-31T23:59:59+23:59",
    "../..",
    "a\r\nb",
    "{0}",
]
ODD = [None, True, *NUMBERS, *TEXTS, [], {}, [[]], {"a": {}}, ["a"] * 500]
BITS = [b"<", b"&", b"]]>", b"\0", b"\xff", b"<entry>", b"</entry>", b"<!--", b"<!DOCTYPE x>", b"&#0;", b"xmlns:yt='x'"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from places(inner, (*path, step))


def spoiled(document: dict[str, Any], rng: random.Random) -> bytes:
    """The document with something else, or nothing, in one of its places."""
    copied = copy.deepcopy(document)
    *way, last = rng.choice(list(places(copied)))
    inner: Any = copied
    for step in way:
        inner = inner[step]
    inner[last] = rng.choice(ODD)
    if rng.random() < 0.7:
        copied.pop("nextPageToken", None)
    return json.dumps(copied).encode()


def torn(body: bytes, rng: random.Random) -> bytes:
    at, other = rng.randrange(len(body)), rng.randrange(len(body))
    return body[:at] + rng.choice([*BITS, body[other : other + 300]]) + body[at + rng.choice([0, 1, 40]) :]


def judge(adapter: WatchedSource, ref: str, via: str) -> None:
    try:
        items = adapter.read(Position(ref, via=via)).items
    except SourceError:
        return
    for raw in items:
        try:
            adapter.item_key(raw)
            event = adapter.normalize(raw)
        except MalformedItem:
            continue
        json.dumps(event.model_dump(), allow_nan=False).encode()
        filters.wanted(filters.Filters(title_match="x"), filters.facts_of(event.subject))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("adapter", "ref", "via"),
    [(YouTubePlaylistAdapter, PLAYLIST, "feed"), (YouTubeChannelRSSAdapter, CHANNEL, "api")],
    ids=["playlist", "uploads"],
)
def test_pages_with_anything_in_them(adapter, ref, via, seed):
    rng = random.Random(seed)

    def answer(asked: Asked):
        return reply(spoiled(PAGE if asked.path.endswith("playlistItems") else FACTS, rng))

    for _ in range(100):
        judge(adapter({"enrich": True}, tools(StubNet(answer), key="the-key")), ref, via)


@pytest.mark.parametrize("seed", range(3))
def test_feeds_with_anything_in_them(seed):
    rng = random.Random(seed)
    whole = feed(*(entry(video=f"video{number:06}", channel=CHANNEL) for number in range(4)))
    for _ in range(60):
        body = torn(whole, rng)
        judge(YouTubeChannelRSSAdapter({}, tools(StubNet([reply(body)]))), CHANNEL, "feed")
