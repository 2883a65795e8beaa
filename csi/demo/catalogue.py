"""`csi demo --catalogue`: two weeks of statistics in a minute.

The worker's own jobs run in this process, with a clock that is moved by hand, against a simulated YouTube on loopback.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from secrets import token_hex

import yaml

from csi import clock
from csi.catalog import channel_admin
from csi.catalog.catalog_jobs import HANDLERS, plan_jobs
from csi.errors import CsiError
from csi.jobs import run_job
from csi.runtime import Runtime, open_runtime
from csi.simulator import http_server
from csi.simulator.youtube import app, content
from csi.simulator.youtube.world import World
from csi.store import api_units, db
from csi.store.catalog import jobs, movers, videos
from csi.store.catalog.movers import ChannelMover, VideoMover
from csi.store.queries import job_figures

HOUR, DAY = 3600.0, 86_400.0
DAYS = 14
UPLOADS_A_DAY = 0.5
"""For each channel."""
MOST_JOBS = 1_000
"""In one hour: a bound on what should be a few."""


@dataclass(frozen=True)
class CatalogueDay:
    """What the catalogue knows at the end of a simulated day."""

    date: str
    tiers: dict[str, int]
    captures: int
    units: int
    stats_units: int
    channels: tuple[ChannelMover, ...]


@dataclass
class CatalogueDemo:
    """The result of a run."""

    days: list[CatalogueDay] = field(default_factory=list)
    movers: list[VideoMover] = field(default_factory=list)
    dead_jobs: int = 0
    seconds: float = 0.0


class HandClock:
    """A clock that moves only when it is set."""

    def __init__(self, time: float) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time


def run(
    home: Path, *, number: int, show: Callable[[CatalogueDay], None], seconds: float | None = None, days: int = DAYS
) -> CatalogueDemo:
    """Move the clock hour by hour through so many days, at most for `seconds`. `show` gets each finished day."""
    moment, random, found = HandClock((clock.now() // HOUR - days * 24) * HOUR), Random(0), CatalogueDemo()
    world, begun = World(0), time.monotonic()
    ids = content.populate(world, channels=number, playlists=0, videos=40, at=moment())
    for place, ref in enumerate(ids.channels):
        world.grow_channel(ref, at=moment(), subscribers_per_day=(place + 1) * 400)
    with _simulator(world, moment) as base:
        rt = _runtime(home, base, moment)
        with contextlib.closing(rt.net), db.connection():
            for ref in ids.channels:
                channel_admin.register(rt, ref, watch=False)
            for hour in range(days * 24):
                _run_jobs(rt)
                if hour % 24 == 23:
                    day = CatalogueDay(
                        date=clock.iso(rt.now())[:10],
                        tiers={tier: videos.in_tier(tier) for tier in ("hot", "medium", "tail")},
                        captures=int(db.fetch("SELECT COUNT(*) FROM video_stats")[0][0]),
                        units=api_units.used(rt.now()),
                        stats_units=api_units.used(rt.now(), "stats"),
                        channels=tuple(movers.channels(rt.now() - 2 * DAY, 3)),
                    )
                    found.days.append(day)
                    show(day)
                if seconds is not None and time.monotonic() - begun > seconds:
                    break
                moment.time += HOUR
                for ref in ids.channels:
                    if random.random() < UPLOADS_A_DAY / 24:
                        _publish(world, ref, moment(), random)
            found.movers = movers.videos(rt.now() - DAY, 5)
            found.dead_jobs = job_figures.dead_count()
    found.seconds = round(time.monotonic() - begun, 1)
    return found


def _publish(world: World, ref: str, now: float, random: Random) -> None:
    """A new video, as the ingester adds one that a feed shows. One in five gets many views."""
    made = world.upload(ref, content.new_title(random), at=now)
    world.grow(made.id, at=now, views_per_hour=random.randrange(20, 500) * (100 if random.random() < 0.2 else 1))
    facts = videos.VideoFacts(made.id, ref, made.title, None, made.published_at)
    with db.writing():
        videos.add_unknown([(facts, videos.RefreshPlan("hot", now))], now)


def _run_jobs(rt: Runtime) -> None:
    run_job.requeue_failed_and_stuck(rt)
    plan_jobs(rt)
    for _ in range(MOST_JOBS):
        if not jobs.due(rt.now(), 1):
            return
        run_job.run_next_job(rt, HANDLERS)
    raise CsiError("the demo's jobs do not end; please report it")


def _runtime(home: Path, base: str, moment: HandClock) -> Runtime:
    api = {"api_base_url": base + app.API_PATH}
    feed = {"feed_url_template": f"{base}{app.FEED_PATH}?channel_id={{channel_id}}"}
    config = {
        "csi": {"state_dir": str(home), "log_level": "ERROR"},
        "sources": {
            "youtube_playlist": {"playlists": [], **api},
            "youtube_channel_rss": {"watchlist": [], **api, **feed},
        },
        "net": {"allowed_private_hosts": ["127.0.0.1"]},
    }
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    secrets = {"CSI_UA_SHARED_SECRET": token_hex(32), "YOUTUBE_API_KEY": "demo-key"}
    env = {"CSI_UA_ENDPOINT": "http://127.0.0.1:9/"} | secrets
    rt = open_runtime(file, env)
    rt.now = moment
    return rt


@contextlib.contextmanager
def _simulator(world: World, moment: HandClock) -> Iterator[str]:
    """The simulated YouTube in a thread; its clock is the demo's."""
    sock = http_server.listen("127.0.0.1", 0)
    server = http_server.make_server(app.create_app(world, app.YouTubeOptions(now=moment)))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), daemon=True)
    thread.start()
    try:
        yield http_server.base_url(sock)
    finally:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it reports the end as an error
        server.should_exit = True
        thread.join(10)
        sock.close()
