"""50 subreddits with 100,000 posts a simulated day, bursts of 5,000, and a receiver that slows down for hours.

`python -m ops.bench highvolume`: four hours in batches of 500 (100 in a request), one streamed; with `--hours 1` a
quarter of both. The bench moves the clock, so the hours take minutes; the pipeline, the database, the requests to the
receiver and the limits of the simulated Reddit are the real ones. Steps run in one thread: the figures are volumes and
bounds, not latencies.
"""

import asyncio
import heapq
import json
import random
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from csi.ingester.signature import ValidSignature, verify
from csi.net import HttpHeaders, HttpResponse, Net
from csi.pipeline import backpressure, schedule
from csi.pipeline.wake import Wake
from csi.runtime import Runtime, open_runtime
from csi.simulator.reddit.site import RedditSite
from csi.status.verdict import verdict
from csi.store import db
from csi.worker import maintenance
from csi.worker.maintenance import QueueHealth
from ops.bench import walk
from ops.bench.sink import Exchange, Ledger

SUBREDDITS = 50
A_DAY, BURST, BURST_MINUTES = 100_000, 5_000, 10
LIMIT_AN_HOUR, LEAST_LIMIT = 3_000, 3_000
"""`csi.max_backlog_events` of the bench, by simulated hours: small, so that the slow receiver makes it count."""
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
REDDIT = "reddit.invalid"
DRAIN_HOURS, QUIET_HOURS = 12, 1
BATCH = 500
SLOW_A_MINUTE = 25
"""What the slow receiver accepts: about a third of what is published."""
SLOW = (0.30, 0.50)
"""The share of the time in which the receiver is slow."""
BURSTS = (0.15, 0.40, 0.70)
"""When bursts begin, as shares of the time; the second one while the receiver is slow."""


class Clock:
    """Time that the bench moves."""

    def __init__(self) -> None:
        self.time = 1_771_761_600.0

    def __call__(self) -> float:
        return self.time


class SlowReceiver(Exchange):
    """The receiver of every bench, with the bench's clock, which takes `per_minute` events and answers 429 for more."""

    def __init__(self, ledger: Ledger, secret: str, clock: Clock, pace: dict[str, float]) -> None:
        super().__init__(ledger, secret)
        self.clock, self.pace = clock, pace

    def handle(self, request: str, headers: dict[str, str], body: bytes) -> tuple[str, dict[str, Any]]:
        now, pace = self.clock(), self.pace
        found = verify(
            [self.secret], signature=headers.get("x-csi-signature", ""), timestamp=headers.get("x-csi-timestamp", ""),
            request_id=headers.get("x-csi-request-id", ""), body=body, now=now,
        )  # fmt: skip
        if not isinstance(found, ValidSignature):
            return "401 Unauthorized", {"ok": False}
        batch = json.loads(body)
        if pace["per_minute"]:
            pace["room"] = min(pace["room"] + (now - pace["at"]) * pace["per_minute"] / MINUTE, BATCH)
            pace["at"] = now
            if pace["room"] < len(batch["events"]):
                return "429 Too Many Requests", {"ok": False, "retry_after_seconds": 60}
            pace["room"] -= len(batch["events"])
        self.ledger.take(batch, now)
        return "200 OK", {"ok": True, "accepted": len(batch["events"]), "rejected": 0}


@contextmanager
def slow_receiver(ledger: Ledger, secret: str, clock: Clock, pace: dict[str, float]) -> Iterator[str]:
    """In a thread of this process, on a free port."""
    loop, ready, url = asyncio.new_event_loop(), threading.Event(), list[str]()

    async def serve() -> None:
        server = await loop.create_server(lambda: SlowReceiver(ledger, secret, clock, pace), "127.0.0.1", 0)
        url.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/v1/signals/ingest")
        ready.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


class SimulatedRedditNet(Net):
    """Answers requests to Reddit from the simulated site; all others are sent."""

    def __init__(self, site: RedditSite) -> None:
        super().__init__()
        self.site = site

    def get(self, url: str, **options: Any) -> HttpResponse:
        parts = urlsplit(url)
        if parts.hostname != REDDIT:
            return super().get(url, **options)
        paced_as: str = options.get("paced_as") or parts.netloc
        if self.pacer is not None:
            self.pacer.before(paced_as)
        headers: Mapping[str, str] = options.get("headers") or {}
        answer = self.site.get(parts.path, dict(parse_qsl(parts.query)), headers)
        found = HttpResponse(answer.status, HttpHeaders(answer.headers), answer.body, url)
        if self.pacer is not None:
            self.pacer.after(paced_as, found.status, found.headers, url)
        return found

    def post(self, url: str, **options: Any) -> HttpResponse:
        if urlsplit(url).hostname != REDDIT:
            return super().post(url, **options)
        answer = self.site.token(options.get("headers") or {}, options.get("body") or b"")
        return HttpResponse(answer.status, HttpHeaders(answer.headers), answer.body, url)


class Line:
    """The pipeline in one thread, with its scheduled wake-ups."""

    def __init__(self, rt: Runtime, clock: Clock) -> None:
        self.rt, self.clock, self._later, self._order = rt, clock, list[tuple[float, int, Wake]](), count()

    def run_due(self) -> None:
        todo = [*self._due(), *maintenance.run_pass(self.rt, QueueHealth(0), self.clock(), with_heartbeat=True)]
        while todo:
            wake = todo.pop()
            if wake.at is not None and wake.at > self.clock():
                heapq.heappush(self._later, (wake.at, next(self._order), wake))
            else:
                todo += walk.step(self.rt, wake)[::-1]

    def wait(self, seconds: float, step: float) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            following = self._later[0][0] if self._later else end
            self.clock.time = min(max(following, self.clock() + 0.5), self.clock() + step, end)
            self.run_due()

    def _due(self) -> list[Wake]:
        found = []
        while self._later and self._later[0][0] <= self.clock():
            found.append(heapq.heappop(self._later)[2])
        return found


@dataclass
class Watched:
    """What is looked at every simulated minute."""

    most_waiting: int = 0
    slowest: float = 1.0
    stopped_minutes: int = 0
    disk_mb: float = 0.0
    memory_mb: list[float] = field(default_factory=list)
    problems: set[str] = field(default_factory=set)


def measure(events_a_day: int = A_DAY, *, hours: float = 4.0, streaming: bool = False) -> dict[str, Any]:
    """One run. Nothing is lost: every published post is accepted once."""
    with tempfile.TemporaryDirectory(prefix="csi-bench-") as home:
        return _measure(Path(home), events_a_day, hours, streaming)


def _measure(home: Path, events_a_day: int, hours: float, streaming: bool) -> dict[str, Any]:
    clock, ledger, secret = Clock(), Ledger(), secrets.token_hex(16)
    site = RedditSite(now=clock)
    names = [f"sub_{number:02}" for number in range(SUBREDDITS)]
    site.add(*names)
    pace = {"per_minute": 0.0, "room": 0.0, "at": clock()}
    limit = max(int(LIMIT_AN_HOUR * hours), LEAST_LIMIT)
    started = time.monotonic()
    with slow_receiver(ledger, secret, clock, pace) as url:
        rt = _open(home, clock, site, names, url, secret, limit, streaming=streaming)
        with db.connection():
            schedule.sync_watches(rt)
            line, seen = Line(rt, clock), Watched()
            line.wait(20 * MINUTE, 10.0)  # the first read of a watch marks what is there as seen
            published = _day(line, site, names, pace, seen, events_a_day, hours)
            drained = _drain(line, ledger, len(published), seen)
            found = {f"reddit:post:{post}" for post in published}
            keys = set(db.column("SELECT dedupe_key FROM events"))
        rt.net.close()
    # Memory after the first third, when all caches are warm, against the end.
    warm = seen.memory_mb[len(seen.memory_mb) // 3]
    lost = len(found - keys) + max(len(keys) - len(ledger.arrived), 0)
    return {
        "published": len(published), "delivered": len(ledger.arrived), "lost": lost, "extra": len(keys - found),
        "again": ledger.again, "requests": ledger.requests, "reads": len(site.asked),
        "most_waiting": seen.most_waiting, "limit": limit, "slowest": round(seen.slowest, 1),
        "stopped_minutes": seen.stopped_minutes, "drained_hours": round(drained / HOUR, 1),
        "problem_shown": int("reading_slowed" in seen.problems),
        "disk_mb": round(seen.disk_mb, 1), "peak_mb": round(max(seen.memory_mb), 1),
        "memory_growth_mb": round(max(seen.memory_mb[-1] - warm, 0.0), 1),
        "seconds": round(time.monotonic() - started, 1),
    }  # fmt: skip


def _open(
    home: Path,
    clock: Clock,
    site: RedditSite,
    names: list[str],
    url: str,
    secret: str,
    limit: int,
    *,
    streaming: bool,
) -> Runtime:
    base = f"https://{REDDIT}"
    source = {
        "priority": "high_volume", "poll_interval_seconds": 180, "streaming_mode": streaming,
        "max_concurrent_events": 10, "client_id_env": "BENCH_ID", "client_secret_env": "BENCH_SECRET",
        "feed_base_url": base, "api_base_url": base, "token_url": f"{base}/token",
        "subreddits": [{"name": name} for name in names],
    }  # fmt: skip
    config = home / "config.yaml"
    settings = {
        "csi": {"state_dir": str(home / "state"), "log_level": "ERROR", "max_backlog_events": limit},
        "sources": {"reddit_subreddit": source},
        "delivery": {"priority_behavior": {"high_volume": {"batch_size": BATCH, "max_delay_seconds": 60}}},
    }
    config.write_text(yaml.safe_dump(settings))
    env = {
        "CSI_UA_ENDPOINT": url, "CSI_UA_SHARED_SECRET": secret, "BENCH_ID": "app", "BENCH_SECRET": secrets.token_hex(8)
    }  # fmt: skip
    rt = open_runtime(config, env)
    rt.now, rt.rng = clock, random.Random(7)
    rt.net = SimulatedRedditNet(site)
    rt.net.pacer = rt.pacer
    rt.adapters.clear()
    return rt


def _day(
    line: Line,
    site: RedditSite,
    names: list[str],
    pace: dict[str, float],
    seen: Watched,
    events_a_day: int,
    hours: float,
) -> list[str]:
    """Publish, minute by minute, half of all posts in a fifth of the subreddits. Returns their ids."""
    rng, published = random.Random(11), list[str]()
    weights = [3.0 if place < SUBREDDITS // 5 else 1.0 for place in range(SUBREDDITS)]
    minutes = int(hours * 60)
    bursts = {int(share * minutes) + minute for share in BURSTS for minute in range(BURST_MINUTES)}
    for minute in range(minutes):
        is_slow = SLOW[0] <= minute / minutes < SLOW[1]
        if bool(pace["per_minute"]) != is_slow:
            pace |= {"per_minute": float(SLOW_A_MINUTE if is_slow else 0), "room": 0.0, "at": line.clock()}
        due = (minute + 1) * events_a_day // 1440 - minute * events_a_day // 1440
        due += BURST // BURST_MINUTES if minute in bursts else 0
        for quarter in range(4):
            for name in rng.choices(names, weights, k=(due * (quarter + 1)) // 4 - (due * quarter) // 4):
                published.append(site.publish(name).id)
            line.wait(MINUTE / 4, MINUTE / 4)
        _forget_old(site)
        _look(line.rt, seen)
    pace["per_minute"] = 0.0
    return published


def _drain(line: Line, ledger: Ledger, wanted: int, seen: Watched) -> float:
    """Until all is delivered, DRAIN_HOURS at most. Returns how long it took."""
    began = quiet_since = line.clock()
    while len(ledger.arrived) < wanted and line.clock() - quiet_since < QUIET_HOURS * HOUR:
        line.wait(MINUTE, 15.0)
        _look(line.rt, seen)
        if backpressure.measure(line.rt).waiting:
            quiet_since = line.clock()
        if line.clock() - began > DRAIN_HOURS * HOUR:
            break
    return line.clock() - began


def _forget_old(site: RedditSite) -> None:
    """Reddit lists 1,000 posts at most: what is further back is not kept, so that the memory of the bench is CSI's."""
    for posts in site.posts.values():
        del posts[:-1000]
    del site.asked[:-1000]


def _look(rt: Runtime, seen: Watched) -> None:
    found = backpressure.measure(rt)
    seen.most_waiting = max(seen.most_waiting, found.waiting)
    seen.slowest = max(seen.slowest, found.factor or seen.slowest)
    seen.stopped_minutes += found.factor is None
    if found.is_felt and not seen.problems:
        seen.problems |= {problem.id for problem in verdict(rt).problems}
    path = Path(rt.settings.csi.database_url)
    files = (path, Path(f"{path}-wal"))
    seen.disk_mb = max(seen.disk_mb, sum(file.stat().st_size for file in files if file.exists()) / 1_048_576)
    words = Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()
    seen.memory_mb.append(int(words[0]) / 1024)
