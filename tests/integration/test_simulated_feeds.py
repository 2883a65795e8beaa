"""The simulated feeds over HTTP, and the source `feed` before them: kinds, caching, redirects, faults, the hub."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from csi.admin import watches
from csi.admin.watches import WatchRefused
from csi.net import HttpHeaders, HttpResponse
from csi.simulator.feeds.app import feeds_app
from csi.simulator.feeds.documents import BODY_FAULTS, RENDERERS
from csi.simulator.feeds.site import REDIRECT_FAULTS, STATUS_FAULTS, FeedSite
from csi.simulator.hub import SimulatedHub
from csi.status import facts
from csi.status.verdict import judge
from csi.store import db
from csi.store.models import Event, Watch
from csi.worker.maintenance import write_heartbeat
from tests.fakes.background_server import serve_in_background
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline

HOUR, DAY = 3600.0, 86_400.0


@contextmanager
def installed(tmp_path, clock, *kinds, interval=300, **site_settings) -> Iterator[tuple[InProcessPipeline, FeedSite]]:
    site = FeedSite("", now=clock, **site_settings)
    with db.connection(), ScriptedReceiver(now=clock) as ua, serve_in_background(feeds_app(site)) as base:
        site.base = base
        for kind in kinds:
            site.add(f"{kind}-1", kind, posts=3)
        feeds = [{"url": site.address(name)} for name in site.feeds]
        host = base.removeprefix("http://")
        blocks = {
            "net": {"allowed_private_hosts": [host]},
            "sources": {"feed": {"first_poll": "all", "poll_interval_seconds": interval, "feeds": feeds}},
        }
        yield InProcessPipeline(tmp_path, clock, ua.url, **blocks), site


def subjects() -> list[dict]:
    return [json.loads(row.subject_json) for row in Event.select().order_by(Event.id)]


def test_every_kind_of_feed_gives_the_same_facts(tmp_path, clock):
    with installed(tmp_path, clock, *RENDERERS) as (line, site):
        line.run()
        line.wait(60, step=10)
        found = {kind: [one for one in subjects() if one["feed_url"].endswith(f"{kind}-1")] for kind in RENDERERS}
        for kind, events in found.items():
            posts = site.feeds[f"{kind}-1"].posts
            titles = [post.title for post in posts]
            assert [one["title"] for one in events] == titles, kind
            assert all(one["is_dated"] for one in events)
            assert [one["url"] for one in events] == [f"{site.base}/posts/{post.number}" for post in posts]
        (first, *_) = found["podcast"]
        assert first["enclosures"][0]["duration_seconds"] == 3723


def test_validators_and_caching_headers_are_used(tmp_path, clock):
    with installed(tmp_path, clock, "rss", max_age=1800) as (line, site):
        line.run()
        line.wait(2 * HOUR, step=60)
        statuses = [status for _, _, status in site.requests]
        assert statuses[0] == 200
        assert set(statuses[1:]) == {304}
        assert 3 <= len(statuses) <= 5, "it is read when its cached response expires, not every five minutes"


def test_a_permanent_redirect_is_stored_after_a_week_and_a_temporary_one_never(tmp_path, clock):
    with installed(tmp_path, clock, "rss", "atom", interval=3 * HOUR) as (line, site):
        line.run()
        line.wait(4 * HOUR, step=HOUR)
        site.set_faults("rss-1:moved,atom-1:moved_for_now")
        line.wait(8 * DAY, step=HOUR)
        site.requests.clear()
        line.wait(8 * HOUR, step=HOUR)
        paths = {path for _, path, _ in site.requests}
        assert "/feeds/rss-1" not in paths
        assert {"/moved/rss-1", "/feeds/atom-1", "/moved/atom-1"} <= paths
        assert [row.errors for row in Watch.select()] == [0, 0]


@pytest.mark.parametrize("fault", [*STATUS_FAULTS, *REDIRECT_FAULTS, *BODY_FAULTS])
def test_a_fault_is_shown_on_its_watch_and_the_neighbour_is_read(tmp_path, clock, fault):
    with installed(tmp_path, clock, "rss", "atom") as (line, site):
        line.run()
        line.wait(400, step=60)
        before = len(subjects())
        site.set_fault("rss-1", fault)
        line.wait(1900, step=60)
        site.publish("atom-1", "Neighbour")
        line.wait(400, step=60)
        assert [one["title"] for one in subjects()[before:]].count("Neighbour") == 1
        bad, good = list(Watch.select().order_by(Watch.id))
        assert (good.health, good.errors) == ("healthy", 0)
        harmless = ("newline", "cut", "moved", "moved_for_now", "no_dates", "year_9999", "same_guid", "many_items")
        assert (bad.errors == 0) is (fault in harmless), (bad.errors, bad.last_error)
        site.set_fault("rss-1", "")
        site.publish("rss-1", "After the fault")
        line.wait(1.5 * DAY if fault == "gone" else HOUR, step=HOUR)  # a feed that was gone is read once a day
        titles = [one["title"] for one in subjects()]
        assert titles.count("After the fault") == 1
        assert titles.count("Neighbour") == 1


def problems(rt):
    write_heartbeat(rt, rt.now())
    return {one.id: one for one in judge(facts.gather(rt)).problems if one.kind.page == "/sources"}


def test_a_feed_that_lists_nothing_any_more_is_an_error_at_its_third_read_and_a_notice(tmp_path, clock):
    with installed(tmp_path, clock, "rss") as (line, site):
        line.run()
        posts, site.feeds["rss-1"].posts = site.feeds["rss-1"].posts, []
        asked = len(site.requests)
        while (row := Watch.get()).errors == 0:
            assert len(site.requests) - asked <= 3
            line.wait(10, step=5)
        assert len(site.requests) - asked == 3
        assert (row.health, row.error_kind) == ("backing_off", "empty")
        assert "lists no items any more" in row.last_error
        asked = len(site.requests)
        line.wait(HOUR, step=60)
        assert len(site.requests) - asked <= HOUR / 300 / 0.9 + 1, "not more often than while it listed items"
        notice = problems(line.rt)["watch_gone"]
        assert (notice.severity, "empty" in notice.what, "lists no items" in notice.cause) == ("notice", True, True)
        assert set(problems(line.rt)) == {"watch_gone"}
        site.feeds["rss-1"].posts = posts
        site.publish("rss-1", "Again")
        line.wait(300, step=60)
        assert (Watch.get().health, Watch.get().empty_reads, problems(line.rt)) == ("healthy", 0, {})


def test_feeds_of_one_host_that_list_nothing_at_once_are_its_outage(tmp_path, clock):
    with installed(tmp_path, clock, *RENDERERS) as (line, site):
        line.run()
        for feed in site.feeds.values():
            feed.posts = []
        line.wait(300 + 60, step=5)
        assert set(problems(line.rt)) == {"host_outage"}


def test_a_page_leads_to_its_feed_and_a_private_address_is_refused(tmp_path, clock):
    with installed(tmp_path, clock, "json", "rss") as (line, site):
        added = watches.add(line.rt, f"{site.base}/pages/json-1", {})
        assert (added.result, added.target.ref) == ("known", site.address("json-1"))
        site.set_fault("rss-1", "metadata")
        with pytest.raises(WatchRefused):
            watches.add(line.rt, f"{site.base}/feeds/rss-1?again", {})


@pytest.mark.slow
@pytest.mark.parametrize("what", ["feeds", "hub", "reddit"])
def test_the_command_says_where_it_listens_and_ends(what):
    rate = [] if what == "hub" else ["--rate", "20"]
    command = [sys.executable, "-m", "csi.cli.main", "simulate", what, "--seconds", "1", *rate]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    facts = json.loads(second)
    assert first.endswith(facts["base_url"])
    assert facts[{"feeds": "feeds", "hub": "hub_url", "reddit": "subreddits"}[what]]


class Subscriber:
    """Confirms every subscription, and keeps what is pushed. As a publisher it has one topic."""

    def __init__(self, pushed):
        self.pushed = pushed

    def get(self, url):
        challenge = parse_qs(urlsplit(url).query).get("hub.challenge", ["the topic"])[0]
        return HttpResponse(200, HttpHeaders([]), challenge.encode(), url)

    def post(self, url, *, body, headers):
        self.pushed.append((url, body, headers.get("X-Hub-Signature", "")))
        return HttpResponse(202, HttpHeaders([]), b"", url)


def test_a_post_is_pushed_to_the_subscribers_of_the_hub(clock):
    pushed = []
    site, hub = FeedSite("https://site", now=clock, with_hub=True), SimulatedHub(now=clock, net=Subscriber(pushed))
    site.add("rss-1", posts=1)
    client = TestClient(feeds_app(site, hub))
    named = client.get("/feeds/rss-1")
    assert '<https://site/hub>; rel="hub"' in named.headers["link"]
    form = {"hub.mode": "subscribe", "hub.topic": site.address("rss-1"), "hub.callback": "https://csi/hooks/a"}
    assert client.post("/hub", data=form | {"hub.secret": "s"}).status_code == 202
    assert client.post("/sim/posts", json={"feed": "rss-1", "title": "Pushed"}).status_code == 201
    ((url, body, signature),) = pushed
    assert (url, b"Pushed" in body, signature.startswith("sha1=")) == ("https://csi/hooks/a", True, True)
    assert client.post("/sim/posts", json={"feed": "nothing"}).status_code == 400
    assert client.post("/sim/faults", json={"feed": "rss-1", "fault": "nothing"}).status_code == 400
    assert client.post("/sim/faults", json={"feed": "rss-1", "fault": "gone"}).status_code == 201
    assert client.get("/feeds/rss-1").status_code == 410
    assert client.get("/sim/feeds").json()["feeds"]["rss-1"]["fault"] == "gone"


def test_a_hub_announces_videos_and_what_publishers_say_and_fails_as_told(clock):
    topic, pushed = "https://www.youtube.com/feeds/videos.xml?channel_id=UCsXVk37bltHxD1rDPwtNM8Q", []
    hub = SimulatedHub(now=clock, net=Subscriber(pushed))
    client = TestClient(hub.app())
    form = {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": "https://csi/hooks/a", "hub.secret": "s"}
    assert client.post("/sim/hub", json={"status": 503}).status_code == 201
    assert client.post("/hub", data=form).headers["retry-after"] == "120"
    assert client.post("/sim/hub", json={"status": 202, "doubled": True}).status_code == 201
    assert client.post("/hub", data=form).status_code == 202
    assert client.post("/sim/push", json={"topic": topic, "video": "dQw4w9WgXcQ"}).json()["answers"] == [202, 202]
    client.post("/sim/hub", json={"doubled": False, "signature": "none"})
    client.post("/sim/push", json={"topic": topic, "video": "dQw4w9WgXcQ", "removed": True})
    assert client.post("/hub", data={"hub.mode": "publish", "hub.url": topic}).status_code == 202
    assert [(b"deleted-entry" in body, bool(signature)) for _, body, signature in pushed] == [
        *((False, True), (False, True), (True, False), (False, False)),
    ]
    assert pushed[-1][1] == b"the topic"
    shown = client.get("/sim/hub")
    assert shown.json()["subscriptions"][0]["topic"] == topic
    assert "/hooks/" not in shown.text, "callbacks hold tokens"
    for body in ({"status": "no"}, {"lie": "x"}, {"signature": "x"}, {"lease": "x"}, {"nothing": 1}, []):
        assert client.post("/sim/hub", json=body).status_code == 400, body
    assert client.post("/sim/push", json={"video": "dQw4w9WgXcQ"}).status_code == 400
    assert client.post("/hub", data={"hub.mode": "subscribe"}).status_code == 400


@pytest.mark.parametrize("fault", ["html", "throttled"])
def test_a_feed_that_fails_alone_for_hours_is_a_notice(tmp_path, clock, fault):
    with installed(tmp_path, clock, "rss", "atom", "json") as (line, site):
        line.run()
        line.wait(400, step=60)
        site.set_fault("rss-1", fault)
        line.wait(5 * HOUR, step=120)
        assert problems(line.rt) == {}
        line.wait(2 * HOUR, step=120)
        found = problems(line.rt)
        assert set(found) == {"watch_gone"}
        assert (found["watch_gone"].severity, "The rss-1" in found["watch_gone"].what) == ("notice", True)
        site.set_fault("rss-1", "")
        line.wait(HOUR, step=120)
        assert problems(line.rt) == {}


@pytest.mark.parametrize(
    ("fault", "problem", "cause", "words"),
    [("gone", "watch_gone", "gone for good", "once a day"), ("denied", "watch_denied", "403", "`authorization_env`")],
)
def test_the_problem_of_a_feed_has_a_remedy_for_feeds(tmp_path, clock, fault, problem, cause, words):
    with installed(tmp_path, clock, "rss", "atom", "json") as (line, site):
        line.run()
        site.set_fault("rss-1", fault)
        line.wait(1000, step=60)
        found = problems(line.rt)[problem]
        assert cause in found.cause
        assert words in f"{found.effect} {found.remedy}"
        assert "YOUTUBE" not in found.remedy
