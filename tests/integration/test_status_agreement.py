"""Every surface gives the same answer: the command line, the admin API, the dashboard and the metrics.

Each case is a generated history: events of all tiers to two destinations, malformed items, answers of every kind,
retries, dead letters, replays, and events that still wait. It fails when one surface computes its own figure.
"""

import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import time_machine
from click.testing import CliRunner
from peewee import OperationalError
from prometheus_client.parser import text_string_to_metric_families

import csi.status
from csi import clock as times
from csi.catalog.data_api import UNITS
from csi.cli.main import cli
from csi.dlq import dead_letters, replay, search
from csi.dlq.search import DeadLetterFilter
from csi.ingester.event import CreatorSignalEvent
from csi.pipeline import deliver, flush
from csi.status import (
    alert_overview,
    audit_sentences,
    backlog,
    delivery_problems,
    destination_details,
    destinations,
    facts,
    first_reads,
    host_pace,
    mutes,
    overview,
    push,
    read_history,
    sidecar,
    slo,
    storage,
    storage_problems,
    timeline,
    upcoming,
    verdict,
    watch_list,
    watch_states,
    worker,
    worker_problems,
)  # fmt: skip
from csi.store import (
    api_units,
    backlog_samples,
    backups,
    counters,
    db,
    events,
    heartbeats,
    host_pacing,
    hosts,
    inbox,
    incidents,
    outbox,
    poll_history,
    reload_results,
    watches,
)
from csi.store.backups import Backup
from csi.store.catalog import jobs
from csi.store.catalog.jobs import NewCatalogJob
from csi.store.counters import Count
from csi.store.destinations import change
from csi.store.inbox import NewItem
from csi.store.queries import charts, event_search
from csi.store.queries.event_search import EventQuery
from csi.web.app import create_app
from csi.worker import maintenance
from tests.conftest import HandClock
from tests.fakes.scripted_receiver import SECRET, ReceivedRequest, Reply, ScriptedReceiver, accept
from tests.rigs import status_figures
from tests.rigs.in_process import InProcessPipeline
from tests.rigs.operator import operator_rig, queue_message
from tests.rigs.status_figures import Moment, tells

SOURCE = "youtube_playlist"
TOKEN = "agreement-admin-token-01"
TIERS = ("urgent", "standard", "high_volume")
SEEDS = range(8)


class History:
    """An installation whose past is drawn at random."""

    playlists, quota_limit = ("PLone", "PLtwo"), 10_000

    def __init__(self, home: Path, seed: int, urls: dict[str, str]) -> None:
        self.seed, self.draw, self.clock, self.count = seed, random.Random(seed), HandClock(), 0
        archive = {"endpoint": urls["archive"], "secret_env": "ARCHIVE_SECRET"}
        self.secrets = {"ARCHIVE_SECRET": SECRET, "CSI_ADMIN_TOKEN": TOKEN}
        self.config = home / "config.yaml"
        self.env = {"CSI_UA_ENDPOINT": urls["default"], "CSI_UA_SHARED_SECRET": SECRET, "YOUTUBE_API_KEY": "demo-key"}
        sources = {SOURCE: {"playlists": [{"id": ref} for ref in self.playlists], "quota_limit": self.quota_limit}}
        self.line = InProcessPipeline(
            home,
            self.clock,
            urls["default"],
            secrets=self.secrets,
            sources=sources,
            features={"polling": False},
            delivery={"destinations": {"archive": archive}},
        )
        watch = watches.find(watches.find_id(SOURCE, "PLone") or 0)
        assert watch is not None
        db.run("UPDATE watches SET first_read_at = ?", self.clock() - 3 * 3600)
        self.watch = watch

    def answer(self, request: ReceivedRequest) -> Reply:
        size = len(request.event_ids)
        kind = self.draw.choices(
            ["yes", "partial", "known", "busy", "gateway", "wait", "refuse"], [10, 5, 2, 2, 2, 1, 1]
        )[0]
        match kind:
            case "partial" if size:
                chosen = self.draw.sample(range(size), self.draw.randint(1, size))
                words = [self.draw.choice(["invalid_schema", "duplicate_event"]) for _ in chosen]
                errors = [{"index": index, "error": word} for index, word in zip(chosen, words, strict=True)]
                body = {"ok": False, "accepted": size - len(chosen), "rejected": len(chosen), "errors": errors}
                return 207, body, {}
            case "known":
                return 409, {"ok": True}, {}
            case "busy" | "gateway":
                return (503 if kind == "busy" else 502), {"ok": False}, {}
            case "wait":
                return 429, {"ok": False}, {"Retry-After": str(self.draw.randint(5, 300))}
            case "refuse":
                return 422, {"ok": False, "error": "invalid_schema"}, {}
        return accept(request)

    def happen(self) -> None:
        """Most of it lies within the last day, some before."""
        for _ in range(self.draw.randint(6, 14)):
            for _ in range(self.draw.randint(1, 7)):
                self.add_event()
            if self.draw.random() < 0.4:
                self.add_malformed_item()
            self.line.run()
            self.line.wait(self.draw.choice([3, 40, 200]), step=20.0)
            if self.draw.random() < 0.3:
                self.replay_some()
            self.clock.move(self.draw.choice([10, 600, 4_000, 12_000]))
        for _ in range(self.draw.randint(0, 4)):
            self.add_event()
        if self.draw.random() < 0.7:
            maintenance.write_heartbeat(self.line.rt, self.clock())

    def add_event(self) -> None:
        self.count += 1
        now, tier = self.clock(), self.draw.choice(TIERS)
        name = f"{self.draw.choice(['Alpha', 'Beta', 'Gamma'])}{self.count:04d}"
        event = CreatorSignalEvent(
            event_id=f"src:{name}",
            dedupe_key=f"key:{name}",
            source=SOURCE,
            event_type="video_added_to_playlist",
            occurred_at=times.iso(now - self.draw.choice([2, 25, 400, 100_000])),
            received_at=times.iso(now),
            subject={"video_id": name, "title": f"Title of {name}"},
            routing={"pipeline": "p", "priority": tier, "tags": []},
        )
        to = self.draw.choice([["default"], ["archive"], ["default", "archive"]])
        with db.writing():
            pk = events.add(event, watch_id=self.watch.id, seq=self.count, tier=tier, first_seen_at=now)
            assert pk is not None
            outbox.put(
                pk, to, tier=tier, watch_id=self.watch.id, seq=self.count, due_at=now + self.draw.choice([0, 30])
            )

    def add_malformed_item(self) -> None:
        self.count += 1
        key, now = f"malformed:x:{self.count}", self.clock()
        with db.writing():
            dead_letters.add_item(key, SOURCE, {}, cause="malformed", reason="no title", seen_at=now, now=now)

    def replay_some(self) -> None:
        ids = search.ids(DeadLetterFilter())
        chosen = self.draw.sample(ids, min(len(ids), 3))
        with db.writing():
            replay.replay(dead_letters.by_ids(chosen), self.clock(), known=self.line.rt.destinations)

    def command(self, *words: str) -> Any:
        db.database.close()
        result = CliRunner().invoke(cli, [*words, "--config", str(self.config), "--json"], env=self.env | self.secrets)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return json.loads(result.stdout)


class TroubledHistory(History):
    """Ends with what the events alone do not bring: late and failing watches, items in the inbox, a destination that
    is away or paused, used API units, outages, jobs, backups and incidents."""

    playlists, quota_limit = ("PLone", "PLtwo", "PLthree", "PLfour", "PLfive", "PLsix"), 2_000

    def happen(self) -> None:
        super().happen()
        self.switch_polling_on()
        now, draw = self.clock(), self.draw
        self.line.rt.process.queue_depth = draw.randint(1, 9)
        with db.writing():
            self.add_watch_states(now)
            self.add_items(now)
            self.add_counts(now)
            self.add_jobs(now)
            self.add_upkeep(now)
            host_pacing.learn("busy.example", draw.uniform(20, 90), 429, now, throttled=True)
        self.add_batches(now)
        self.add_destination_states(now)
        if draw.random() < 0.6:
            maintenance.write_heartbeat(self.line.rt, now - draw.choice([60, 9_000]))
        self.clock.move(draw.choice([4, 4, 90]))

    def switch_polling_on(self) -> None:
        """Only now: while the history happens nothing may be polled."""
        self.config.write_text(self.config.read_text().replace("polling: false", "polling: true"))
        settings = self.line.rt.settings
        features = settings.features.model_copy(update={"polling": True})
        self.line.rt.settings = settings.model_copy(update={"features": features})

    def add_watch_states(self, now: float) -> None:
        host = "www.googleapis.com"
        for row in watches.active():
            read_at = self.draw.choice([None, now - 20, now - 2_000])
            health = self.draw.choice(["healthy", "healthy", "backing_off", "suspect", "dead"])
            values = {
                "state": self.draw.choice(["active", "active", "active", "paused"]),
                "next_poll_at": now + self.draw.choice([30, 500, -50, -50_000]),
                "last_success_at": read_at,
                "last_poll_at": read_at,
                "last_new_at": read_at,
                "health": health if read_at else "healthy",
                "errors": 4 if read_at and health != "healthy" else 0,
                "health_since": now - 900 if read_at and health != "healthy" else None,
                "host": host,
                "name": "A playlist",
                "lease_token": self.draw.choice([None, None, "token"]),
                "lease_until": now + 60,
            }
            sql = f"UPDATE watches SET {', '.join(f'{name} = ?' for name in values)} WHERE id = ?"
            db.run(sql, *values.values(), row.id)
        if self.draw.random() < 0.7:
            hosts.begin_outage(hosts.get(host), now - 400, "http 503", 3)
        if self.draw.random() < 0.7:
            hosts.pause(hosts.get("www.youtube.com"), now, now + 300, "http 429")

    def add_items(self, now: float) -> None:
        new = [NewItem(f"item:{number}", "video_added_to_playlist", times.iso(now), {}) for number in range(5)]
        put = inbox.put(self.watch, new[: self.draw.randint(2, 5)], now - self.draw.randint(5, 500))
        db.run("UPDATE inbox SET state = 'quarantined' WHERE id = ?", put[0])

    def add_counts(self, now: float) -> None:
        words = {
            "items": ("new", "known", "filtered"),
            "polls": ("ok", "error"),
            "gaps": ("filled", "open"),
            "pushes": ("push", "miss"),
        }
        for name, labels in (words | {"outages": ("began", "ended")}).items():
            counters.add_all([Count(name, self.draw.randint(1, 99), SOURCE, label) for label in labels])
        for name, labels in {"config_reloads": ("loaded", "refused"), "notifications": ("sent", "failed")}.items():
            counters.add_all([Count(name, self.draw.randint(1, 99), "", label) for label in labels])
        counters.add_all([Count("pushes", 7, SOURCE, "push"), Count("inbound", 5, "", "stored")])
        counters.add_all(counters.observed("poll_seconds", [0.2, 0.7, 40.0], counters.POLL_BUCKETS, source=SOURCE))
        for tier in TIERS:
            seconds = [self.draw.uniform(0, 9_000) for _ in range(9)]
            counters.add_all(counters.observed("seen_seconds", seconds, counters.AGE_BUCKETS, source=tier))

    def add_jobs(self, now: float) -> None:
        for number, state in enumerate(("pending", "running", "failed", "dead")):
            new = NewCatalogJob("REFRESH_HOT_VIDEOS", f"job:{number}", scheduled_at=now - self.draw.randint(10, 900))
            db.run(
                "UPDATE jobs SET status = ?, error_message = 'http 500' WHERE id = ?",
                state,
                jobs.enqueue(new, now - 1_000).job.id,
            )
        counters.add("jobs", self.draw.randint(1, 99), source="REFRESH_HOT_VIDEOS", label="completed")
        limit = self.line.rt.api_limit()
        api_units.book_share(self.draw.randint(5, 60), limit, UNITS, 3_000, now)
        api_units.book(self.draw.choice([40, 400, 1_900]), limit, now)
        api_units.book(self.draw.randint(1, 90), limit, now, "stats")

    def add_upkeep(self, now: float) -> None:
        backups.note(Backup(now - self.draw.randint(100, 500_000), "/backup/a", self.draw.randint(1, 90), 12_345, None))
        if self.draw.random() < 0.5:
            backups.note(Backup(now - 50, "/backup/b", None, None, "no space is left"))
            reload_results.note(now - 30, "sources: unknown key")
        for _ in range(self.draw.randint(0, 2)):
            texts = {"what": "items were missed", "effect": "they are not delivered", "remedy": "`csi sources list`"}
            incidents.report(
                "items_missed", SOURCE, **texts, now=now - 900, cause="a gap", events=self.draw.randint(2, 9)
            )

    def add_batches(self, now: float) -> None:
        for _ in range(self.draw.randint(2, 9)):
            self.add_event()
        self.clock.move(31)
        for lane in ("default/urgent", "archive/standard"):
            flush.flush(self.line.rt, lane)
        if self.draw.random() < 0.5:
            newest = "SELECT MAX(id) FROM batches WHERE state = 'ready'"
            sql = f"UPDATE batches SET state = 'sending', lease_until = ? WHERE id = ({newest})"
            db.run(sql, self.clock() + 30)
        last = "SELECT MAX(batch_id) FROM delivery_attempts WHERE outcome = 'delivered'"
        db.run(f"UPDATE batches SET tier = 'resend' WHERE id = ({last})")
        for name in self.line.rt.destinations:
            backlog_samples.take(name, (*TIERS, "stream"), now - 600, self.clock() - 5)

    def add_destination_states(self, now: float) -> None:
        opened = {"circuit": "open", "reason": "http 503", "opened_at": now - 60, "failing_since": now - 70}
        states = [
            opened | {"next_probe_at": now + 500},
            opened | {"next_probe_at": now - 10},
            {"paused_reason": "repairs", "paused_at": now - 100},
            {
                "throttled_until": now + 500,
                "throttled_at": now - 5,
                "last_error": "http 429",
                "last_failure_at": now - 5,
            },
            {"certificate_expires_at": now + 5 * 86_400},
            {},
        ]
        for place, name in enumerate(self.line.rt.destinations):  # by turns, so that each is in every state once
            if chosen := states[(self.seed + place) % len(states)]:
                change(name, **chosen)


@contextmanager
def history(home: Path, seed: int, *, with_problems: bool = False) -> Iterator[History]:
    built: list[History] = []
    answers = {"then": lambda request: built[0].answer(request)}
    with ScriptedReceiver(**answers) as ua, ScriptedReceiver(**answers) as archive, db.connection():
        kind = TroubledHistory if with_problems else History
        built.append(kind(home, seed, {"default": ua.url, "archive": archive.url}))
        built[0].happen()
        yield built[0]


class Surfaces:
    """The same moment, asked through every surface."""

    def __init__(self, past: History, client: httpx.AsyncClient) -> None:
        self.past, self.client = past, client

    async def api(self, path: str) -> Any:
        answer = await self.client.get(f"/admin{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def metrics(self) -> dict[tuple[str, ...], float]:
        page = (await self.client.get("/metrics")).text
        families = text_string_to_metric_families(page)
        return {(one.name, *sorted(one.labels.values())): one.value for f in families for one in f.samples}

    async def text(self, path: str) -> str:
        return (await self.client.get(path)).text

    async def page(self) -> str:
        await self.client.post("/login", data={"token": TOKEN, "next": "/"})
        return await self.text("/")

    async def dashboard(self) -> str:
        page = await self.page()
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


@contextmanager
def surfaces(past: History) -> Iterator[Surfaces]:
    """All at the last moment of the history; commands read the real clock, which stands still there."""
    app = create_app(lambda: past.line.rt)
    with time_machine.travel(past.clock(), tick=False):
        yield Surfaces(past, httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1"))


ANSWERS = {
    "/status": "API_STATUS",
    "/slo?window=24h": "SLO",
    "/slo?window=1h": "SLO_HOUR",
    "/problems": "PROBLEM_LIST",
    "/backlog": "BACKLOG",
    "/queue": "QUEUE",
    "/quota": "QUOTA",
}
"""The table of each answer of the admin API."""
COMMANDS = {"status": "STATUS", "slo": "SLO", "slo --since 1h": "SLO_HOUR"}
NEVER_HAPPENS = {
    "readiness.database.note": "the write-ahead log would have to be long",
    "worker.clock_hold": "the clock would have to jump; tests/integration/test_clock_hold.py",
    "notices: Since": "no notice has a time",
    "catalogue.needed_per_day": "no channel is in the catalogue; tests/integration/test_web_catalogue.py",
    "catalogue.needed_a_day": "no channel is in the catalogue",
    "catalogue.stats_needed_per_day": "no channel is in the catalogue; tests/integration/test_catalogue_refresh.py",
    "catalogue.stats_refused": "no statistics are read; tests/integration/test_catalogue_refresh.py",
    "notes": "every window lies within what is stored",
    "host_pacing[].plan": "no subreddit is watched; tests/integration/test_cli_sources.py",
}
"""Rows that no history fills, and the reason."""


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_surface_gives_the_same_numbers(tmp_path: Path, seed: int) -> None:
    """Each figure equals the answer of csi/status that its row in tests/rigs/status_figures.py names."""
    with history(tmp_path, seed, with_problems=True) as past, surfaces(past) as ask:
        at = Moment(past.line.rt)
        series, page = (
            status_figures.series_of(await ask.text("/metrics")),
            status_figures.overview_figures(await ask.page()),
        )
        wrong = status_figures.differences("/metrics", "METRICS", status_figures.METRICS, series, at)
        wrong += status_figures.differences("the dashboard's overview", "OVERVIEW", status_figures.OVERVIEW, page, at)
        for path, table in ANSWERS.items():
            wrong += documents_differ(f"/admin{path}", table, await ask.api(path), at)
        for words, table in COMMANDS.items():
            wrong += documents_differ(f"csi {words} --json", table, past.command(*words.split()), at)
        assert past.command("tasks", "list")["backlog"] == past.command("status")["backlog"]
    assert not wrong, "\n".join(wrong)


def documents_differ(surface: str, table: str, document: Any, at: Moment) -> list[str]:
    rows = getattr(status_figures, table)
    return status_figures.differences(surface, table, rows, status_figures.leaves_of(document, rows), at)


def test_no_row_of_the_tables_is_vacuous(tmp_path: Path) -> None:
    """In some history every row has a value that a wrong figure would differ from."""
    tables = {
        name: getattr(status_figures, name) for name in ("METRICS", "OVERVIEW", *ANSWERS.values(), *COMMANDS.values())
    }
    told: set[tuple[str, str]] = set()
    for seed in SEEDS:
        home = tmp_path / str(seed)
        home.mkdir()
        with history(home, seed, with_problems=True) as past:
            at = Moment(past.line.rt)
            told |= {(table, name) for table, rows in tables.items() for name, row in rows.items() if tells(row(at))}
    silent = {(table, name) for table, rows in tables.items() for name in rows} - told
    missing = sorted(f"{table}: {name}" for table, name in silent if name not in NEVER_HAPPENS)
    assert not missing, f"these rows compare nothing: let a history contain it in add_problems\n{missing}"


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_surface_counts_events_and_not_batches(tmp_path: Path, seed: int) -> None:
    """The figures against the rows themselves, counted one by one."""
    with history(tmp_path, seed) as past, surfaces(past):
        slo, since = past.command("slo"), past.clock() - 86_400
        states = [row[0] for row in db.fetch("SELECT state FROM events WHERE first_seen_at >= ?", since)]
        assert (slo["delivery"]["delivered"], slo["delivery"]["dead"]) == (
            states.count("delivered"),
            states.count("dead"),
        )
        accepted = 0
        sql = (
            "SELECT b.size, a.status, a.answer FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id "
            "WHERE a.outcome IN ('delivered', 'partial') AND a.started_at >= ?"
        )
        for size, status, answer in db.fetch(sql, since):
            errors = json.loads(answer).get("errors", []) if status == 207 else []
            accepted += size - sum(error["error"] != "duplicate_event" for error in errors)
        assert slo["duplicates"]["sent"] == accepted


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["alpha", "Title of B", "key:Gamma", "src:", "%", "nothing"])
async def test_the_search_finds_the_same_events_everywhere(tmp_path: Path, text: str) -> None:
    with history(tmp_path, 5) as past, surfaces(past) as ask:
        by_command = [
            one["event_id"] for one in past.command("events", "list", "--search", text, "--limit", "500")["events"]
        ]
        answer = await ask.api(f"/events?q={httpx.QueryParams({'q': text})['q'].replace('%', '%25')}&limit=500")
        assert [one["event_id"] for one in answer["events"]] == by_command
        await ask.dashboard()
        shown, before = [], ""
        while True:
            page = (await ask.client.get("/events", params={"q": text, "after": before})).text
            shown += re.findall(r'class="name" href="/events/(\d+)"', page)
            older = re.search(r"after=(\d+)", page)
            if older is None:
                break
            before = older[1]
        assert len(shown) == len(by_command)


# --- the read side never writes


READS = [
    lambda rt: alert_overview.alert_overview(rt),
    lambda rt: audit_sentences.page(100),
    lambda rt: watch_list.watch_list(rt, watch_list.WatchListQuery()),
    lambda rt: backlog.backlog(rt),
    lambda rt: charts.flow_chart(rt.now(), 3600.0, 60),
    lambda rt: destinations.all_destinations(rt),
    lambda rt: [destination_details.details(rt, one.name) for one in destination_details.summaries(rt)],
    lambda rt: list(delivery_problems.problems(facts.gather(rt))),
    lambda rt: facts.gather(rt),
    lambda rt: list(first_reads.first_reads(rt, 0.0)),
    lambda rt: host_pace.host_paces(rt),
    lambda rt: push.push_facts(rt),
    lambda rt: [read_history.read_summary(poll_history.of_watch(row.id)) for row in watches.active()],
    lambda rt: mutes.active_mutes(rt),
    lambda rt: overview.overview(rt),
    lambda rt: event_search.page(EventQuery(text="alpha"), 5),
    lambda rt: event_search.find("src:Alpha0001"),
    lambda rt: slo.reports(rt, [slo.HOUR, slo.DAY]),
    lambda rt: storage.storage_status(rt, worker.worker_status(rt)),
    lambda rt: [timeline.timeline_of(rt, row.dedupe_key) for row in event_search.newest(EventQuery(), 500)],
    lambda rt: timeline.trace(rt, "src:Alpha0001"),
    lambda rt: upcoming.upcoming(rt),
    lambda rt: verdict.verdict(rt),
    lambda rt: watch_states.watch_counts(rt),
    lambda rt: worker.worker_status(rt),
    lambda rt: list(worker_problems.problems(facts.gather(rt))),
    lambda rt: list(storage_problems.problems(facts.gather(rt))),
    lambda rt: sidecar.sidecar_address(rt),
]


def test_every_function_of_the_read_side_works_on_a_database_that_refuses_writes(tmp_path: Path) -> None:
    with history(tmp_path, 4) as past:
        db.run("PRAGMA query_only = ON")
        with pytest.raises(OperationalError, match="readonly"):
            db.run("DELETE FROM events")
        for read in READS:
            read(past.line.rt)
        db.run("PRAGMA query_only = OFF")


def test_no_module_of_the_read_side_is_left_out() -> None:
    modules = {path.stem for path in Path(csi.status.__file__).parent.glob("*.py")} - {"__init__"}
    names = {name for name in modules if not name.endswith("problems")}  # rules over facts
    source = Path(__file__).read_text().partition("READS = [")[2].partition("\n]\n")[0]
    called = set(re.findall(r"(\w+)\.\w+\(", source))
    assert names <= called


# --- answers that contradicted each other


def test_an_event_that_a_207_refused_is_shown_as_refused_and_its_neighbour_as_delivered(tmp_path: Path) -> None:
    with history(tmp_path, 3) as past:
        found = [timeline.timeline_of(past.line.rt, row.dedupe_key) for row in event_search.newest(EventQuery(), 500)]
        partial = [
            (step.details["outcome"], step.details["reason"], item.state)
            for item in found
            for step in item.steps
            if step.details.get("batch_outcome") == "partial"
        ]
    assert {outcome for outcome, _, _ in partial} == {"delivered", "refused"}
    assert {reason for outcome, reason, _ in partial if outcome == "refused"} == {"invalid_schema"}


def test_a_retry_after_is_the_reason_everywhere_while_it_runs(tmp_path: Path) -> None:
    with ScriptedReceiver((429, {"ok": False}, {"Retry-After": "120"})) as ua, operator_rig(tmp_path, ua.url) as built:
        built.alive()
        built.event("waits000001")
        for wake in flush.flush(built.rt, "default/urgent"):
            for wakes in deliver.deliver(built.rt, int(wake.key)):
                assert wakes
        (number,) = db.fetch("SELECT id FROM batches")[0]
        queue_message(built, "tasks.deliver.deliver_batch", number, at=built.now + 120)
        (task,) = [one for one in built.json("tasks", "list")["tasks"] if one["task"] == "deliver_batch"]
        (entry,) = [one for one in built.json("status")["backlog"] if one["step"] == "deliver"]
        (item,) = built.json("trace", "waits000001")["items"]
    for said in (task["why"], entry["why"], item["reason"]):
        assert said.startswith("the receiver asks us to wait: the receiver rate-limits us (429); sending is paused")


def test_while_the_circuit_is_open_every_surface_names_the_next_request(tmp_path: Path) -> None:
    with operator_rig(tmp_path) as built:
        built.alive()
        batch, now = built.batch([built.event("canary00001")]), built.now
        built.event("waits000001")
        db.run("UPDATE batches SET attempts = 1, next_attempt_at = ? WHERE id = ?", now + 40, batch.id)
        opened = {"circuit": "open", "reason": "http 503", "opened_at": now - 60, "next_probe_at": now + 15}
        change("default", canary=batch.id, **opened)
        status, (one,) = built.json("status"), built.json("delivery", "status")["destinations"]
        text = built.call("delivery", "status").stdout
        db.run("UPDATE batches SET state = 'sending', lease_until = ? WHERE id = ?", now + 30, batch.id)
        sent = built.json("status")
    waiting = [entry for entry in status["backlog"] if entry["step"] == "flush"]
    assert [entry["until"] for entry in waiting] == [times.iso(now + 15)]
    assert (one["state"], one["next_probe_at"]) == ("circuit_open", times.iso(now + 15))
    assert "next probe at " in text
    (problem,) = [found for found in status["problems"] if found["id"] == "receiver_away"]
    assert problem["remedy"].endswith("a probe is sent at least every 20 s")
    (problem,) = [found for found in sent["problems"] if found["id"] == "receiver_away"]
    assert problem["remedy"].endswith(f"{batch.batch_id} is being sent")
    assert batch.batch_id not in problem["what"] + problem["effect"]


@pytest.mark.parametrize(("age", "alive"), [(0, True), (29, True), (31, False), (-29, True), (-31, False), (45, False)])
@pytest.mark.asyncio
async def test_one_rule_says_whether_the_worker_is_alive(tmp_path: Path, age: float, alive: bool) -> None:
    with history(tmp_path, 6) as past, surfaces(past) as ask:
        heartbeats.write("worker", past.clock() - age, past.clock() - 1000)
        status, stats, page = past.command("status"), past.command("tasks", "stats"), await ask.dashboard()
        found, queue_state = await ask.metrics(), await ask.api("/queue")
        live = (await ask.client.get("/livez")).json()["status"]
        said = [status["worker"]["alive"], stats["worker_alive"], queue_state["worker"]["alive"], live == "alive"]
        said += [bool(found["csi_worker_alive",]), "last heartbeat" not in page]
        said.append("worker_silent" not in [one.id for one in alert_overview.firing(past.line.rt)])
    assert said == [alive] * len(said)
