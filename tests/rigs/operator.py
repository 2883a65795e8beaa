"""An installation's database with rows in it, and `csi` called as an operator calls it."""

import datetime
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result
from huey.registry import Message

from csi import clock
from csi.catalog.capture import record_channel, record_videos
from csi.catalog.catalog_retention import archive_old_rows
from csi.cli.main import cli
from csi.dlq import dead_letters
from csi.ingester.event import CreatorSignalEvent
from csi.jobs.job_kinds import new_job
from csi.processing.pipeline import runs
from csi.processing.store import db as processing_db
from csi.runtime import Runtime, open_runtime
from csi.store import (
    attempts,
    batches,
    db,
    destinations,
    events,
    heartbeats,
    hosts,
    outbox,
    reload_results,
    watch_admin,
    watches,
)
from csi.store.catalog import channels, jobs, stats
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.videos import VideoFacts
from csi.store.models import Watch
from csi.store.uuid7 import new_id
from tasks.queue import create_huey
from tests.fakes.fired_alert import fire_alert
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.processing_bench import ProcessingBench

SOURCE = "youtube_playlist"


class OperatorRig:
    """One configuration and its database. Times are real, since commands read the real clock."""

    def __init__(self, home: Path, ua_url: str = "http://127.0.0.1:9/ingest", **blocks: Any) -> None:
        self.config = home / "config.yaml"
        blocks.setdefault("sources", {SOURCE: {"playlists": [{"id": "PLone"}, {"id": "PLtwo"}]}})
        blocks.setdefault("csi", {})
        blocks["csi"] |= {"state_dir": str(home / "state")}
        self.config.write_text(yaml.safe_dump(blocks))
        self.env = {
            **{name: None for name in os.environ if name.startswith(("CSI_", "YOUTUBE_")) or name == "PORT"},
            "CSI_CONFIG_PATH": str(self.config),
            "CSI_UA_ENDPOINT": ua_url,
            "CSI_UA_SHARED_SECRET": SECRET,
            "YOUTUBE_API_KEY": "demo-key",
        }
        self.rt: Runtime = open_runtime(self.config, {k: v for k, v in self.env.items() if v is not None})
        watches.sync([_want("PLone"), _want("PLtwo")], self.now)

    @property
    def now(self) -> float:
        return self.rt.now()

    def call(self, *arguments: str, text: str | None = None) -> Result:
        db.database.close()
        return CliRunner().invoke(cli, list(arguments), env=self.env, input=text)

    def json(self, *arguments: str, code: int = 0) -> Any:
        result = self.call(*arguments, "--json")
        assert result.exit_code == code, result.output + repr(result.exception)
        return json.loads(result.stdout)

    def alive(self) -> None:
        heartbeats.write("worker", self.now, self.now)

    def event(self, name: str, *, ago: float = 60.0, tier: str = "urgent", to: tuple[str, ...] = ("default",)) -> int:
        """Add a pending event of the video `name`; return its primary key."""
        seen_at = self.now - ago
        watch_id = watches.find_id(SOURCE, "PLone")
        seq = sum(events.counts().values()) + 1
        pk = events.add(sample_event(name), watch_id=watch_id, seq=seq, tier=tier, first_seen_at=seen_at)
        assert pk is not None
        outbox.put(pk, to, tier=tier, watch_id=watch_id, seq=seq, due_at=seen_at + 5)
        return pk

    def batch(self, pks: list[int], destination: str = "default", *, ago: float = 0.0) -> batches.Batch:
        sql = f"SELECT id, event_pk, watch_id FROM outbox WHERE destination = ? AND event_pk IN ({db.marks(pks)})"
        entries = db.fetch_all(outbox.Entry, sql, destination, *pks)
        number = batches.create(entries, destination=destination, tier="urgent", now=self.now - ago)
        found = batches.find(number)
        assert found is not None
        return found

    def dead(self, name: str, *, ago: float = 60.0, reason: str = "http 503", **values: Any) -> int:
        """Add a dead letter of `ago` seconds ago; return its id."""
        to = values.pop("to", "default")
        batch = self.batch([self.event(name, ago=ago + 10, to=(to,))], to, ago=ago + 5)
        given = {"cause": "transient", "status": 503, "attempts": 3} | values
        dead_letters.add_events(batch, outbox.contents(batch.id), reason=reason, now=self.now - ago, **given)
        batches.run("UPDATE batches SET state = 'dead', settled_at = ? WHERE id = ?", self.now - ago, batch.id)
        return int(db.value("SELECT id FROM dead_letter ORDER BY id DESC"))


def sample_event(name: str) -> CreatorSignalEvent:
    return CreatorSignalEvent(
        event_id=f"src:yt:playlist:{name}:PLone:1771761600",
        dedupe_key=f"youtube:video:{name}:PLone",
        source=SOURCE,
        event_type="video_added_to_playlist",
        occurred_at="2026-02-22T12:00:00Z",
        received_at="2026-02-22T12:00:05Z",
        subject={"video_id": name, "title": f"Über {name}", "url": f"https://www.youtube.com/watch?v={name}"},
        routing={"pipeline": "p", "priority": "urgent", "tags": []},
    )


def _want(ref: str) -> watches.WantedWatch:
    return watches.WantedWatch(SOURCE, ref, f"List {ref}", None, (), "urgent", 30.0, "all")


@contextmanager
def operator_rig(home: Path, *given: Any, **blocks: Any) -> Iterator[OperatorRig]:
    built = OperatorRig(home, *given, **blocks)
    with db.connection():
        yield built


CHANNEL = "UC0000000000000000000007"
VIDEO = "catalogue01"
DEAD_JOB = "dead0000-0000-7000-8000-000000000001"
OPEN_JOB = "beef0000-0000-7000-8000-000000000002"
ARCHIVE = "video_stats-2024-01.jsonl.gz"
SUMMARISED = "summarised1"
DEAD_LETTER = "tr_unreadable1"
OLD_IDS = "delivered01\nnever000001\n"
"""What the replaced poller has seen: one video that CSI saw too, and one that it did not."""

HOSTILE = "\x1b[31mred\x07\u202eback\x9b2J"
"""A title with control characters: colour, bell, reversed direction, clear screen."""


@contextmanager
def filled_operator_rig(home: Path, ua_url: str = "http://127.0.0.1:9/ingest", **blocks: Any) -> Iterator[OperatorRig]:
    """Events that are delivered, in flight, pending and dead; a claimed watch; tasks in the queue.

    Also a catalogue with a channel, a video and jobs, and processing with a summary and a dead letter.
    """
    playlists = {"playlists": [{"id": "PLone"}, {"id": "PLtwo"}], **LOOPBACK}
    blocks.setdefault("sources", {SOURCE: playlists, "youtube_channel_rss": {"watchlist": [], **FEEDS}})
    with operator_rig(home, ua_url, **blocks) as built:
        built.alive()
        fill(built)
        fill_catalogue(built)
        built.env |= fill_processing(home / "processing")
        (home / "old-ids.txt").write_text(OLD_IDS)
        db.database.close()
        yield built


HOUR, DAY, LONG_AGO = 3600.0, 86_400.0, 1_705_276_800.0
LOOPBACK = {"api_base_url": "http://127.0.0.1:9/youtube/v3"}
FEEDS = {**LOOPBACK, "feed_url_template": "http://127.0.0.1:9/feeds?channel_id={channel_id}"}


def fill(built: OperatorRig) -> None:
    now = built.now
    add_delivered_event(built, "delivered01")
    travelling = built.batch([built.event("travelling1", ago=20.0)])
    attempts.start(travelling.id, "default", "req_travelling", 1, "ascii", now)
    batches.claim(travelling.id, built.now, 40.0)
    built.event("waiting0001", tier="standard", ago=5.0)
    built.dead("dead0000001", reason="http 422: invalid_schema", cause="event", status=422, attempts=1)
    refused = attempts.start(travelling.id + 1, "default", "req_refused", 1, "ascii", now - 60)
    attempts.finish(refused, "refused", now - 59, status=422, reason="http 422: invalid_schema", answer='{"ok":false}')
    watch = Watch.get(Watch.ref == "PLone")
    watches.claim(watch.id, now, 55.0)
    hosts.pause(hosts.get("127.0.0.1:9"), now, now + 60, "http 429")
    destinations.change("default", last_success_at=now - 60, last_failure_at=now - 30, last_error="http 422")
    queue_message(built, "tasks.poll.poll_watch", watch.id)
    queue_message(built, "tasks.deliver.deliver_batch", travelling.id, at=now + 20)
    fire_alert("quota_low", "api", "few units are left", now - 600)
    reload_results.note(now - 600, "config.yaml:3: csi.log_level: unknown")


def fill_catalogue(built: OperatorRig) -> None:
    """Add a channel with statistics of two days, a hot video, an open and a dead job, and an archive file."""
    now = built.now
    channels.add(CHANNEL, "Somebody", 5, now - DAY)
    new = watches.WantedWatch("youtube_channel_rss", CHANNEL, None, None, (), "standard", 300.0, "all")
    watch_admin.add(new, now)
    for moment, views in ((now - DAY, 1000), (now - HOUR, 1200), (now, 1300)):
        counts = {"view_count": views, "video_count": 1, "subscriber_count": views // 10}
        facts = dict.fromkeys(ChannelFacts.__dataclass_fields__) | {"id": CHANNEL, "title": "Somebody"} | counts
        record_channel(ChannelFacts(**facts | {"custom_url": "@somebody"}), moment)
        record_videos([VideoFacts(VIDEO, CHANNEL, "A hot video", None, now - 2 * HOUR, view_count=views)], moment)
    stats.save_videos([stats.VideoStats(new_id(LONG_AGO), VIDEO, LONG_AGO, 1, 0, 0, None, None)])
    archive_old_rows(built.rt, rest=lambda seconds: None)
    jobs.mark_dead(_running(_job("BACKFILL_CHANNEL", DEAD_JOB, now), now), "http 404: no such channel", now)
    _job("RSS_POLL_CHANNEL", OPEN_JOB, now)


def fill_processing(home: Path) -> dict[str, str]:
    """Add a summarised video, one with an unreadable transcript, and one without a route; return their environment."""
    home.mkdir()
    built = ProcessingBench(home, clock.now)
    processing_db.open_database(built.settings.database_url)
    processing_db.migrate()
    with processing_db.reading():
        built.deliver(SUMMARISED)
        (home / "transcripts" / "unreadable1.json").write_text("{broken")
        built.deliver("unreadable1", text=None)
        built.deliver("unrouted001", pipeline="other_pipeline")
        built.drain()
        runs.update_runs(built.rt)
    built.close()
    return {
        "CSI_PROCESSING_STATE_DIR": str(built.settings.state_dir),
        "UA_SIGNALS_DB_PATH": str(built.settings.receiver_db),
        "UA_SIGNALS_INGEST_SHARED_SECRET": SECRET,
    }


def _job(kind: str, job_id: str, now: float) -> jobs.CatalogJob:
    """Enqueue a job with a fixed id, so that the documentation can show it."""
    made = jobs.enqueue(new_job(kind, channel_id=CHANNEL, scheduled_at=now), now)
    db.run("UPDATE jobs SET id = ? WHERE id = ?", job_id, made.job.id)
    found = jobs.find(job_id)
    assert found is not None
    return found


def _running(job: jobs.CatalogJob, now: float) -> jobs.CatalogJob:
    claimed = jobs.claim(now)
    assert claimed is not None
    assert claimed.id == job.id
    return claimed


def add_delivered_event(
    built: OperatorRig, name: str, *, title: str | None = None, ago: float = 60.0, took: float = 2.0
) -> int:
    """Add an event that was delivered. Its watch was first read before the event occurred."""
    seen_at = built.now - ago
    watch = Watch.get(Watch.ref == "PLone")
    Watch.update(first_read_at=seen_at - 3600, last_success_at=built.now).where(Watch.id == watch.id).execute()
    subject = {"video_id": name, "title": title or f"Über {name}", "url": f"https://www.youtube.com/watch?v={name}"}
    event = sample_event(name).model_copy(update={"occurred_at": clock.iso(seen_at - 10), "subject": subject})
    pk = events.add(
        event, watch_id=watch.id, seq=sum(events.counts().values()) + 1, tier="urgent", first_seen_at=seen_at
    )
    assert pk is not None
    outbox.put(pk, ("default",), tier="urgent", watch_id=watch.id, seq=pk, due_at=seen_at)
    add_attempt(built, [pk], at=seen_at + took)
    return pk


def add_attempt(
    built: OperatorRig, pks: list[int], *, at: float, outcome: str = "delivered", status: int | None = 200
) -> None:
    """Add one attempt with these events and the receiver's answer."""
    batch = built.batch(pks)
    attempt = attempts.start(batch.id, "default", f"req_{batch.id}", 1, "ascii", at)
    attempts.finish(attempt, outcome, at, status=status, answer='{"ok":true}' if status == 200 else "")
    db.run("UPDATE delivery_attempts SET started_at = ? WHERE id = ?", at, attempt)
    if outcome == "delivered":
        outbox.remove(batch.id, pks)
        events.mark_delivered(pks, emitted_at=clock.iso(at), now=at)
        batches.run("UPDATE batches SET state = 'delivered', settled_at = ? WHERE id = ?", at, batch.id)
    else:
        outbox.put_back([batch.id])
        batches.run("UPDATE batches SET state = 'released', settled_at = ? WHERE id = ?", at, batch.id)


def queue_message(built: OperatorRig, name: str, key: int | str, *, at: float | None = None) -> str:
    """Put a message into the Huey queue as the worker does; return its id."""
    huey = create_huey(built.rt.settings)
    eta = None if at is None else datetime.datetime.fromtimestamp(at, datetime.UTC).replace(tzinfo=None)
    task_id = f"{name.rpartition('.')[2]}-{key}"
    fields = dict.fromkeys(Message._fields)
    given = {"id": task_id, "name": name, "eta": eta, "retries": 0, "retry_delay": 0, "priority": 20}
    message = Message(**fields | given | {"args": (key,), "kwargs": {}})
    data = huey.serializer.serialize(message)
    if at is None:
        huey.storage.enqueue(data, 20)
    else:
        huey.storage.add_to_schedule(data, eta.replace(tzinfo=datetime.UTC))
    huey.storage.close()
    return task_id
