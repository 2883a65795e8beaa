"""Requests to one host keep their distance, whoever sends them: polls, commands, another process, after a restart."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from csi.adapters.base import Position, ReadResult
from csi.adapters.feed import FeedAdapter
from csi.admin import watches
from csi.errors import NetError
from csi.host_pacer import HostPacer
from csi.pipeline import poll, schedule
from csi.status.host_pace import host_paces
from csi.store import db, host_pacing
from csi.store.models import Watch
from tests.fakes.raw_server import RawRequest, RawServer, Send, answer
from tests.rigs.in_process import InProcessPipeline

FEED = b"<rss version='2.0'><channel><title>B</title><item><guid>1</guid><title>x</title></item></channel></rss>"


class Site:
    """Feeds at every path; `status` and `headers` of the answers, and when they were asked for."""

    def __init__(self, clock) -> None:
        self.clock, self.asked, self.status, self.headers = clock, list[tuple[float, str]](), 200, []
        self.refused: set[str] = set()
        """Paths that are always answered 429 with `Retry-After: 5`."""

    def __call__(self, request: RawRequest) -> list[Send]:
        self.asked.append((self.clock(), request.target))
        if request.target in self.refused:
            return [Send(answer(429, b"<html>", [("Retry-After", "5")]))]
        return [Send(answer(self.status, FEED if self.status == 200 else b"<html>", self.headers))]

    @property
    def gaps(self) -> list[float]:
        return [b - a for (a, _), (b, _) in pairwise(self.asked)]


@contextmanager
def paced(tmp_path, clock, feeds: int = 4, **host) -> Iterator[tuple[InProcessPipeline, Site, str]]:
    site = Site(clock)
    with db.connection(), RawServer(site) as server:
        name = server.url.removeprefix("http://")
        blocks = {
            "net": {"allowed_private_hosts": [name], "hosts": {name: host} if host else {}},
            "sources": {
                "feed": {
                    "poll_interval_seconds": 60,
                    "feeds": [{"url": f"{server.url}/{number}"} for number in range(feeds)],
                }
            },
        }
        yield InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", **blocks), site, name


def test_reads_of_one_host_are_spaced_and_every_watch_gets_its_turn(tmp_path, clock):
    with paced(tmp_path, clock, feeds=4, min_spacing_seconds=30) as (line, site, _):
        line.run()
        line.wait(600, step=5)
        assert min(site.gaps) >= 30
        counts = [sum(path == f"/{number}" for _, path in site.asked) for number in range(4)]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) >= 15


@pytest.mark.parametrize(
    ("feeds", "spacing", "plan"),
    [
        (4, 10, "4 watches, read at their intervals"),
        (1, 30, "1 watch, read at its interval"),
        (20, 30, "20 watches in turn, each about every 10 min: later than configured"),
    ],
)
def test_the_status_says_what_a_spacing_means_for_the_watches(tmp_path, clock, feeds, spacing, plan):
    with paced(tmp_path, clock, feeds=feeds, min_spacing_seconds=spacing) as (line, _, name):
        assert host_paces(line.rt) == []
        line.run()
        (found,) = host_paces(line.rt)
        assert (found.host, found.plan) == (name, plan)
        assert found.sentence == f"one request every {spacing} s; {plan}"


def test_a_restart_and_another_process_keep_the_distance(tmp_path, clock):
    with paced(tmp_path, clock, feeds=1, min_spacing_seconds=30) as (line, site, name):
        line.run()
        assert len(site.asked) == 1
        other = HostPacer(line.rt.settings.net.hosts, clock, line.rt.rng)
        with pytest.raises(NetError, match=r"allowed in \d+ s") as refused:
            other.before(name)
        assert refused.value.kind == "paced"
        clock.move(32)
        other.before(name)
        with pytest.raises(NetError):
            line.rt.web.get(f"http://{name}/x")


def test_a_poll_by_command_waits_for_the_slot_and_says_when_it_is(tmp_path, clock):
    with paced(tmp_path, clock, feeds=2, min_spacing_seconds=30) as (line, site, _):
        line.run()
        second = next(row for row in Watch.select() if row.last_poll_at is None)
        result = watches.poll_now(line.rt, second)
        assert result.waits_until is not None
        assert 20 <= result.waits_until - clock() <= 40
        assert len(site.asked) == 1
        line.wait(60, step=5)
        assert {path for _, path in site.asked} == {"/0", "/1"}


def test_a_host_that_refuses_is_asked_less_often_and_recovers_slowly(tmp_path, clock):
    with paced(tmp_path, clock, feeds=3) as (line, site, name):
        line.run()
        assert len(site.asked) == 3
        assert host_pacing.every() == []
        site.status, site.headers = 429, [("Retry-After", "20")]
        line.wait(600, step=5)
        learned = host_pacing.find(name)
        assert learned is not None
        assert learned.spacing >= 4
        site.status, site.headers = 200, []
        line.wait(4 * 3600, step=30)
        assert host_pacing.find(name).spacing is None
        assert {row.health for row in Watch.select()} == {"healthy"}


def test_one_feed_that_is_always_refused_leaves_the_others_of_its_host_at_their_interval(tmp_path, clock):
    with paced(tmp_path, clock, feeds=10) as (line, site, name):
        site.refused.add("/0")
        line.run()
        line.wait(1800, step=5)
        assert host_pacing.every() == []
        for number in range(1, 10):
            times = [at for at, path in site.asked if path == f"/{number}"]
            assert max(b - a for a, b in pairwise(times)) <= 60 * 1.5
        tries = [at for at, path in site.asked if path == "/0"]
        assert len(tries) <= 12, "it backs off by itself"
        assert max(b - a for a, b in pairwise(tries)) > 300
        site.refused |= {f"/{number}" for number in range(1, 4)}
        line.wait(600, step=5)
        assert host_pacing.find(name).spacing, "refusals of several feeds are about their host"


def test_a_limit_that_is_used_up_is_respected_before_it_is_exceeded(tmp_path, clock):
    with paced(tmp_path, clock, feeds=2, min_spacing_seconds=5) as (line, site, _):
        site.headers = [("x-ratelimit-remaining", "0.0"), ("x-ratelimit-reset", "50")]
        line.run()
        line.wait(300, step=5)
        assert min(site.gaps) >= 50


def test_the_concurrency_limit_of_a_host_is_passed_to_the_slots(tmp_path, clock):
    with paced(tmp_path, clock, feeds=1, max_concurrent=1) as (line, _, name):
        slots = line.rt.process.poll_slots
        line.run()
        assert slots.acquire(-1, name, 8, urgent=False, due_at=0.0)
        assert not slots.acquire(-2, name, 8, urgent=False, due_at=0.0)


def test_hosts_of_one_domain_share_its_concurrency_limit(tmp_path, clock):
    """The feeds of two hosts of one domain: while one of them is read, the other one waits for its slot."""
    feeds = [{"url": f"https://{name}.example.org/feed"} for name in ("one", "two")]
    blocks = {"net": {"hosts": {"example.org": {"max_concurrent": 1}}}, "sources": {"feed": {"feeds": feeds}}}
    with db.connection():
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", **blocks)
        schedule.sync_watches(line.rt)
        (first, second), read = [row.id for row in Watch.select().order_by(Watch.id)], list[str]()

        class Source(FeedAdapter):
            def read(self, position: Position) -> ReadResult:
                read.append(position.ref)
                list(poll.poll(line.rt, second))  # as another thread would
                return ReadResult()

        line.rt.adapters["feed"] = Source(line.rt.settings.sources["feed"], line.rt.adapter("feed").tools)
        Watch.update(next_poll_at=0.0, wake_at=clock()).execute()
        reads = poll.poll(line.rt, first)
        next(reads)
        assert read == ["https://one.example.org/feed"]
        list(reads)
        assert len(read) == 2, "the one that waited is read in the slot that is free now"
