"""The source `feed`: identity of items, dates, conditional requests, redirects, refusals."""

from dataclasses import replace

import pytest

from csi.adapters.base import Position
from csi.adapters.feed import MOVED_AFTER, FeedAdapter
from csi.errors import SourceError
from csi.net.response import Redirect
from tests.fakes.stub_net import StubNet, reply, tools

NOW = 1_771_761_600.0
URL = "https://blog.example.org/feed.xml"


def feed(*items: str) -> bytes:
    return f"<rss version='2.0'><channel><title>A blog</title>{''.join(items)}</channel></rss>".encode()


def item(guid: str | None = "g1", link: str | None = "https://blog.example.org/1", **more: str) -> str:
    parts = {"guid": guid, "link": link, "title": "A title", **more}
    return "<item>" + "".join(f"<{name}>{value}</{name}>" for name, value in parts.items() if value) + "</item>"


def adapter(*answers, now: float = NOW, **settings) -> FeedAdapter:
    made = tools(StubNet(list(answers)), now=now)
    return FeedAdapter({"feeds": [{"url": URL}], **settings}, replace(made, web=made.net))


def keys(*items: str) -> list[str]:
    source = adapter(reply(feed(*items)))
    return [source.item_key(raw) for raw in source.read(Position(URL)).items]


def test_an_event_has_the_documented_subject():
    dated = item(pubDate="Sun, 22 Feb 2026 11:00:00 GMT", author="ann@example.org (Ann)", description="Text")
    source = adapter(reply(feed(dated)))
    (raw,) = source.read(Position(URL)).items
    event = source.normalize(raw)
    assert (event.source, event.event_type, event.occurred_at) == ("feed", "feed_new_item", "2026-02-22T11:00:00Z")
    expected = {
        "platform": "web",
        "url": "https://blog.example.org/1",
        "title": "A title",
        "published_at": "2026-02-22T11:00:00Z",
        "summary": "Text",
        "feed_url": URL,
        "feed_title": "A blog",
        "item_id": "g1",
    }
    assert expected.items() <= event.subject.items()
    assert event.dedupe_key.startswith("feed:")
    assert event.dedupe_key.endswith(":g1")
    assert event.event_id.endswith(":1771758000")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (item(title="A title"), item(title="Another title")),
        (item(pubDate="Sun, 22 Feb 2026 11:00:00 GMT"), item(pubDate="Sun, 22 Feb 2026 12:00:00 GMT")),
        (item(None), item(None, "https://blog.example.org/1?utm_source=rss")),
        (item(None), item(None, "http://BLOG.example.org/1/")),
    ],
    ids=["edited title", "edited date", "tracking parameters", "scheme and slash"],
)
def test_the_same_item_keeps_its_key(before, after):
    assert keys(before) == keys(after)


def test_without_guid_and_link_the_text_identifies_an_item():
    first, second = keys(item(None, None, title="One"), item(None, None, title="Two"))
    assert first != second
    assert [first] == keys(item(None, None, title="One"))


def test_a_guid_that_every_item_has_identifies_none():
    numbers = [item("same", f"https://blog.example.org/{number}") for number in range(3)]
    assert len(set(keys(*numbers))) == 3


def test_a_guid_that_some_items_with_different_links_share_identifies_none_of_them():
    shared = [item("shared", f"https://blog.example.org/{number}") for number in range(2)]
    alone = item("own", "https://blog.example.org/3")
    again = item("own", "https://blog.example.org/3/?utm_source=feed")
    found = keys(*shared, alone, again)
    assert len(set(found)) == 3
    assert found[2] == found[3] == keys(alone)[0], "the same item listed twice is one item"


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 GMT", "yesterday", "", "Mon, 01 Jan 2035 00:00:00 GMT"])
def test_a_date_that_is_missing_or_in_the_future_counts_as_the_time_of_the_read(date):
    source = adapter(reply(feed(item(pubDate=date))))
    event = source.normalize(source.read(Position(URL)).items[0])
    assert event.occurred_at == "2026-02-22T12:00:00Z"


def test_validators_are_sent_back_as_they_came_and_304_is_unchanged():
    source = adapter(reply(feed(item()), etag='W/"abc"'), reply(b"", 304))
    first = source.read(Position(URL))
    again = source.read(Position(URL, etag=first.etag, last_modified=first.last_modified))
    assert again.unchanged
    assert source.tools.web.asked[1].headers["If-None-Match"] == 'W/"abc"'


def test_the_same_bytes_are_not_parsed_again():
    source = adapter(reply(feed(item())), reply(feed(item())))
    first = source.read(Position(URL))
    assert source.read(Position(URL, etag=first.etag)).unchanged


@pytest.mark.parametrize(("age", "fresh"), [("60", None), ("7200", NOW + 7200)])
def test_cache_headers_make_reads_rarer_and_never_more_frequent(age, fresh):
    source = adapter(reply(feed(item()), cache_control=f"max-age={age}"))
    assert source.read(Position(URL)).fresh_until == fresh


@pytest.mark.parametrize(
    ("ttl", "fresh"), [("5", None), ("60", NOW + 3600), ("999999", NOW + 86_400), ("-60", None), ("soon", None)]
)
def test_the_ttl_of_a_feed_makes_reads_rarer_also_while_it_does_not_change(ttl, fresh):
    body = feed(f"<ttl>{ttl}</ttl>", item())
    source = adapter(reply(body, etag='"a"'), reply(b"", 304))
    first = source.read(Position(URL))
    again = source.read(Position(URL, etag=first.etag, state=first.state or {}))
    assert (first.fresh_until, again.fresh_until, again.unchanged) == (fresh, fresh, True)
    assert (again.state or {}).get("ttl") == (first.state or {}).get("ttl")


def moved(status: int, to: str, **more):
    return replace(reply(feed(item()), **more), redirects=(Redirect(status, to),))


def test_a_permanent_redirect_is_stored_after_a_week_of_the_same_answer():
    there = "https://new.example.org/feed.xml"
    first = adapter(moved(301, there)).read(Position(URL))
    assert first.state == {"moves_to": there, "since": NOW}
    early = adapter(moved(301, there), now=NOW + MOVED_AFTER - 1).read(Position(URL, state=first.state))
    assert early.state == first.state
    late = adapter(moved(308, there), now=NOW + MOVED_AFTER).read(Position(URL, state=first.state))
    assert late.state == {"url": there}
    source = adapter(reply(feed(item())))
    assert source.read(Position(URL, state=late.state)).state == {"url": there}
    other = adapter(moved(301, "https://other.example.org/"), now=NOW + MOVED_AFTER).read(
        Position(URL, state=first.state)
    )
    assert "url" not in other.state


def test_an_upgrade_to_https_is_stored_at_once_and_a_temporary_redirect_never():
    plain = URL.replace("https", "http")
    source = adapter(moved(301, URL), feeds=[{"url": plain}])
    assert source.read(Position(plain)).state == {"url": URL}
    assert adapter(moved(302, "https://new.example.org/")).read(Position(URL)).state == {}
    assert adapter(moved(307, "https://new.example.org/")).read(Position(URL)).state == {}


def test_a_feed_that_moved_and_is_gone_there_is_read_at_its_configured_address():
    source = adapter(reply(b"", 404), reply(feed(item())))
    found = source.read(Position(URL, state={"url": "https://new.example.org/feed.xml"}))
    assert (len(found.items), found.state) == (1, {})


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (reply(b"", 404), "missing", "404"),
        (reply(b"", 410), "gone", "410"),
        (reply(b"", 403), "denied", "403"),
        (reply(b"", 403, cf_mitigated="challenge"), "denied", "requires a browser"),
        (reply(b"", 429, retry_after="60"), "throttled", "429"),
        (reply(b"", 500), "transient", "500"),
        (reply(b"<html></html>"), "malformed", "HTML"),
    ],
)
def test_refusals_are_told_apart(answer, kind, words):
    with pytest.raises(SourceError, match=words) as caught:
        adapter(answer).read(Position(URL))
    assert caught.value.kind == kind


def test_a_feed_may_have_its_own_user_agent():
    source = adapter(reply(feed(item())), feeds=[{"url": URL, "user_agent": "reader/1"}])
    source.read(Position(URL))
    assert source.tools.web.asked[0].headers["User-Agent"] == "reader/1"
