"""An installation in the middle of its work: something of everything that a command can show."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huey.registry import Message

from csi import clock
from csi.catalog.capture import record_channel, record_videos
from csi.catalog.catalog_retention import archive_old_rows
from csi.jobs.job_kinds import new_job
from csi.processing.pipeline import runs
from csi.processing.store import db as processing_db
from csi.store import alerts, attempts, batches, db, destinations, events, hosts, outbox, reloads, watch_admin, watches
from csi.store.catalog import channels, jobs, stats
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.videos import VideoFacts
from csi.store.models import DeliveryAttempt, Watch
from csi.store.uuid7 import new_id
from csi.store.watch_admin import NewWatch
from tasks.queue import create_huey
from tests.fakes import processing_bench
from tests.fakes.desk import SOURCE, Desk, contract, desk
from tests.fakes.receiver import SECRET

CHANNEL = "UC0000000000000000000007"
VIDEO = "catalogue01"
DEAD_JOB = "dead0000-0000-7000-8000-000000000001"
OPEN_JOB = "beef0000-0000-7000-8000-000000000002"
ARCHIVE = "video_stats-2024-01.jsonl.gz"
SUMMARISED = "summarised1"
DEAD_LETTER = "tr_unreadable1"
OLD_IDS = "delivered01\nnever000001\n"
"""What the poller that we replace has seen: one video that we saw, too, and one that we did not."""

HOSTILE = "\x1b[31mred\x07\u202eback\x9b2J"
"""A title that would colour, ring, turn round and clear a terminal."""


@contextmanager
def scene(home: Path, ua_url: str = "http://127.0.0.1:9/ingest", **blocks: Any) -> Iterator[Desk]:
    """Delivered, on its way, waiting and dead; a watch that is being read; tasks in the queue.

    Beside it a catalogue with a channel, a video and jobs, and processing with a summary and a dead letter.
    """
    playlists = {"playlists": [{"id": "PLone"}, {"id": "PLtwo"}], **LOOPBACK}
    blocks.setdefault("sources", {SOURCE: playlists, "youtube_channel_rss": {"watchlist": [], **FEEDS}})
    with desk(home, ua_url, **blocks) as built:
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


def fill(built: Desk) -> None:
    now = built.now
    deliver(built, "delivered01")
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
    queue(built, "tasks.poll.poll_watch", watch.id)
    queue(built, "tasks.deliver.deliver_batch", travelling.id, at=now + 20)
    alerts.fire("quota_low", "api", "few units are left", now - 600)
    reloads.note(now - 600, "config.yaml:3: csi.log_level: unknown")


def fill_catalogue(built: Desk) -> None:
    """A channel with its numbers of two days, a hot video, an open and a dead job, and a file of the archive."""
    now = built.now
    channels.add(CHANNEL, "Somebody", 5, now - DAY)
    watch_admin.add(NewWatch("youtube_channel_rss", CHANNEL, "standard", 300.0, "all"), now)
    for moment, views in ((now - DAY, 1000), (now - HOUR, 1200), (now, 1300)):
        counts = {"view_count": views, "video_count": 1, "subscriber_count": views // 10}
        record_channel(ChannelFacts(CHANNEL, "Somebody", custom_url="@somebody", **counts), moment)
        record_videos([VideoFacts(VIDEO, CHANNEL, "A hot video", now - 2 * HOUR, view_count=views)], moment)
    stats.save_videos([stats.VideoStats(new_id(LONG_AGO), VIDEO, LONG_AGO, 1, 0, 0, None, None)])
    archive_old_rows(built.rt, rest=lambda seconds: None)
    jobs.mark_dead(_running(_job("BACKFILL_CHANNEL", DEAD_JOB, now), now), "http 404: no such channel", now)
    _job("RSS_POLL_CHANNEL", OPEN_JOB, now)


def fill_processing(home: Path) -> dict[str, str]:
    """A video that was summarised, one that could not be read, and one without a route. The environment for it."""
    home.mkdir()
    built = processing_bench.ProcessingBench(home, clock.now)
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
    """A job whose id is known, as it is in the documents."""
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


def deliver(built: Desk, name: str, *, title: str | None = None, ago: float = 60.0, took: float = 2.0) -> int:
    """An event that arrived. Its watch was read before it happened."""
    seen_at = built.now - ago
    watch = Watch.get(Watch.ref == "PLone")
    Watch.update(first_read_at=seen_at - 3600, last_success_at=built.now).where(Watch.id == watch.id).execute()
    subject = {"video_id": name, "title": title or f"Über {name}", "url": f"https://www.youtube.com/watch?v={name}"}
    event = contract(name).model_copy(update={"occurred_at": clock.iso(seen_at - 10), "subject": subject})
    pk = events.add(event, watch_id=watch.id, seq=len(events.page(10_000)) + 1, tier="urgent", first_seen_at=seen_at)
    assert pk is not None
    outbox.put(pk, ("default",), tier="urgent", watch_id=watch.id, seq=pk, due_at=seen_at)
    send(built, [pk], at=seen_at + took)
    return pk


def send(built: Desk, pks: list[int], *, at: float, outcome: str = "delivered", status: int | None = 200) -> None:
    """One request with these events and its answer."""
    batch = built.batch(pks)
    attempt = attempts.start(batch.id, "default", f"req_{batch.id}", 1, "ascii", at)
    attempts.finish(attempt, outcome, at, status=status, answer='{"ok":true}' if status == 200 else "")
    DeliveryAttempt.update(started_at=at).where(DeliveryAttempt.id == attempt).execute()
    if outcome == "delivered":
        outbox.leave(batch.id, pks)
        events.mark_delivered(pks, emitted_at=clock.iso(at), now=at)
        batches.run("UPDATE batches SET state = 'delivered', settled_at = ? WHERE id = ?", at, batch.id)
    else:
        outbox.put_back([batch.id])
        batches.run("UPDATE batches SET state = 'released', settled_at = ? WHERE id = ?", at, batch.id)


def queue(built: Desk, name: str, key: int | str, *, at: float | None = None) -> str:
    """A message as the worker leaves it; its id."""
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
