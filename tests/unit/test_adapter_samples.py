"""Each sample under tests/data has beside it what must become of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from csi.adapters.base import Position, SourceAdapter
from csi.adapters.youtube_channel_rss import YouTubeChannelRSSAdapter
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.errors import MalformedItem
from tests.fakes.stub_net import StubNet, reply, tools

DATA = Path(__file__).parents[1] / "data"
CHANNEL = "UCsampleChannel_00000000"
FEEDS = sorted(path.name for path in (DATA / "feeds").glob("*.xml"))
LISTS = sorted(path.name for path in (DATA / "api").glob("*_pages.json"))


def outcomes(adapter: SourceAdapter, ref: str) -> dict[str, Any]:
    reading = adapter.read(Position(ref))
    return {"unreadable": reading.unreadable, "items": [outcome(adapter, raw) for raw in reading.items]}


def outcome(adapter: SourceAdapter, raw: Any) -> Any:
    try:
        event = adapter.normalize(raw).model_dump(exclude={"received_at", "emitted_at", "routing", "raw_ref"})
    except MalformedItem as error:
        return {"malformed": str(error)}
    assert adapter.item_key(raw) == event["dedupe_key"]
    return event


def expected(path: Path) -> Any:
    return json.loads(path.with_suffix(".expected.json").read_text())


@pytest.mark.parametrize("name", FEEDS)
def test_a_feed_becomes_the_events_beside_it(name):
    path = DATA / "feeds" / name
    adapter = YouTubeChannelRSSAdapter(config={}, tools=tools(StubNet([reply(path.read_bytes())])))
    assert outcomes(adapter, CHANNEL) == expected(path)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_becomes_the_events_beside_it(name):
    path = DATA / "api" / name
    net = StubNet([reply(page) for page in json.loads(path.read_text())])
    adapter = YouTubePlaylistAdapter(config={"enrich": False}, tools=tools(net))
    assert outcomes(adapter, "PLsample01") == expected(path)


def test_there_are_samples():
    assert len(FEEDS) >= 5
    assert LISTS
