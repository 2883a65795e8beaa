"""The simulated feed, read with feedparser and the standard library."""

import asyncio
import io
import json
import xml.etree.ElementTree as ET
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import feedparser
import httpx
import pytest

from csi.simulator.youtube.app import YouTubeOptions, create_app
from csi.simulator.youtube.world import World

T0 = 1_790_000_000.0
ATOM = "{http://www.w3.org/2005/Atom}"
YT = "{http://www.youtube.com/xml/schemas/2015}"
CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "corpus"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = T0

    def __call__(self) -> float:
        return self.at


class Visitor:
    """A client that calls the app directly, without socket and thread."""

    def __init__(self, world: World, **options: Any) -> None:
        self.clock = Clock()
        self.world = world
        self.app = create_app(world, YouTubeOptions(now=self.clock, **options))
        self.site = self.app.state.site

    def get(self, path: str, headers: dict[str, str] | None = None, **params: str) -> httpx.Response:
        async def visit() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://sim") as client:
                return await client.get(path, params=params, headers=headers)

        return asyncio.run(visit())

    def feed(self, ref: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.get("/feeds/videos.xml", headers, channel_id=ref)


@pytest.fixture
def world() -> World:
    return World(seed=1)


@pytest.fixture
def channel(world: World) -> str:
    return world.add_channel("Maps & <Charts>", at=T0 - 9_000_000).id


def entries(answer: httpx.Response) -> list[ET.Element]:
    return ET.fromstring(answer.content).findall(f"{ATOM}entry")


def ids(answer: httpx.Response) -> list[str | None]:
    return [entry.findtext(f"{YT}videoId") for entry in entries(answer)]


def test_feedparser_finds_every_field(world: World, channel: str) -> None:
    title = "Größe </script> & ]]> \u202eRTL 🚀"
    video = world.upload(channel, title, at=T0 - 60, kind="short", description="Two\nlines & <b>more</b>")
    world.edit(video.id, at=T0 - 30, title=title)
    parsed = feedparser.parse(io.BytesIO(Visitor(world).feed(channel).content))
    assert not parsed.bozo
    assert parsed.version == "atom10"
    entry = parsed.entries[0]
    assert entry.id == f"yt:video:{video.id}"
    assert entry.yt_videoid == video.id
    assert entry.yt_channelid == channel
    assert entry.title == title
    assert entry.link == f"https://www.youtube.com/shorts/{video.id}"
    assert entry.published == "2026-09-21T14:12:20+00:00"
    assert entry.updated == "2026-09-21T14:12:50+00:00"
    assert entry.summary == "Two\nlines & <b>more</b>"
    assert entry.media_statistics == {"views": str(video.views_at(T0))}
    assert set(entry.media_starrating) == {"count", "average", "min", "max"}
    assert entry.media_thumbnail[0]["url"].endswith(f"/vi/{video.id}/hqdefault.jpg")


def test_the_feeds_own_id_has_no_prefix(world: World, channel: str) -> None:
    root = ET.fromstring(Visitor(world).feed(channel).content)
    assert root.findtext(f"{YT}channelId") == channel[2:]
    assert root.findtext(f"{ATOM}id") == f"yt:channel:{channel[2:]}"
    assert root.findtext(f"{ATOM}updated") is None
    names = [child.tag.rpartition("}")[2] for child in root]
    assert names == ["link", "id", "channelId", "title", "link", "author", "published"]


def test_fifteen_newest_public_ones_streams_included(world: World, channel: str) -> None:
    made = [world.upload(channel, f"v{n}", at=T0 - 1000 + n).id for n in range(20)]
    live = world.upload(channel, "live", at=T0, kind="live").id
    upcoming = world.upload(channel, "soon", at=T0 + 1, kind="upcoming").id
    world.upload(channel, "hidden", at=T0 + 2, privacy="unlisted")
    world.set_privacy(made[-1], "private", at=T0)
    world.delete(made[-2], at=T0)
    answer = Visitor(world).feed(channel)
    assert ids(answer) == [upcoming, live, *made[17:4:-1]]
    assert 'views="0"' in answer.text


def test_a_change_is_in_the_next_response(world: World, channel: str) -> None:
    visitor = Visitor(world)
    assert ids(visitor.feed(channel)) == []
    video = world.upload(channel, "first", at=T0)
    assert ids(visitor.feed(channel)) == [video.id]
    world.edit(video.id, at=T0, title="renamed")
    assert "renamed" in visitor.feed(channel).text


def test_headers_are_those_of_the_captures(world: World, channel: str) -> None:
    answer = Visitor(world).feed(channel)
    assert answer.headers["content-type"] == "text/xml; charset=UTF-8"
    assert answer.headers["cache-control"] == "public, max-age=900"
    assert answer.headers["server"] == "YouTube RSS Feeds server"
    moments = [parsedate_to_datetime(answer.headers[name]).timestamp() for name in ("date", "expires")]
    assert moments == [T0, T0 + 900]
    assert not {"etag", "last-modified", "age"} & set(answer.headers)


@pytest.mark.skipif(not CAPTURES.exists(), reason="the corpus of captured answers is not beside the project")
def test_the_header_set_differs_from_the_captures_only_by_the_length(world: World, channel: str) -> None:
    found = sorted(CAPTURES.glob("youtube_feed_series/*.headers.json"))
    optional = {"age", "content-length", "transfer-encoding", "p3p", "strict-transport-security"}
    ours = set(Visitor(world).feed(channel).headers) - optional
    theirs = set(json.loads(found[-1].read_text())["headers"]) - optional
    assert ours == theirs
    refused = json.loads(next(CAPTURES.glob("youtube_feed_errors/*.headers.json")).read_text())["headers"]
    assert set(Visitor(world).feed("UCunknown").headers) == set(refused)


@pytest.mark.skipif(not CAPTURES.exists(), reason="the corpus of captured answers is not beside the project")
def test_elements_and_attributes_come_in_the_captures_order(world: World, channel: str) -> None:
    world.upload(channel, "v", at=T0)
    theirs = next(CAPTURES.glob("youtube_feed/nasa_*.xml")).read_bytes()
    assert outline(Visitor(world).feed(channel).content) == outline(theirs)


def outline(document: bytes) -> list[tuple[str, list[str]]]:
    root = ET.fromstring(document)
    for extra in root.findall(f"{ATOM}entry")[1:]:
        root.remove(extra)
    return [(element.tag, list(element.attrib)) for element in root.iter()]


def test_an_unknown_channel_is_an_html_404_page(world: World) -> None:
    answer = Visitor(world).feed("UC<unknown>")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=UTF-8"
    assert "cache-control" not in answer.headers
    assert "<unknown>" not in answer.text
    assert Visitor(world).get("/feeds/videos.xml").status_code == 400


def test_a_deleted_channel_is_a_404(world: World, channel: str) -> None:
    visitor = Visitor(world)
    assert visitor.feed(channel).status_code == 200
    world.delete_channel(channel)
    assert visitor.feed(channel).status_code == 404


def test_etags_are_optional(world: World, channel: str) -> None:
    visitor = Visitor(world, etags=True)
    tag = visitor.feed(channel).headers["etag"]
    same = visitor.feed(channel, {"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
    assert same.headers["etag"] == tag
    world.upload(channel, "new", at=T0)
    assert visitor.feed(channel, {"If-None-Match": tag}).status_code == 200


def test_a_playlist_feed_keeps_list_order_and_hides_what_is_hidden(world: World, channel: str) -> None:
    ref = world.add_playlist("Mine", owner=channel, at=T0).id
    videos = [world.upload(channel, f"v{n}", at=T0 - n).id for n in range(3)]
    for video in videos:
        world.add_to_playlist(ref, video, at=T0)
    world.set_privacy(videos[1], "private", at=T0)
    answer = Visitor(world).get("/feeds/videos.xml", playlist_id=ref)
    assert ids(answer) == [videos[0], videos[2]]
    root = ET.fromstring(answer.content)
    assert root.findtext(f"{YT}playlistId") == ref
    assert root.findtext(f"{YT}channelId") == channel
    assert ids(Visitor(world).get("/feeds/videos.xml", playlist_id="UU" + channel[2:])) == [
        videos[0],
        videos[2],
    ]


def test_characters_that_xml_cannot_represent_are_left_out(world: World, channel: str) -> None:
    world.upload(channel, "a\x00b\ud800c\x0bd", at=T0)
    (entry,) = entries(Visitor(world).feed(channel))
    assert entry.findtext(f"{ATOM}title") == "abcd"


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        ("404", 404, "text/html; charset=UTF-8"),
        ("500", 500, "text/html; charset=UTF-8"),
        ("html", 200, "text/html; charset=UTF-8"),
        ("empty", 200, "text/xml; charset=UTF-8"),
        ("truncated", 200, "text/xml; charset=UTF-8"),
        ("bomb", 200, "text/xml; charset=UTF-8"),
        ("attributes", 200, "text/xml; charset=UTF-8"),
        ("deep", 200, "text/xml; charset=UTF-8"),
    ],
)
def test_faults_of_a_feed(world: World, channel: str, fault: str, status: int, kind: str) -> None:
    world.upload(channel, "v", at=T0)
    answer = Visitor(world, faults=f"feed:{fault}").feed(channel)
    assert (answer.status_code, answer.headers["content-type"]) == (status, kind)
    assert channel not in answer.text.partition("<entry>")[2] or fault == "truncated"


def test_a_status_fault_can_send_retry_after(world: World, channel: str) -> None:
    answer = Visitor(world, faults="any:429=30").feed(channel)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "30")


def test_a_preset_ends_with_its_window(world: World) -> None:
    refs = [world.add_channel(f"c{n}", at=T0).id for n in range(50)]
    visitor = Visitor(world, faults="night@0-60")
    first = [visitor.feed(ref).status_code for ref in refs]
    assert first == [visitor.feed(ref).status_code for ref in refs]
    assert 8 <= first.count(404) <= 32
    visitor.clock.at += 60
    assert {visitor.feed(ref).status_code for ref in refs} == {200}


def test_a_gzip_bomb_is_small_when_compressed(world: World, channel: str) -> None:
    answer = Visitor(world, faults="feed:gzip").feed(channel)
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 100_000
    assert len(answer.content) == 32 * 2**20


@pytest.fixture
def with_ledger(world: World, channel: str, tmp_path: Path) -> Visitor:
    return Visitor(world, ledger_path=tmp_path / "served.jsonl")


def lines(visitor: Visitor) -> list[dict[str, Any]]:
    path = visitor.site.options.ledger_path
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_ledger_has_each_item_once(with_ledger: Visitor, world: World, channel: str) -> None:
    video = world.upload(channel, "v", at=T0 - 5).id
    for _ in range(3):
        with_ledger.feed(channel)
    assert lines(with_ledger) == [
        {
            "at": T0,
            "kind": "feed",
            "video_id": video,
            "ref": channel,
            "key": f"youtube:video:{video}",
            "occurred_at": "2026-09-21T14:13:15Z",
        }
    ]


@pytest.mark.parametrize("fault", ["404", "500", "html", "empty", "truncated", "bomb", "gzip", "redirect"])
def test_a_faulty_response_is_not_in_the_ledger(with_ledger: Visitor, world: World, channel: str, fault: str) -> None:
    world.upload(channel, "v", at=T0)
    with_ledger.site.set_faults(f"feed:{fault}")
    with_ledger.feed(channel)
    assert lines(with_ledger) == []
    with_ledger.site.set_faults("feed:slow=1ms")
    with_ledger.feed(channel)
    assert len(lines(with_ledger)) == 1
