"""A catalogue over the simulated YouTube, in one thread and with a clock in hand: what the worker would do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from csi.catalog import channel_admin
from csi.catalog.due_jobs import plan_jobs
from csi.catalog.job_handlers import HANDLERS
from csi.jobs import job_rescue
from csi.jobs.run_job import run_next_job
from csi.runtime import Runtime
from csi.simulator.youtube.app import YouTubeOptions, YouTubeSite
from csi.simulator.youtube.world import SimulatedChannel, World
from csi.store import api_units, db
from csi.store.catalog import jobs
from csi.store.catalog.jobs import CatalogJob
from tests.fakes.line import Line
from tests.fakes.site_net import SiteNet

NOW = 1_771_761_600.0
HOUR, DAY = 3600.0, 86_400.0


class Shop:
    """A runtime, the world that it reads, and the jobs."""

    def __init__(self, line: Line, site: YouTubeSite) -> None:
        self.line, self.rt, self.clock, self.site, self.world = line, line.rt, line.clock, site, site.world
        self.net = SiteNet(site)
        self.use(line.rt)

    def use(self, rt: Runtime) -> None:
        rt.net = self.net  # type: ignore[assignment]
        rt.adapters.clear()
        self.rt = rt

    def channel(
        self, title: str = "Somebody", videos: int = 0, *, every: float = HOUR, **fields: Any
    ) -> SimulatedChannel:
        """A channel with so many videos, the newest an hour old."""
        made = self.world.add_channel(title, at=self.clock() - 2000 * DAY, **fields)
        for number in range(videos):
            self.world.upload(made.id, f"Video {number}", at=self.clock() - HOUR - number * every)
        return made

    def add(self, channel: SimulatedChannel, **wishes: Any) -> CatalogJob:
        added = channel_admin.register(self.rt, channel.id, **wishes)
        assert added.job is not None
        return added.job

    def run(self) -> int:
        """Everything that is due at this moment, to its end; how many jobs were carried out."""
        job_rescue.requeue_failed_and_stuck(self.rt)
        plan_jobs(self.rt)
        return self.work()

    def work(self) -> int:
        count = 0
        while jobs.due(self.clock(), 1):
            run_next_job(self.rt, HANDLERS)
            count += 1
            assert count < 10_000, "the jobs do not come to rest"
        return count

    def go(self, seconds: float, step: float = HOUR) -> None:
        """Time passes; the minute's plan runs at the full hour and a minute after every step."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.time = min((self.clock() // step + 1) * step + 1, end)
            self.run()

    def job(self, job_id: str) -> CatalogJob:
        found = jobs.find(job_id)
        assert found is not None
        return found

    @property
    def booked(self) -> int:
        return api_units.used(self.clock())

    @property
    def counted(self) -> int:
        """What the simulator counted."""
        return self.site.quota.used(self.clock())


@contextmanager
def shop(
    tmp_path: Path, clock: Any, *, quota: int = 10_000, catalog: dict[str, Any] | None = None, **more: Any
) -> Iterator[Shop]:
    sources = {
        "youtube_channel_rss": {"watchlist": [], "quota_limit": quota},
        "youtube_playlist": {"playlists": [], "quota_limit": quota},
    }
    options = YouTubeOptions(now=clock, quota=quota, **more.pop("site", {}))
    line = Line(tmp_path, clock, "http://127.0.0.1:9/", sources=sources, catalog=catalog or {}, **more)
    with db.connection():
        yield Shop(line, YouTubeSite(World(options.seed), options))
