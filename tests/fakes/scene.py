"""An installation in the middle of its work: something of everything that a command can show."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huey.registry import Message

from csi import clock
from csi.store import (
    archives,
    attempts,
    batches,
    channels,
    db,
    endpoints,
    events,
    hosts,
    jobs,
    outbox,
    stats,
    videos,
    watches,
)  # fmt: skip
from csi.store.models import DeliveryAttempt, Watch
from tasks.queue import create_huey
from tests.fakes.desk import SOURCE, Desk, contract, desk

HOSTILE = "\x1b[31mred\x07\u202eback\x9b2J"
"""A title that would colour, ring, turn round and clear a terminal."""


@contextmanager
def scene(home: Path, ua_url: str = "http://127.0.0.1:9/ingest", **blocks: Any) -> Iterator[Desk]:
    """Delivered, on its way, waiting and dead; a watch that is being read; tasks in the queue."""
    blocks.setdefault("sources", {SOURCE: {"playlists": [{"id": "PLone"}, {"id": "PLtwo"}], **LOOPBACK}})
    with desk(home, ua_url, **blocks) as built:
        built.alive()
        fill(built)
        yield built


LOOPBACK = {"api_base_url": "http://127.0.0.1:9/youtube/v3"}


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
    endpoints.change("default", last_success_at=now - 60, last_failure_at=now - 30, last_error="http 422")
    queue(built, "tasks.poll.poll_watch", watch.id)
    queue(built, "tasks.deliver.deliver_batch", travelling.id, at=now + 20)
    track(now)
    db.database.close()


CHANNEL, VIDEO, JOB = "UC" + "s" * 22, "scenevideo1", "00000000-0000-7000-8000-000000000001"


def track(now: float) -> None:
    """A channel with a video, their numbers, a job with its history, and a file of old rows."""
    channels.add(CHANNEL, "A channel", 5, now)
    facts = videos.VideoFacts(VIDEO, CHANNEL, f"Über {HOSTILE}", now - 3_600, view_count=5)
    videos.save([(facts, videos.Plan("hot", now))], now)
    stats.save_videos([stats.VideoStats("scene", VIDEO, now, 5, None, None, None, None)])
    numbers = dict.fromkeys(("video_count", "view_count", "daily_views", "daily_subscribers", "daily_videos"))
    stats.save_channel(stats.make_channel_stats(CHANNEL, now, subscriber_count=7, **numbers))
    job = jobs.enqueue(jobs.NewJob("BACKFILL_CHANNEL", "scene", channel_id=CHANNEL), now).job
    db.run("UPDATE jobs SET id = ? WHERE id = ?", JOB, job.id)
    jobs.bury(jobs.claim(now), "the API is away", now)
    archives.hold("video_stats-2025-01.jsonl.gz", "video_stats", "2025-01")


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
