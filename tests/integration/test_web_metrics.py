"""`/metrics`: the PRD's four as named and typed, and nothing from outside in a label."""

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from csi import __version__
from csi.dlq import dead_letters
from csi.ingester.event import CreatorSignalEvent
from csi.jobs.job_kinds import KINDS
from csi.pipeline.schedule import sync_watches
from csi.runtime import Runtime, open_runtime
from csi.status import watch_states
from csi.status.problems import PROBLEMS
from csi.store import api_units, counters, db, destinations, events, heartbeats, hosts, outbox, watches
from csi.store.catalog import jobs
from csi.store.models import Watch
from csi.web import metrics

CONFIG = """
sources:
  youtube_playlist: {quota_limit: 10000, playlists: [{id: PLaaa}]}
  youtube_channel_rss: {enabled: false}
"""


@pytest.fixture
def rt(tmp_path: Path) -> Runtime:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return open_runtime(file, {"CSI_STATE_DIR": str(tmp_path / "state")})


def scrape(rt: Runtime) -> dict[str, tuple[str, list[Sample]]]:
    with db.connection():
        text = metrics.render(rt).decode()
    return {family.name: (family.type, family.samples) for family in text_string_to_metric_families(text)}


def value(found: dict[str, tuple[str, list[Sample]]], family: str, name: str = "", **labels: str) -> float:
    samples = [sample for sample in found[family][1] if sample.name == (name or family) and sample.labels == labels]
    assert len(samples) == 1, (family, labels, found[family])
    return samples[0].value


def test_an_idle_system_has_every_series_and_no_false_rates(rt: Runtime) -> None:
    found = scrape(rt)
    types = {name: kind for name, (kind, _) in found.items()}
    assert types["csi_events"] == "counter"
    assert types["csi_delivery_success_rate"] == types["csi_dedupe_hit_rate"] == "gauge"
    assert types["csi_adapter_poll_duration_seconds"] == "histogram"
    assert math.isnan(value(found, "csi_delivery_success_rate"))
    assert math.isnan(value(found, "csi_dedupe_hit_rate"))
    assert math.isnan(value(found, "csi_worker_heartbeat_age_seconds"))
    assert value(found, "csi_events", "csi_events_total", source="youtube_playlist", status="dlq") == 0
    assert value(found, "csi_build_info", version=__version__) == 1
    assert value(found, "csi_breaker_open") == 0
    assert math.isnan(value(found, "csi_queue_depth"))
    assert math.isnan(value(found, "csi_source_success_age_seconds", source="youtube_playlist"))
    assert value(found, "csi_watches", source="youtube_playlist", state="dead") == 0


def test_numbers_come_from_the_database(rt: Runtime) -> None:
    now = rt.now()
    with db.connection():
        counters.add("events", 98, source="youtube_playlist", label="delivered")
        counters.add("events", 2, source="youtube_playlist", label="dlq")
        counters.add("items", 15, source="youtube_playlist", label="known")
        counters.add("items", 85, source="youtube_playlist", label="new")
        counters.add("polls", 7, source="youtube_playlist", label="ok")
        for seconds in (0.05, 0.1, 0.7, 99.0):
            counters.add_all(
                counters.observed("poll_seconds", [seconds], counters.POLL_BUCKETS, source="youtube_playlist")
            )
        counters.add_all(counters.observed("accept_seconds", [0.2], counters.LATENCY_BUCKETS, source="urgent"))
        heartbeats.write("worker", now - 3, now - 100)
        api_units.book(42, 10_000, now)
        destinations.get()
        destinations.change("default", circuit="open")
        event = CreatorSignalEvent(**CreatorSignalEvent.model_config["json_schema_extra"]["example"])
        sync_watches(rt)
        watch = watches.active()[0]
        event_pk = events.add(event, watch_id=watch.id, seq=1, tier="urgent", first_seen_at=now - 50)
        outbox.put(event_pk, ["default"], tier="urgent", watch_id=watch.id, seq=1, due_at=now)
        dead_letters.add_item("key", "youtube_playlist", {}, cause="malformed", reason="x", seen_at=now, now=now)
    found = scrape(rt)
    source = {"source": "youtube_playlist"}
    assert value(found, "csi_events", "csi_events_total", **source, status="delivered") == 98
    assert value(found, "csi_events", "csi_events_total", **source, status="malformed") == 1
    assert value(found, "csi_dedupe_hit_rate") == 0.15
    assert value(found, "csi_polls", "csi_polls_total", **source, result="ok") == 7
    name = "csi_adapter_poll_duration_seconds"
    heights = {le: value(found, name, f"{name}_bucket", **source, le=le) for le in ("0.1", "0.5", "1.0", "+Inf")}
    assert heights == {"0.1": 2, "0.5": 2, "1.0": 3, "+Inf": 4}
    assert value(found, name, f"{name}_count", **source) == 4
    assert value(found, name, f"{name}_sum", **source) == pytest.approx(99.85)
    accepted = "csi_accept_latency_seconds"
    assert value(found, accepted, f"{accepted}_bucket", tier="urgent", le="0.25") == 1
    assert value(found, "csi_pending_events", tier="urgent") == 1
    assert value(found, "csi_backlog_age_seconds") == pytest.approx(50, abs=5)
    assert value(found, "csi_dead_letters_open") == 1
    assert value(found, "csi_breaker_open") == 1
    assert (value(found, "csi_api_quota_used"), value(found, "csi_api_quota_limit")) == (42, 10_000)
    assert value(found, "csi_worker_heartbeat_age_seconds") == pytest.approx(3, abs=5)


def test_how_it_stands_is_told_by_state_cause_and_destination(rt: Runtime) -> None:
    now = rt.now()
    with db.connection():
        sync_watches(rt)
        Watch.update(
            health="outage", host="www.youtube.com", last_success_at=now - 400, next_poll_at=now - 900
        ).execute()
        heartbeats.write("worker", now, now - 5_000, queued=17)
        hosts.begin_outage(hosts.get("www.youtube.com"), now, "http 500", 3)
        destinations.change("default", paused_reason="maintenance")
        counters.add_all(counters.observed("seen_seconds", [20.0, 4.0], counters.AGE_BUCKETS, source="urgent"))
        counters.add("items", 3, source="youtube_playlist", label="filtered")
        for cause in ("malformed", "malformed", "crash"):
            dead_letters.add_item("key", "youtube_playlist", {}, cause=cause, reason="x", seen_at=now, now=now)
        api_units.book(9_990, 10_000, now)
    found = scrape(rt)
    source = {"source": "youtube_playlist"}
    assert value(found, "csi_watches", **source, state="outage") == 1
    assert value(found, "csi_watches", **source, state="healthy") == 0
    assert value(found, "csi_watches_overdue", **source) == 1
    assert value(found, "csi_source_success_age_seconds", **source) == pytest.approx(400, abs=5)
    assert value(found, "csi_hosts_in_outage") == 1
    assert value(found, "csi_destination_held", destination="default") == 1
    assert value(found, "csi_destination_breaker_open", destination="default") == 0
    assert [value(found, "csi_dead_letters", cause=cause) for cause in ("malformed", "crash", "event")] == [2, 1, 0]
    assert value(found, "csi_queue_depth") == 17
    assert value(found, "csi_worker_start_time_seconds") == pytest.approx(now - 5_000, abs=1)
    assert value(found, "csi_api_quota_left") == 10
    assert value(found, "csi_items", "csi_items_total", **source, result="filtered") == 3
    seen = "csi_seen_latency_seconds"
    assert [value(found, seen, f"{seen}_bucket", tier="urgent", le=le) for le in ("5.0", "15.0", "30.0")] == [1, 1, 2]


def test_the_catalogues_jobs_are_told_by_type_and_status(rt: Runtime) -> None:
    now = rt.now()
    with db.connection():
        jobs.enqueue(jobs.NewCatalogJob("REFRESH_HOT_VIDEOS", "a", scheduled_at=now - 300), now)
        jobs.enqueue(jobs.NewCatalogJob("REFRESH_VIDEO_STATS", "b", scheduled_at=now - 900), now)
        dead = jobs.claim(now)
        assert dead is not None
        jobs.mark_dead(dead, "it can never work", now)
        jobs.enqueue(jobs.NewCatalogJob('MADE_UP"}', "c", scheduled_at=now - 9), now)
        api_units.book_share(7, 10_000, "catalog_units", 3_000, now)
    found = scrape(rt)
    assert value(found, "csi_jobs", type=dead.type, status="dead") == 1
    assert value(found, "csi_job_runs", "csi_job_runs_total", type=dead.type, result="dead") == 1
    others = [kind for kind in KINDS if kind != dead.type]
    assert sum(value(found, "csi_jobs", type=kind, status="pending") for kind in others) == 1
    assert value(found, "csi_jobs_oldest_due_seconds") in (pytest.approx(300, abs=5), pytest.approx(900, abs=5))
    assert (value(found, "csi_catalog_units_used"), value(found, "csi_catalog_units_limit")) == (7, 3_000)


def test_the_page_of_metrics_and_its_documentation_name_the_same(rt: Runtime) -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    told = {name for name in re.findall(r"`(csi_\w+)`", page) if not name.startswith("csi_processing_")}
    with db.connection():
        text = metrics.render(rt).decode()
    served = set(re.findall(r"^# TYPE (csi_\w+)", text, re.MULTILINE))
    assert told == served


def test_labels_are_configured_names_only(rt: Runtime) -> None:
    with db.connection():
        counters.add("events", source='evil"}\n', label="delivered")
        counters.add("events", source="youtube_playlist", label='made-up"} 1\nfake_metric 2')
        counters.add_all(counters.observed("accept_seconds", [1.0], counters.LATENCY_BUCKETS, source="PLsecret"))
    labels = {
        text
        for _, samples in scrape(rt).values()
        for sample in samples
        for name, text in sample.labels.items()
        if name not in ("le", "version") and sample.name != "csi_problem"  # test_monitoring.py
    }
    assert labels == {
        "youtube_playlist", "youtube_channel_rss", "urgent", "standard", "high_volume", "stream", "resend", "default",
        "stored", "delivered", "dlq", "replayed", "resent", "duplicate", "malformed", "ok", "error",
        "push", "confirmed", "miss", "near_miss", "repeated", "conflict", "full", "refused", "done",
        "new", "known", "filtered", "filled", "open",
        "began", "ended", "ready", "sending", *metrics.CAUSES, *watch_states.STATES,
        *PROBLEMS, "1h", "24h", "occurred_to_seen", "seen_to_accepted", "occurred_to_accepted",
        *metrics.RELOAD_RESULTS, *metrics.NOTIFICATION_RESULTS, *KINDS, *metrics.JOB_STATUSES, *metrics.JOB_RESULTS,
    }  # fmt: skip


def test_promtool_has_nothing_to_say(rt: Runtime) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on PATH; Debian's package `prometheus` has it")
    with db.connection():
        text = metrics.render(rt)
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
