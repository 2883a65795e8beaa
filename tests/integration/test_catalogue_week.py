"""A simulated week of the catalogue, checked against specification 002's text and a ledger of what YouTube served."""

import itertools
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from csi.adapters.youtube.video_fields import moment
from csi.catalog.catalog_jobs import HANDLERS, plan_jobs
from csi.config.durations import duration_seconds
from csi.jobs import run_job
from csi.jobs.run_job import run_next_job
from csi.net import HttpResponse
from csi.store import api_units
from csi.store.catalog import jobs
from csi.store.db import fetch
from tests.rigs.in_process import DAY, HOUR, catalog_pipeline

# The attributes that the specification names, table by table.
ATTRIBUTES = {
    "channels": "id title description custom_url subscriber_count video_count view_count thumbnail_url "
    "uploads_playlist_id country created_at tracked_since last_refreshed_at status priority",
    "videos": "id channel_id title description published_at duration view_count like_count comment_count "
    "thumbnail_url category_id tags language caption_available definition privacy_status upload_status first_seen_at "
    "last_refreshed_at",
    "channel_stats": "id channel_id captured_at subscriber_count video_count view_count daily_views daily_subscribers "
    "daily_videos",
    "video_stats": "id video_id captured_at view_count like_count comment_count hourly_views daily_views",
    "jobs": "id type channel_id video_ids priority dedup_key status attempts max_attempts scheduled_at started_at "
    "completed_at error_message payload",
    "job_events": "id job_id event_type occurred_at details duration_ms",
    "channel_feeds": "channel_id feed_url last_etag last_modified last_polled_at last_video_published_at "
    "poll_interval_minutes consecutive_errors status",
    "api_budget": "id quota_used quota_limit period_start period_end last_updated_at",
}
ENUMERATIONS = {
    ("channels", "status"): {"active", "paused", "deleted", "error"},
    ("videos", "definition"): {"sd", "hd", None},
    ("videos", "privacy_status"): {"public", "unlisted", "private", None},
    ("videos", "upload_status"): {"uploaded", "processed", "failed", "rejected", None},
    ("jobs", "status"): {"pending", "running", "completed", "failed", "dead"},
    ("job_events", "event_type"): {"started", "completed", "failed", "retried", "dead_lettered"},
    ("channel_feeds", "status"): {"active", "paused", "error"},
}
UNIQUE = {
    "channel_stats": "channel_id, CAST(captured_at / 86400 AS INTEGER)",
    "video_stats": "video_id, captured_at",
    "channels": "id",
    "videos": "id",
    "jobs": "id",
}
INDEXES = {("status", "scheduled_at", "priority"), ("dedup_key",), ("channel_id",)}
COUNTS = ("view_count", "like_count", "comment_count")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def faults_of(hour: int) -> str:
    """An outage of nine hours, a day of odd answers of every kind, and storms."""
    if 30 <= hour < 39:
        return "api:500"
    kinds = ("html", "empty", "truncated", "reset", "hang", "gzip", "deep", "cut")
    if 60 <= hour < 60 + len(kinds):
        return f"api:{kinds[hour - 60]}%50"
    return "storm" if hour % 24 in (15, 16) else ""


class Killed(BaseException):
    """The process ended here."""


def number(value: str | None) -> int | None:
    return None if value is None else int(value)


@dataclass
class Ledger:
    """What the simulated YouTube served, by id and time."""

    videos: dict[str, dict[float, dict[str, Any]]] = field(default_factory=dict)
    channels: dict[str, dict[float, dict[str, Any]]] = field(default_factory=dict)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, url: str, answer: HttpResponse, now: float) -> None:
        items = (answer.json_object() or {}).get("items") if answer.status == 200 else None
        for item in items if isinstance(items, list) else ():
            told = item.get("statistics")
            if told is None:
                continue
            names = ("viewCount", "likeCount", "commentCount")
            if "/channels" in url:
                names = ("subscriberCount", "videoCount", "viewCount")
            kind = self.channels if "/channels" in url else self.videos
            seen = [number(told.get(name)) for name in names]
            if told.get("hiddenSubscriberCount"):
                seen[0] = None
            kind.setdefault(item["id"], {})[now] = seen
            if "snippet" in item and "/videos?" in url:
                self.details[item["id"]] = item


def wrong_values(ledger: Ledger, counted: Counter[str], gone: str) -> list[str]:
    """Every value that the specification's text or the ledger contradicts."""
    found: list[str] = []

    def expect(holds: bool, place: str, value: object = "") -> None:
        if not holds:
            found.append(f"{place}: {value}")

    tables: dict[str, list[dict[str, Any]]] = {}
    for table, text in ATTRIBUTES.items():
        names = text.split()
        tables[table] = [dict(zip(names, row, strict=True)) for row in fetch(f"SELECT {', '.join(names)} FROM {table}")]
    for (table, name), allowed in ENUMERATIONS.items():
        told = {row[name] for row in tables[table]}
        expect(told <= allowed, f"{table}.{name}", told - allowed)
    for table, key in UNIQUE.items():
        expect(fetch(f"SELECT 1 FROM {table} GROUP BY {key} HAVING COUNT(*) > 1") == [], f"{table} is unique by {key}")
    for table in ("channel_stats", "video_stats", "jobs", "job_events"):
        odd = [row["id"] for row in tables[table] if not UUID.fullmatch(row["id"])]
        expect(not odd, f"{table}.id", odd[:3])
    indexes = {
        tuple(row[2] for row in fetch(f"PRAGMA index_info('{name}')"))
        for _, name, *_ in fetch("PRAGMA index_list('jobs')")
    }
    expect(indexes >= INDEXES, "jobs: indexes", INDEXES - indexes)

    for row in tables["channels"]:
        place = f"channels/{row['id']}"
        expect(1 <= row["priority"] <= 10, f"{place}.priority", row["priority"])
        served = ledger.channels.get(row["id"], {})
        last = served[max(served)] if served else [None] * 3
        expect([row[name] for name in ("subscriber_count", "video_count", "view_count")] == last, place, (row, last))
        expect(row["uploads_playlist_id"] == "UU" + row["id"][2:], f"{place}.uploads_playlist_id")
        expect(row["created_at"] < row["tracked_since"] <= row["last_refreshed_at"], f"{place}: times", row)
    for row in tables["videos"]:
        place, details = f"videos/{row['id']}", ledger.details.get(row["id"])
        served = ledger.videos.get(row["id"], {})
        expect(row["channel_id"] in {one["id"] for one in tables["channels"]}, f"{place}.channel_id")
        if details is None or not served:
            continue
        snippet, content = details["snippet"], details["contentDetails"]
        expect(row["title"] == snippet["title"], f"{place}.title", row["title"])
        expect(row["published_at"] == moment(snippet["publishedAt"]), f"{place}.published_at", row["published_at"])
        expect(
            row["duration"] == (duration_seconds(content.get("duration")) or None), f"{place}.duration", row["duration"]
        )
        expect(row["definition"] == content.get("definition"), f"{place}.definition", row["definition"])
        expect(
            [row[name] for name in COUNTS] == served[max(served)],
            place,
            ([row[name] for name in COUNTS], served[max(served)]),
        )
        expect(row["first_seen_at"] <= row["last_refreshed_at"], f"{place}: times", row)

    for row in tables["video_stats"]:
        place = f"video_stats/{row['video_id']}@{row['captured_at']}"
        served = ledger.videos.get(row["video_id"], {}).get(row["captured_at"])
        expect([row[name] for name in COUNTS] == served, place, (row, served))
    for video, rows in itertools.groupby(
        sorted(tables["video_stats"], key=lambda row: (row["video_id"], row["captured_at"])),
        key=lambda row: row["video_id"],
    ):
        captures = list(rows)
        for at, row in enumerate(captures):
            for name, period, oldest in (("hourly_views", HOUR, DAY), ("daily_views", DAY, 8 * DAY)):
                gained, now = row[name], row["captured_at"]
                if gained is None:
                    continue
                low, high = now - oldest, now - 0.9 * period
                before = [one for one in captures[:at] if low <= one["captured_at"] <= high]
                expect(bool(before), f"{video}.{name} has a base", row)
                if before:
                    base = before[-1]
                    truth = round((row["view_count"] - base["view_count"]) * period / (now - base["captured_at"]))
                    expect(gained == truth, f"{video}.{name}", (gained, truth))
    for row in tables["channel_stats"]:
        served = ledger.channels.get(row["channel_id"], {}).get(row["captured_at"])
        told = [row[name] for name in ("subscriber_count", "video_count", "view_count")]
        expect(told == served, f"channel_stats/{row['channel_id']}", (told, served))

    events: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(tables["job_events"], key=lambda one: (one["occurred_at"], one["id"])):
        events.setdefault(row["job_id"], []).append(row)
        expect(row["duration_ms"] >= 0, f"job_events/{row['id']}.duration_ms", row["duration_ms"])
    expect(events.keys() <= {row["id"] for row in tables["jobs"]}, "job_events.job_id")
    for row in tables["jobs"]:
        place, history = f"jobs/{row['id']}", [one["event_type"] for one in events.get(row["id"], [])]
        expect(1 <= row["priority"] <= 10, f"{place}.priority", row["priority"])
        expect(
            (row["completed_at"] is not None) == (row["status"] in ("completed", "dead")), f"{place}.completed_at", row
        )
        expect(row["completed_at"] is None or row["started_at"] <= row["completed_at"], f"{place}: times", row)
        expect(row["attempts"] <= history.count("started"), f"{place}.attempts", (row["attempts"], history))
        expect(row["status"] != "completed" or history[-1] == "completed", f"{place}: history", history)
        expect(
            row["status"] != "completed" or row["error_message"] is None, f"{place}.error_message", row["error_message"]
        )
    dead = [row for row in tables["jobs"] if row["status"] == "dead" and row["channel_id"] != gone]
    expect(not dead, "dead jobs whose cause has passed", [(row["type"], row["error_message"]) for row in dead])

    for row in tables["api_budget"]:
        place, used = f"api_budget/{row['id']}", row["quota_used"]
        expect(counted[row["id"]] <= used <= row["quota_limit"], place, (counted[row["id"]], row))
        start, end = moment(row["period_start"]), moment(row["period_end"])
        expect(start is not None and end is not None and 23 * HOUR <= end - start <= 25 * HOUR, place, row)
    return found


@pytest.mark.slow
def test_a_week_of_the_catalogue_has_no_wrong_value_and_every_job_is_done(tmp_path, clock):
    """Outages, storms, midnights and kills; hidden counters, counters that go back, and videos and a channel that
    disappear, the channel in the middle of its backfill."""
    rng, ledger, counted = random.Random(18), Ledger(), Counter[str]()
    with catalog_pipeline(tmp_path, clock, catalog={"units_per_day": 2_000}) as here:
        get, calls, fuse = here.net.get, itertools.count(1), [0]

        def serve(url: str, **options: Any) -> HttpResponse:
            if next(calls) == fuse[0]:
                raise Killed
            answer = get(url, **options)
            ledger.note(url, answer, clock())
            bucket: api_units.Bucket = "stats" if "batchGetStats" in url else "main"
            counted[api_units.row_id(clock(), bucket)] += 1
            return answer

        here.net.get = serve  # type: ignore[method-assign]
        made = [
            here.channel(f"Channel {place}", 60, every=3 * HOUR, subscribers_per_day=(place - 3) * 50)
            for place in range(8)
        ]
        for channel in made:
            here.add(channel, watch=False)
        gone = made[-1].id
        kills = 0
        for hour in range(7 * 24):
            clock.time = (clock() // HOUR + 1) * HOUR + 30
            if rng.random() < 0.3:
                here.world.upload(rng.choice(made[:-1]).id, f"News {hour}", at=clock())
            if hour % 24 == 5:
                video = here.world.newest(made[hour // 24].id, 1)[0]
                here.world.edit(video.id, at=clock(), views=video.views // 2)
            if hour % 24 == 9:
                here.world.edit(
                    here.world.newest(made[hour // 24].id, 2)[1].id, at=clock(), hides_likes=True, comments_off=True
                )
            if hour % 24 == 11:
                here.world.delete(here.world.newest(made[hour // 24].id, 3)[2].id, at=clock())
            if hour == 0:
                fuse[0] = next(calls) + 8  # in the middle of the backfills
            if hour == 1:
                here.world.delete_channel(gone)
            here.site.set_faults(faults_of(hour))
            for _ in range(40):
                try:
                    run_job.requeue_failed_and_stuck(here.rt)
                    plan_jobs(here.rt)
                    while jobs.due(clock(), 1):
                        run_next_job(here.rt, HANDLERS)
                    break
                except Killed:
                    kills += 1
                    clock.move(jobs.LEASE_SECONDS + 1)
            if hour % 6 == 3:
                fuse[0] = next(calls) + rng.randrange(1, 6)
            for _ in range(3):  # failed jobs are tried again within the hour
                clock.move(600)
                try:
                    here.run()
                except Killed:
                    kills += 1
                    clock.move(jobs.LEASE_SECONDS + 1)
        here.site.set_faults("")
        here.go(2 * DAY)
        assert kills > 10
        found = wrong_values(ledger, counted, gone)
        assert found == [], "\n".join(found[:40])
        assert fetch("SELECT status FROM channels WHERE id = ?", gone) == [("deleted",)]
        alive = {video.id for channel in made[:-1] for video in here.world.newest(channel.id, 1_000) if video.readable}
        assert alive <= {row[0] for row in fetch("SELECT id FROM videos")}
        assert fetch("SELECT COUNT(*) FROM channels WHERE status <> 'active'") == [(1,)]
