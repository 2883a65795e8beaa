"""The source `feed` over real HTTP on loopback: from the page's address to the delivered event, and what is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from csi.admin import watches
from csi.admin.watches import WatchRefused
from csi.errors import NetError
from csi.net import AddressGuard, Net
from csi.store import db, watch_admin
from csi.store.models import Event
from tests.fakes.raw_server import RawRequest, RawServer, Send, answer
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline

ITEM = "<item><guid>{0}</guid><title>Post {0}</title><link>/{0}</link></item>"
PAGE = b"""<html><head><link rel="stylesheet" href="/x.css">
<link rel="alternate" type="application/rss+xml" href="/rss"></head></html>"""


class Blog:
    """A page, its feed, and redirects."""

    def __init__(self) -> None:
        self.posts = ["one"]
        self.paths: list[str] = []

    def __call__(self, request: RawRequest) -> list[Send]:
        self.paths.append(request.target)
        match request.target:
            case "/":
                return [Send(answer(200, PAGE))]
            case "/rss":
                items = "".join(map(ITEM.format, self.posts))
                return [
                    Send(answer(200, f"<rss version='2.0'><channel><title>B</title>{items}</channel></rss>".encode()))
                ]
            case "/metadata":
                return [Send(answer(302, b"", [("Location", "http://169.254.169.254/latest/")]))]
            case "/inside":
                return [Send(answer(302, b"", [("Location", "http://127.0.0.1:9/")]))]
        return [Send(answer(404, b""))]


@contextmanager
def installed(tmp_path, clock, **blocks) -> Iterator[tuple[InProcessPipeline, Blog, ScriptedReceiver, str]]:
    blog = Blog()
    with db.connection(), RawServer(blog) as server, ScriptedReceiver(now=clock) as ua:
        host = server.url.removeprefix("http://")
        blocks = {"net": {"allowed_private_hosts": [host]}, "sources": {"feed": {"first_poll": "all"}}} | blocks
        yield InProcessPipeline(tmp_path, clock, ua.url, **blocks), blog, ua, server.url


def test_a_page_is_enough_to_watch_its_feed_and_each_post_is_delivered_once(tmp_path, clock):
    with installed(tmp_path, clock) as (line, blog, ua, url):
        added = watches.add(line.rt, f"{url}/", {})
        assert (added.result, added.target.ref, added.name) == ("added", f"{url}/rss", "B")
        line.run()
        line.wait(60)
        blog.posts.insert(0, "two")
        line.wait(1800, step=30)
        titles = [event["subject"]["title"] for request in ua.requests for event in request.events]
        assert titles == ["Post one", "Post two"]
        assert [row.source for row in Event.select()] == ["feed", "feed"]
        (watch,) = watch_admin.every()
        assert (watch.health, watch.errors) == ("healthy", 0)
        assert url in watches.export_list(line.rt)


def test_a_configured_feed_is_read_and_named(tmp_path, clock):
    with RawServer(Blog()) as server, db.connection(), ScriptedReceiver(now=clock) as ua:
        feeds = [{"url": f"{server.url}/rss", "name": "My blog", "first_poll": "all", "tags": ["x"]}]
        host = server.url.removeprefix("http://")
        line = InProcessPipeline(
            *(tmp_path, clock, ua.url),
            sources={"feed": {"feeds": feeds}},
            net={"allowed_private_hosts": [host]},
        )
        line.run()
        line.wait(60)
        (event,) = [event for request in ua.requests for event in request.events]
        assert (event["source"], event["subject"]["feed_title"]) == ("feed", "B")
        assert event["subject"]["url"] == f"{server.url}/one"
        assert "x" in event["routing"]["tags"]


def test_a_feed_in_a_private_network_is_not_contacted_unless_it_is_allowed(tmp_path, clock):
    with installed(tmp_path, clock, net={"allowed_private_hosts": []}) as (line, blog, _, url):
        with pytest.raises(WatchRefused, match="private network"):
            watches.add(line.rt, f"{url}/", {})
        assert blog.paths == []


@pytest.mark.parametrize("path", ["/metadata", "/inside"])
def test_a_redirect_into_a_private_network_is_not_followed(tmp_path, clock, path):
    with installed(tmp_path, clock) as (line, blog, _, url):
        with pytest.raises(WatchRefused, match="private network"):
            watches.add(line.rt, f"{url}{path}", {})
        assert blog.paths == [path]


def test_an_address_that_only_a_feed_can_have_asks_for_the_source(tmp_path, clock):
    with installed(tmp_path, clock, sources={"youtube_channel_rss": {}}) as (line, blog, _, url):
        with pytest.raises(WatchRefused, match=r"sources\.feed is not in the configuration; add `feed: "):
            watches.add(line.rt, f"{url}/", {})
        assert blog.paths == []


def test_a_page_without_a_feed_says_so(tmp_path, clock):
    with installed(tmp_path, clock) as (line, blog, _, url):
        blog.posts = []
        with pytest.raises(WatchRefused, match="404"):
            watches.add(line.rt, f"{url}/nothing", {})


def test_names_that_resolve_to_loopback_are_refused():
    with RawServer([Send(answer(200, b""))]) as server, Net(guard=AddressGuard()) as web:
        port = server.url.rpartition(":")[2]
        with pytest.raises(NetError, match="private network"):
            web.get(f"http://localhost:{port}/")
