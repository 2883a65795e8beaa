"""The pipeline in one thread with a manual clock: no Huey, no waiting."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from peewee import fn

from csi.catalog import channel_admin
from csi.catalog.catalog_jobs import HANDLERS, plan_jobs
from csi.jobs import run_job
from csi.jobs.run_job import run_next_job
from csi.pipeline import deliver, flush, inbound_process, ingest, live_start, poll, schedule, subscribe, watch_icons
from csi.pipeline.wake import Wake
from csi.runtime import Runtime, open_runtime
from csi.simulator.youtube.app import (
    YouTubeOptions,
    YouTubeSite,
)
from csi.simulator.youtube.content import ContentIds, populate
from csi.simulator.youtube.world import SimulatedChannel, World
from csi.store import api_units, db, inbox
from csi.store.catalog import jobs
from csi.store.catalog.jobs import CatalogJob
from csi.store.models import Watch
from csi.worker import maintenance
from csi.worker.maintenance import QueueHealth
from tests.conftest import HandClock
from tests.fakes.in_memory_playlists import InMemoryPlaylists, list_id
from tests.fakes.profile_receiver import delivery_to, receiver_of, secrets_for, welcome
from tests.fakes.raw_server import Canary
from tests.fakes.scripted_receiver import SECRET, Behaviour, ScriptedReceiver, accept
from tests.fakes.site_net import SiteNet
from tests.faults.oracle import Ledgers, read_books


class InProcessPipeline:
    """A runtime, and every wake-up of the pipeline carried out in the calling thread."""

    def __init__(
        self, tmp_path: Path, clock: Any, ua_url: str, *, secrets: dict[str, str] | None = None, **blocks: Any
    ) -> None:
        blocks.setdefault("csi", {})
        blocks["csi"] |= {"state_dir": str(tmp_path / "state"), "log_level": "ERROR"}
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(blocks))
        env = {"CSI_UA_ENDPOINT": ua_url, "CSI_UA_SHARED_SECRET": SECRET, "YOUTUBE_API_KEY": "demo-key"}
        self.clock = clock
        self.rt: Runtime = open_runtime(config, env | (secrets or {}))
        self.rt.now = clock
        self.rt.rng = random.Random(7)
        self.scheduled: list[Wake] = []
        schedule.sync_watches(self.rt)

    def run_without_delivery(self) -> None:
        """`run` with `features.delivery` switched off: events wait in the outbox."""
        settings = self.rt.settings
        off = settings.features.model_copy(update={"delivery": False})
        self.rt.settings = settings.model_copy(update={"features": off})
        self.run()
        self.rt.settings = settings

    def run(self) -> None:
        """Carry out everything that is due now, and everything that follows from it."""
        todo = [*self.take_due(), *maintenance.run_pass(self.rt, QueueHealth(0), self.clock(), with_heartbeat=True)]
        for _ in range(10_000):
            if not todo:
                return
            todo += self._take(self.step(todo.pop(0)))
        raise AssertionError("the pipeline always has another step to run")

    def step(self, wake: Wake) -> Sequence[Wake]:
        match wake.step:
            case "poll":
                return [wake for wakes in poll.poll(self.rt, int(wake.key)) for wake in wakes]
            case "ingest":
                return ingest.ingest(self.rt, int(wake.key))
            case "flush":
                return flush.flush(self.rt, str(wake.key))
            case "probe":
                return deliver.probe(self.rt, str(wake.key))
            case "test":
                return deliver.test(self.rt, str(wake.key))
            case "inbound":
                return inbound_process.process(self.rt, int(wake.key))
            case "streams":
                return live_start.check(self.rt, str(wake.key))
            case "icons":
                watch_icons.find(self.rt, str(wake.key))
                return []
            case "subscribe":
                return subscribe.subscribe(self.rt, int(wake.key))
            case "deliver":
                return [wake for wakes in deliver.deliver(self.rt, int(wake.key)) for wake in wakes]
            case "ahead":
                return ingest.ingest_ahead(self.rt)
            case unknown:
                raise AssertionError(f"this rig has no step {unknown!r}")

    def wait(self, seconds: float, step: float = 1.0) -> None:
        """Move the clock in steps, and run the pipeline after each."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.move(min(step, end - self.clock(), self._next_wake()))
            self.run()

    def _next_wake(self) -> float:
        """Seconds until the next scheduled wake-up: a coarse step must not make a retry late."""
        return max(min((wake.at or 0.0 for wake in self.scheduled), default=float("inf")) - self.clock(), 0.001)

    def _take(self, wakes: Sequence[Wake]) -> list[Wake]:
        self.scheduled += [wake for wake in wakes if wake.at is not None and wake.at > self.clock()]
        return [wake for wake in wakes if wake.at is None or wake.at <= self.clock()]

    def take_due(self) -> list[Wake]:
        """Remove the scheduled wake-ups whose time has come, and return them."""
        due = [wake for wake in self.scheduled if wake.at is not None and wake.at <= self.clock()]
        self.scheduled = [wake for wake in self.scheduled if wake not in due]
        return due


class LedgerPipeline(InProcessPipeline):
    """Polls in-memory playlists and delivers to a scripted receiver; both keep the ledgers that the oracle compares."""

    def __init__(
        self, home: Path, clock: HandClock, ua: ScriptedReceiver, canary: Canary, *, lists: int, **options: Any
    ) -> None:
        super().__init__(home, clock, ua.url, **_playlist_config(lists, **options))
        self.ua, self.canary = ua, canary
        self.lists = [list_id(number) for number in range(lists)]
        self.shelf = InMemoryPlaylists(self.rt.settings.sources["youtube_playlist"])
        self.rt.adapters["youtube_playlist"] = self.shelf

    def publish(self, number: int, *, ref: int = 0, title: str = "Item {}", spacing: float = 0.0) -> list[str]:
        """Add `number` new items to one list, or to all lists in rotation (`ref=-1`); return their keys."""
        start = self.clock() - spacing * number
        return [
            self.shelf.put(
                self.lists[index % len(self.lists) if ref < 0 else ref], start + spacing * index, title.format(index)
            )
            for index in range(number)
        ]

    def back_in(self, limit: float = 90.0, step: float = 1.0) -> float:
        """Wait until nothing is waiting any more (I9); return the seconds that passed, at most `limit`."""
        start = self.clock()
        while self.clock() - start < limit and self.waiting():
            self.wait(step, step=step)
        return self.clock() - start

    def waiting(self) -> int:
        """Count what is not settled: inbox, outbox, and dead letters that auto-redrive will send."""
        return sum(self.count(query) for query in _WAITING)

    def count(self, query: str) -> int:
        return int(db.fetch(query)[0][0])

    def states(self) -> dict[str, int]:
        return dict(db.fetch("SELECT state, COUNT(*) FROM events GROUP BY state"))

    def heal(self, behaviour: Behaviour = accept) -> None:
        """Drop the receiver's script; from now on it answers with `behaviour`."""
        self.ua.script, self.ua.then = [], behaviour

    def books(self) -> Ledgers:
        return read_books(
            lambda query: db.fetch(query),
            served=self.shelf.served,
            taken=self.ua.taken,
            contacted=self.canary.contacted,
        )


_WAITING = (
    "SELECT COUNT(*) FROM inbox WHERE state = 'new'",
    "SELECT COUNT(*) FROM outbox",
    "SELECT COUNT(*) FROM dead_letter WHERE state IN ('open', 'replaying') AND cause IN ('transient', 'destination')",
)


@contextmanager
def ledger_pipeline(
    home: Path,
    *script: Behaviour,
    then: Behaviour | None = None,
    lists: int = 1,
    profile: str | None = None,
    **options: Any,
) -> Iterator[LedgerPipeline]:
    """`profile`: the only destination has this profile, with the keys of `destination`; else it is the default one."""
    clock = options.pop("clock", None) or HandClock()
    kind = receiver_of(profile) if profile else ScriptedReceiver
    with (
        kind(*script, then=then or (welcome if profile else accept), now=clock) as ua,
        Canary() as canary,
        db.connection(),
    ):
        if profile:
            more = options.pop("destination", {})
            options |= {"delivery": delivery_to(ua.url, profile, **more), "secrets": secrets_for(ua.url)}
        built = LedgerPipeline(home, clock, ua, canary, lists=lists, **options)
        try:
            yield built
        finally:
            built.rt.net.close()


def _playlist_config(
    lists: int,
    *,
    tier: str = "urgent",
    interval: float = 10,
    first_poll: Any = "all",
    database: str | None = None,
    **blocks: Any,
) -> dict[str, Any]:
    """One playlist source; `delivery`, `dlq` and the other blocks as in the config file."""
    source = {
        "first_poll": first_poll,
        "poll_interval_seconds": interval,
        "priority": tier,
        "quota_limit": 1_000_000,
        "api_base_url": "http://127.0.0.1:9/never",
        "adaptive_polling": {"enabled": False},
        "playlists": [{"id": list_id(number)} for number in range(lists)],
    }
    own = {"csi": {"database": database}} if database else {}
    return {"sources": {"youtube_playlist": source}, **own, **blocks}


class SimulatedSiteRig:
    """A pipeline that reads the simulated YouTube by function call instead of over HTTP."""

    def __init__(self, pipeline: InProcessPipeline, site: YouTubeSite) -> None:
        self.clock, self.site, self.world = pipeline.clock, site, site.world
        self.use(pipeline)

    def use(self, pipeline: InProcessPipeline) -> None:
        """Read with this pipeline from now on, as after a restart of the worker."""
        self.pipeline, self.rt, self.net = pipeline, pipeline.rt, SiteNet(self.site)
        self.rt.net = self.net  # type: ignore[assignment]
        self.rt.adapters.clear()


class PollingPipeline(SimulatedSiteRig):
    """Polls and ingests, and delivers nothing. The clock moves from one due watch to the next."""

    def __init__(self, pipeline: InProcessPipeline, site: YouTubeSite, content: ContentIds) -> None:
        super().__init__(pipeline, site)
        self.channels, self.playlists, self.library = content.channels, content.playlists, content.library

    def run(self) -> None:
        """Poll every watch that is due now, and ingest what the polls found."""
        due = [*self.pipeline.take_due(), *schedule.plan(self.rt, horizon=0)]
        for wake in due:
            if wake.at is not None and wake.at > self.clock():
                self.pipeline.scheduled.append(wake)
            elif wake.step == "poll":
                self._poll(int(wake.key))
            else:
                self._ingest([int(wake.key)])
        self._ingest(inbox.overdue(self.clock()))

    def until(self, moment: float, step: float = 0.5) -> None:
        self.run()
        while self.clock() < moment:
            self.clock.time = min(max(self._next(), self.clock() + step), moment)
            self.run()

    def go(self, seconds: float, step: float = 0.5) -> None:
        self.until(self.clock() + seconds, step)

    def upload(self, channel: str, title: str = "A new video", **fields: Any) -> str:
        return self.world.upload(channel, title, **{"at": self.clock(), **fields}).id

    def _next(self) -> float:
        waiting = db.value("SELECT MIN(wake_at) FROM inbox WHERE state = 'new'")
        due = Watch.select(fn.MIN(Watch.wake_at)).where(Watch.state == "active").scalar()
        scheduled = [wake.at for wake in self.pipeline.scheduled if wake.at is not None]
        return min(at for at in (waiting, due, *scheduled, self.clock() + 3600) if at is not None)

    def _poll(self, watch_id: int) -> None:
        for wakes in poll.poll(self.rt, watch_id):
            self._ingest([int(wake.key) for wake in wakes if wake.step == "ingest" and wake.at is None])
            self.pipeline.scheduled += [wake for wake in wakes if wake.at is not None]

    def _ingest(self, ids: list[int]) -> None:
        for item_id in ids:
            ingest.ingest(self.rt, item_id)


@contextmanager
def polling_pipeline(
    tmp_path: Path,
    clock: Any,
    *,
    channels: int = 0,
    playlists: int = 0,
    videos: int = 0,
    feeds: dict[str, Any] | None = None,
    lists: dict[str, Any] | None = None,
    site: YouTubeOptions | None = None,
    csi: dict[str, Any] | None = None,
) -> Iterator[PollingPipeline]:
    """A site with channels and playlists of `videos` items each, and the pipeline that polls them."""
    options = site or YouTubeOptions(now=clock)
    world = World(options.seed)
    content = populate(world, channels=channels, playlists=playlists, videos=videos, at=clock())
    sources = {
        "youtube_channel_rss": {"watchlist": [{"channel_id": ref} for ref in content.channels], **(feeds or {})},
        "youtube_playlist": {"playlists": [{"id": ref} for ref in content.playlists], **(lists or {})},
    }
    pipeline = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources=sources, csi=dict(csi or {}))
    with db.connection():
        yield PollingPipeline(pipeline, YouTubeSite(world, options), content)


HOUR, DAY = 3600.0, 86_400.0


class CatalogPipeline(SimulatedSiteRig):
    """Runs the catalogue's jobs over the simulated YouTube, as the worker would."""

    def channel(
        self, title: str = "A channel", videos: int = 0, *, every: float = HOUR, **fields: Any
    ) -> SimulatedChannel:
        """Add a channel with so many videos; the newest was published an hour ago."""
        made = self.world.add_channel(title, at=self.clock() - 2000 * DAY, **fields)
        for number in range(videos):
            self.world.upload(made.id, f"Video {number}", at=self.clock() - HOUR - number * every)
        return made

    def add(self, channel: SimulatedChannel, **wishes: Any) -> CatalogJob:
        added = channel_admin.register(self.rt, channel.id, **wishes)
        assert added.job is not None
        return added.job

    def run(self) -> int:
        """Plan what is due now and run all of it; return the number of jobs that ran."""
        run_job.requeue_failed_and_stuck(self.rt)
        plan_jobs(self.rt)
        return self.work()

    def work(self) -> int:
        count = 0
        while jobs.due(self.clock(), 1):
            run_next_job(self.rt, HANDLERS)
            count += 1
            assert count < 10_000, "there is always another job due"
        return count

    def go(self, seconds: float, step: float = HOUR) -> None:
        """Move the clock to one second after every full `step`, and run what is due there."""
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
        """API units that CSI recorded today."""
        return api_units.used(self.clock())

    @property
    def counted(self) -> int:
        """API units that the simulated YouTube counted today."""
        return self.site.quota.used(self.clock())


@contextmanager
def catalog_pipeline(
    tmp_path: Path, clock: Any, *, quota: int = 10_000, catalog: dict[str, Any] | None = None, **more: Any
) -> Iterator[CatalogPipeline]:
    sources = {
        "youtube_channel_rss": {"watchlist": [], "quota_limit": quota},
        "youtube_playlist": {"playlists": [], "quota_limit": quota},
    }
    options = YouTubeOptions(now=clock, quota=quota, **more.pop("site", {}))
    pipeline = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources=sources, catalog=catalog or {}, **more)
    with db.connection():
        yield CatalogPipeline(pipeline, YouTubeSite(World(options.seed), options))
