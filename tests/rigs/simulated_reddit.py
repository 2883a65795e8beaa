"""The source `reddit_subreddit` in the pipeline of one thread, before a simulated Reddit with the real limits."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from csi.adapters.base import Member
from csi.adapters.reddit.listing import WINDOW
from csi.simulator.reddit.site import RedditSite
from csi.store import db
from csi.store.models import Event, Watch
from tests.fakes.reddit_net import RedditNet
from tests.rigs.in_process import InProcessPipeline

HOUR, SLOT = 3600.0, 64.0


@contextmanager
def reddit(tmp_path, clock, names, **block) -> Iterator[tuple[InProcessPipeline, RedditSite]]:
    site = RedditSite(now=clock)
    site.add(*names)
    with db.connection():
        sources = {"reddit_subreddit": {"subreddits": [{"name": name} for name in names], **block}}
        secrets = {"RID": "app-id", "RSECRET": "app-secret-canary"}
        line = InProcessPipeline(
            tmp_path, clock, "http://127.0.0.1:9/", secrets=secrets, sources=sources, features={"delivery": False}
        )
        line.rt.net = RedditNet(site)
        line.rt.net.pacer = line.rt.pacer
        line.rt.adapters.clear()
        yield line, site


def keys() -> set[str]:
    return {row.dedupe_key for row in Event.select(Event.dedupe_key)}


def expected(site: RedditSite, since: float) -> set[str]:
    return {f"reddit:post:{post.id}" for posts in site.posts.values() for post in posts if post.created >= since}


def answered(site: RedditSite) -> list[float]:
    return [at for at, path, _ in site.asked if path.endswith(".rss")]


class Windows:
    """Which posts stayed among the newest of their group for one interval of the group: those must be delivered."""

    def __init__(self, line: InProcessPipeline, site: RedditSite) -> None:
        self.line, self.site, self.since, self.stayed = line, site, {}, set()

    def look(self) -> None:
        rows = list(Watch.select(Watch.ref, Watch.interval_seconds, Watch.adapter_state))
        members = [Member(row.ref, row.interval_seconds, json.loads(row.adapter_state or "{}")) for row in rows]
        plan, now = self.line.rt.adapter("reddit_subreddit").plan(members), self.line.clock()
        listed = {post.id for group in plan.groups for post in self.site.page(group, WINDOW)[0]}
        self.since = {post: self.since.get(post, now) for post in listed}
        most = plan.seconds + SLOT  # a silent subreddit that is read alone takes a slot between two reads of a group
        self.stayed |= {f"reddit:post:{post}" for post, at in self.since.items() if now - at >= most}


@dataclass(frozen=True)
class BusyTime:
    """What came of a busy time. `lost`: posts that stayed in their window and are no event; `passing`: posts that were
    approved so late that no window listed them for an interval, and are no event either."""

    posts: int
    requests: int
    extra: int
    lost: int
    passing: int
    shortest_gap: float
    refused: int


def busy_time(line: InProcessPipeline, site: RedditSite, names: list[str], hours: float) -> BusyTime:
    """16,000 posts a day, most of them in a few subreddits; every fourth is approved 15 minutes late."""
    line.run()
    line.wait(1200, step=30)  # the first read of a watch marks posts as seen
    began, rng, windows = line.clock(), random.Random(11), Windows(line, site)
    weights = [1 / (place + 1) for place in range(len(names))]
    while line.clock() < began + hours * HOUR:
        for name in rng.choices(names, weights, k=rng.randrange(12)):
            site.publish(name, at=line.clock() - rng.random() * 60, late=rng.choice([60, 60, 60, 900]))
        line.wait(30, step=30)
        windows.look()
    line.wait(900, step=30)
    published, found = expected(site, began - 60), keys()
    return BusyTime(
        posts=len(published),
        requests=len(answered(site)),
        extra=Event.select().count() - len(published & found),
        lost=len((windows.stayed & published) - found),
        passing=len(published - found - windows.stayed),
        shortest_gap=min(b - a for a, b in pairwise(answered(site))),
        refused=sum(status != 200 for *_, status in site.asked),
    )
