"""The output feeds: valid Atom and JSON Feed, filters, tokens that are never shown, conditional requests."""

import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import feedparser
import httpx
import pytest
import pytest_asyncio
from loguru import logger
from starlette.applications import Starlette

from csi.ingester.event import CreatorSignalEvent
from csi.runtime import Runtime
from csi.store import db, events
from csi.store.models import Event, Watch
from csi.web import feeds
from csi.web.app import create_app
from ops.screenshot import READ_TOKEN, TOKEN, furnish, open_show
from tests.fakes.feed_rules import atom_faults, json_feed_faults
from tests.rigs.operator import sample_event

FEED_TOKEN = "feed-token-6b0d2c91"
HOSTILE = """</title><script>alert(1)</script>&lt; ]]> \u202e \ufffe\x0b "q" 'a'"""


@pytest.fixture
def rt(tmp_path: Path) -> Runtime:
    found = open_show(tmp_path, CSI_FEED_TOKEN=FEED_TOKEN)
    furnish(found, events_a_day=12)
    return found


@pytest.fixture
def app(rt: Runtime) -> Starlette:
    return create_app(lambda: rt)


@pytest_asyncio.fixture
async def client(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {READ_TOKEN}"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as one:
        yield one


@pytest_asyncio.fixture
async def guest(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as one:
        yield one


def add(
    rt: Runtime, name: str, *, ago: float = 1.0, tags: tuple[str, ...] = (), **subject: object
) -> CreatorSignalEvent:
    event = sample_event(name)
    changed = event.model_copy(
        update={
            "subject": event.subject | subject,
            "routing": {"pipeline": "p", "priority": "urgent", "tags": list(tags)},
        }
    )
    watch = Watch.get()
    with db.writing():
        assert events.add(changed, watch_id=watch.id, seq=1, tier="urgent", first_seen_at=rt.now() - ago)
    return changed


@pytest.mark.asyncio
async def test_the_atom_feed_is_valid_and_a_reader_reads_it(rt: Runtime, client: httpx.AsyncClient) -> None:
    event = add(rt, "video0001", tags=("ai", "naïve, café"), title="Größe <b>&", channel_name="A & B", description="d")
    answer = await client.get("/feeds/events.atom?limit=500")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/atom+xml; charset=utf-8")
    assert atom_faults(answer.content) == []
    found = feedparser.parse(
        io.BytesIO(answer.content), response_headers={"content-type": answer.headers["content-type"]}
    )
    assert (found.bozo, found.version, len(found.entries)) == (
        False,
        "atom10",
        db.number("SELECT COUNT(*) FROM events"),
    )
    newest = found.entries[0]
    assert (newest.title, newest.author, newest.link) == ("Größe <b>&", "A & B", event.subject["url"])
    assert newest.id == f"urn:csi:{event.event_id}"
    assert [tag.term for tag in newest.tags] == [event.source, event.event_type, "ai", "naïve, café"]
    assert found.feed.links[0].href == "http://127.0.0.1/feeds/events.atom?limit=500"


@pytest.mark.asyncio
async def test_the_json_feed_follows_its_rules_and_has_the_whole_event(rt: Runtime, client: httpx.AsyncClient) -> None:
    event = add(rt, "video0001", tags=("ai",), title="Größe")
    answer = await client.get("/feeds/events.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/feed+json; charset=utf-8")
    assert json_feed_faults(answer.content) == []
    document = answer.json()
    item = document["items"][0]
    assert (item["id"], item["title"], item["tags"]) == (
        event.event_id,
        "Größe",
        [event.source, event.event_type, "ai"],
    )
    assert item["_csi"] == {name: value for name, value in event.model_dump().items() if name != "emitted_at"}
    assert document["feed_url"] == "http://127.0.0.1/feeds/events.json"


@pytest.mark.asyncio
async def test_hostile_text_breaks_neither_document(rt: Runtime, client: httpx.AsyncClient) -> None:
    add(rt, "video0001", title=HOSTILE, channel_name=HOSTILE, url="javascript:alert(1)", description=HOSTILE)
    add(rt, "video0002", title=["no", "text"], channel_name=7, url="https://example.org/ä ö?q=<x>\n", tags=("<t>",))
    add(rt, "video0003", title="   ")
    atom, document = await client.get("/feeds/events.atom"), await client.get("/feeds/events.json")
    assert (atom_faults(atom.content), json_feed_faults(document.content)) == ([], [])
    assert not feedparser.parse(io.BytesIO(atom.content)).bozo
    assert b"<script" not in atom.content
    assert b"javascript:" not in atom.content.split(b"<content")[0]
    assert "url" not in document.json()["items"][2]
    assert document.json()["items"][1]["url"] == "https://example.org/%C3%A4%20%C3%B6?q=%3Cx%3E"


@pytest.mark.asyncio
async def test_what_one_poll_saw_has_times_of_its_own_and_tags_are_named_once(
    rt: Runtime, client: httpx.AsyncClient
) -> None:
    now = rt.now()
    for number in range(3):
        added = add(rt, f"video~{number}", tags=("ai", sample_event("x").source, "ai"))
        db.run("UPDATE events SET first_seen_at = ? WHERE event_id = ?", now, added.event_id)
    atom, document = await client.get("/feeds/events.atom?limit=3"), await client.get("/feeds/events.json?limit=3")
    assert (atom_faults(atom.content), json_feed_faults(document.content)) == ([], [])
    times = [entry.updated for entry in feedparser.parse(io.BytesIO(atom.content)).entries]
    assert times == sorted(times, reverse=True)
    assert times == [item["date_modified"] for item in document.json()["items"]]
    assert document.json()["items"][0]["tags"] == [added.source, added.event_type, "ai"]


@pytest.mark.asyncio
async def test_an_empty_feed_is_valid_and_stays_the_same(tmp_path: Path) -> None:
    rt = open_show(tmp_path)
    transport = httpx.ASGITransport(app=create_app(lambda: rt))
    headers = {"Authorization": f"Bearer {READ_TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        atom, again = await client.get("/feeds/events.atom"), await client.get("/feeds/events.atom")
        document = await client.get("/feeds/events.json")
    assert (atom_faults(atom.content), json_feed_faults(document.content)) == ([], [])
    assert atom.headers["etag"] == again.headers["etag"]


@pytest.mark.asyncio
async def test_filters_by_source_watch_tag_and_type(rt: Runtime, client: httpx.AsyncClient) -> None:
    mine = add(rt, "video0001", tags=("ai", "100%"))
    add(rt, "video0002", tags=("aix",))

    async def ids(query: str) -> list[str]:
        return [item["id"] for item in (await client.get(f"/feeds/events.json?limit=500&{query}")).json()["items"]]

    assert await ids("tag=ai") == await ids("tag=100%25") == await ids("tag=none,ai") == [mine.event_id]
    assert await ids("tag=AI") == await ids("type=nothing") == []
    watch = Watch.get()
    expected = [one.event_id for one in Event.select().where(Event.watch_id == watch.id).order_by(Event.id.desc())]
    assert await ids(f"watch={watch.id}") == await ids(f"watch={watch.ref}") == expected
    types = db.column("SELECT DISTINCT event_type FROM events ORDER BY 1")
    assert len(await ids(f"type={','.join(types)}")) == len(await ids("")) == db.number("SELECT COUNT(*) FROM events")
    sql = "SELECT COUNT(*) FROM events WHERE source = 'youtube_playlist' AND event_type = ?"
    assert len(await ids(f"source=youtube_playlist&type={types[0]}")) == db.number(sql, types[0])
    db.run("UPDATE events SET source = 'own_script' WHERE event_id = ?", mine.event_id)
    assert await ids("source=own_script") == [mine.event_id], "a source of a plugin or of a sender"
    one = (await client.get("/feeds/events.atom?tag=ai")).content
    other = (await client.get("/feeds/events.atom?tag=aix")).content
    feed_ids = {feedparser.parse(io.BytesIO(body)).feed.id for body in (one, other)}
    assert len(feed_ids) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("source=youtub", 400, "known are youtube_playlist"),
        ("colour=red", 400, "unknown parameter; known are source, type, tag, watch, limit"),
        ("limit=10000000", 400, "limit"),
        ("watch=PLnone", 404, "there is no watch"),
        ("tag=a&tag=b", 400, "given twice"),
    ],
)
async def test_a_wrong_filter_is_explained(client: httpx.AsyncClient, query: str, status: int, words: str) -> None:
    answer = await client.get(f"/feeds/events.atom?{query}")
    assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text


# --- access


@pytest.mark.asyncio
async def test_a_token_in_the_path_or_in_a_header_opens_the_feed(guest: httpx.AsyncClient) -> None:
    basic = base64.b64encode(f"reader:{FEED_TOKEN}".encode()).decode()
    opened = [
        await guest.get(f"/feeds/{FEED_TOKEN}/events.atom"),
        await guest.get(f"/feeds/{READ_TOKEN}/events.json"),
        await guest.get(f"/feeds/{FEED_TOKEN}/watches.opml"),
        *[
            await guest.get("/feeds/events.atom", headers={"Authorization": value})
            for value in (f"Bearer {FEED_TOKEN}", f"Bearer {READ_TOKEN}", f"Bearer {TOKEN}", f"Basic {basic}")
        ],
    ]
    assert [answer.status_code for answer in opened] == [200] * 7
    assert not any(token in answer.text for answer in opened for token in (FEED_TOKEN, READ_TOKEN, TOKEN))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/feeds/events.atom", None),
        ("/feeds/events.json", "Bearer wrong-token-0123"),
        ("/feeds/events.atom", "Basic !!!"),
        ("/feeds/events.atom", "Basic " + base64.b64encode(b"\xff\xfe:x").decode()),
        ("/feeds/wrong-token-0123/events.atom", None),
        ("/feeds/wrong-token-0123/events.atom", f"Bearer {FEED_TOKEN}x"),
        (f"/feeds/{TOKEN}/events.atom", None),
        ("/feeds/watches.opml", "Bearer "),
    ],
)
async def test_a_wrong_token_gets_a_clear_answer_and_is_not_logged(
    guest: httpx.AsyncClient, path: str, header: str | None
) -> None:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), format="{message} {extra}")
    answer = await guest.get(path, headers={"Authorization": header} if header else {})
    logger.remove(sink)
    assert (answer.status_code, "token" in answer.json()["detail"]) == (401, True)
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert lines
    assert not any(token in line for line in lines for token in ("wrong-token-0123", FEED_TOKEN, TOKEN))


@pytest.mark.asyncio
async def test_a_feed_that_fails_does_not_log_its_token(guest: httpx.AsyncClient, monkeypatch) -> None:
    def fails(*_: object) -> bytes:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(feeds, "_render", fails)
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(json.dumps(message.record["extra"])), format="{message}")
    answer = await guest.get(f"/feeds/{FEED_TOKEN}/events.atom")
    logger.remove(sink)
    assert (answer.status_code, FEED_TOKEN in answer.text) == (500, False)
    assert lines
    assert "/feeds/\\u2026/events.atom" in lines[0]
    assert not any(FEED_TOKEN in line for line in lines)


@pytest.mark.asyncio
async def test_the_feed_token_opens_nothing_else_and_feeds_need_a_token(
    tmp_path: Path, guest: httpx.AsyncClient
) -> None:
    given = {"Authorization": f"Bearer {FEED_TOKEN}"}
    assert (await guest.get("/admin/events", headers=given)).status_code == 401
    assert (await guest.post(f"/feeds/{FEED_TOKEN}/events.atom")).status_code == 405
    assert (await guest.get("/feeds/events.atom", headers={"Host": "evil.example"})).status_code == 421
    (tmp_path / "closed").mkdir()
    closed = open_show(tmp_path / "closed", CSI_ADMIN_TOKEN="", CSI_ADMIN_READ_TOKEN="")
    transport = httpx.ASGITransport(app=create_app(lambda: closed))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/feeds/events.atom")).status_code == 403
        assert (await client.get("/feeds//events.atom")).status_code in (403, 404)


# --- conditional requests


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["events.atom", "events.json", "watches.opml"])
async def test_a_reader_that_has_the_document_gets_304(client: httpx.AsyncClient, name: str) -> None:
    first = await client.get(f"/feeds/{name}")
    etag, modified = first.headers["etag"], first.headers["last-modified"]
    for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        again = await client.get(f"/feeds/{name}", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    again = await client.get(f"/feeds/{name}", headers={"If-Modified-Since": modified})
    assert (again.status_code, again.content) == (304, b"")
    for headers in ({"If-None-Match": '"x"', "If-Modified-Since": modified}, {"If-Modified-Since": "yesterday"}):
        assert (await client.get(f"/feeds/{name}", headers=headers)).status_code == 200


@pytest.mark.asyncio
async def test_a_new_event_is_never_hidden_by_a_conditional_request(rt: Runtime, client: httpx.AsyncClient) -> None:
    """Also one that is stored within the same second, or that was first seen long ago."""
    first = await client.get("/feeds/events.atom")
    add(rt, "video0001", ago=9_000)
    for name, header in (("if-none-match", "etag"), ("if-modified-since", "last-modified")):
        again = await client.get("/feeds/events.atom", headers={name: first.headers[header]})
        assert (again.status_code, b"video0001" in again.content) == (200, True)
    assert again.headers["last-modified"] != first.headers["last-modified"]


def test_dates_of_many_feeds_are_bounded() -> None:
    dates = feeds.FeedDates()
    for number in range(1_000):
        dates.modified_at(f"/feeds/events.atom?limit={number}", "x", 100.0)
    assert len(dates._known) == feeds.REMEMBERED
    assert [dates.modified_at("a", etag, 100.0) for etag in ("1", "1", "2", "2", "3")] == [100, 100, 101, 101, 102]


@pytest.mark.asyncio
async def test_the_watches_as_opml(client: httpx.AsyncClient) -> None:
    answer = await client.get("/feeds/watches.opml")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/x-opml; charset=utf-8")
    assert answer.text.count("xmlUrl=") == Watch.select().where(Watch.state != "removed").count()
    assert (await client.get("/feeds/watches.opml?tag=x")).status_code == 400
