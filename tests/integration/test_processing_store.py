"""Processing's rows on both engines: transitions, constraints, the append-only log, and claims."""

import time
from contextlib import suppress
from dataclasses import replace

import pytest

from csi.net import Net
from csi.processing.collection_models import SummarizationJobDocument, VideoDocument
from csi.processing.pipeline.admit import new_job
from csi.processing.runtime import Processing
from csi.processing.settings import ProcessingSettings
from csi.processing.states import STATUSES, TRANSITIONS, IllegalTransition, check_transition, legal_transitions
from csi.processing.status import problems
from csi.processing.store import (
    alerts,
    audit,
    db,
    dead_jobs,
    export,
    heartbeats,
    jobs,
    notices,
    paid_calls,
    providers,
    received_events,
    runs,
    videos,
)
from csi.processing.store.providers import ProviderState
from csi.processing.store.videos import ProcessingVideo

NOW = 1_771_761_600.0
EVERY_PAIR = [(old, new) for old in STATUSES for new in STATUSES if old != new]
WAY_TO = {
    "discovered": (),
    "transcription_queued": ("transcription_queued",),
    "transcribed": ("transcription_queued", "transcribed"),
    "summarized": ("transcription_queued", "transcribed", "summarized"),
    "failed": ("failed",),
    "skipped": ("failed", "skipped"),
}


def a_video(name: str = "vid00000001") -> ProcessingVideo:
    doc = VideoDocument(
        video_id=name,
        title="T",
        published_at="2026-02-22T12:00:00Z",
        channel_id="UC1",
        channel_title="C",
        duration_sec=60,
        status="discovered",
        processing_stage="scraping",
        discovered_at="2026-02-22T12:00:00Z",
        updated_at="2026-02-22T12:00:00Z",
        source="manual",
    )
    return ProcessingVideo(doc, "p", "video", "https://youtu.be/x", "ev-1", NOW)


def at_status(status: str) -> ProcessingVideo:
    video = a_video()
    assert videos.add(video, NOW)
    for step in WAY_TO[status]:
        video = videos.move(video, step, NOW)
    return video


@pytest.mark.parametrize(("old", "new"), EVERY_PAIR, ids=lambda word: word)
def test_every_move_is_legal_for_code_and_database_alike(processing_store, old, new):
    """The code refuses by its table; the database by its trigger, when the code is left aside."""
    video = at_status(old)
    legal = (old, new) in legal_transitions()
    if legal:
        check_transition(old, new)
        assert videos.move(video, new, NOW + 1).status == new
        assert videos.steps(video.id)[-1][0] == new
        return
    with pytest.raises(IllegalTransition, match="cannot change from"):
        videos.move(video, new, NOW + 1)
    stage = {"discovered": "scraping", "transcription_queued": "transcription", "transcribed": "summarization"}
    place = stage.get(new, "completed")
    change = {"status": new, "processing_stage": place}
    text = db.dump({**video.doc.shape(), **change})
    with pytest.raises(db.DatabaseError, match="not a transition"), db.writing():
        db.run("UPDATE videos SET status = ?, stage = ?, doc = ? WHERE video_id = ?", new, place, text, video.id)


def test_the_specifications_table_is_this_one():
    drawn = {
        ("discovered", "transcription_queued"),
        ("transcription_queued", "transcribed"),
        ("transcribed", "summarized"),
        ("discovered", "failed"),
        ("transcription_queued", "failed"),
        ("transcribed", "failed"),
        ("summarized", "failed"),
        ("failed", "skipped"),
    }
    retries = {("failed", "transcription_queued"), ("failed", "transcribed")}
    assert set(legal_transitions()) == drawn | retries
    assert TRANSITIONS["skipped"] == ()


def test_a_video_begins_as_discovered(processing_store):
    doc = {**a_video().doc.shape(), "status": "failed"}
    sql = """INSERT INTO videos (video_id, status, stage, doc, pipeline, kind, url, correlation_id, discovered_at,
             updated_at, wake_at) VALUES ('v', 'failed', 'scraping', ?, 'p', 'video', 'u', 'c', 0, 0, 0)"""
    with pytest.raises(db.DatabaseError, match="begins as discovered"), db.writing():
        db.run(sql, db.dump(doc))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {"a", "b", "c"}),
        ({"status": "failed"}, {"c"}),
        ({"pipeline": "other"}, {"b"}),
        ({"channel": "UCtwo"}, {"b", "c"}),
        ({"text": "100% RUST"}, {"a"}),
        ({"text": "0_ "}, set()),
        ({"text": "second chan"}, {"b", "c"}),
        ({"text": "vid-b"}, {"b"}),
        ({"since": NOW + 3}, {"c"}),
        ({"channel": "UCtwo", "status": "discovered", "text": "go"}, {"b"}),
        ({"text": "' OR 1=1 --"}, set()),
    ],
)
def test_videos_are_filtered_on_both_engines(processing_store, wanted, found):
    channels = {"a": ("UCone", "First channel"), "b": ("UCtwo", "Second channel"), "c": ("UCtwo", "Second channel")}
    titles = {"a": "100% Rust", "b": "Go in 10 minutes", "c": "Go again"}
    for number, name in enumerate("abc", 1):
        known = a_video(f"vid-{name}")
        channel, title = channels[name]
        doc = known.doc.changed(title=titles[name], channel_id=channel, channel_title=title)
        pipeline = "other" if name == "b" else known.pipeline
        videos.add(replace(known, doc=doc, pipeline=pipeline), NOW + number)
    videos.fail(videos.get("vid-c"), "no", NOW + 9)
    query = videos.VideoFilter(**wanted)
    assert {one.id for one in videos.page(10, wanted=query)} == {f"vid-{name}" for name in found}
    assert videos.matching(query) == len(found)
    assert videos.channels(9) == [("UCone", "First channel"), ("UCtwo", "Second channel")]
    assert videos.pipelines() == sorted({"other", a_video().pipeline})


def test_a_video_cannot_be_replaced_by_one_that_begins_anew(processing_store):
    video = at_status("summarized")
    fresh = db.dump(a_video().doc.shape())
    how = "INSERT OR REPLACE" if processing_store == "sqlite" else "INSERT"
    then = "" if processing_store == "sqlite" else "ON CONFLICT (video_id) DO UPDATE SET status = excluded.status"
    sql = f"""{how} INTO videos (video_id, status, stage, doc, pipeline, kind, url, correlation_id, discovered_at,
              updated_at, wake_at) VALUES (?, 'discovered', 'scraping', ?, 'p', 'video', 'u', 'c', 0, 0, 0) {then}"""
    with suppress(db.DatabaseError), db.writing():
        db.run(sql, video.id, fresh)
    assert videos.get(video.id).status == "summarized"


def test_status_and_document_cannot_drift_apart(processing_store):
    video = at_status("discovered")
    with pytest.raises(db.DatabaseError), db.writing():
        db.run(
            "UPDATE videos SET doc = ? WHERE video_id = ?", db.dump({**video.doc.shape(), "status": "failed"}), video.id
        )


def test_a_status_that_moved_meanwhile_is_not_overwritten(processing_store):
    video = at_status("discovered")
    videos.move(video, "transcription_queued", NOW)
    with pytest.raises(IllegalTransition, match="no longer discovered"):
        videos.move(video, "failed", NOW)


def test_the_audit_log_can_only_grow(processing_store):
    scope = audit.AuditScope("tester", "ev-1", "video", "v1", retention_days=1)
    audit.write(scope, "look", "success", time.time())
    for statement in ("UPDATE audit_logs SET agent = 'x'", "DELETE FROM audit_logs"):
        with pytest.raises(db.DatabaseError, match="append-only"), db.writing():
            db.run(statement)
    if processing_store == "sqlite":
        row = db.one("SELECT * FROM audit_logs")
        with pytest.raises(db.DatabaseError, match="append-only"), db.writing():
            db.run(f"INSERT OR REPLACE INTO audit_logs VALUES ({db.marks(row)})", *row[:-1], "{}")
    if processing_store == "postgres":
        with pytest.raises(db.DatabaseError, match="append-only"), db.writing():
            db.run("TRUNCATE audit_logs")
    assert len(audit.search(limit=10)) == 1


def test_an_entry_goes_when_its_own_retention_is_over(processing_store):
    long_ago = time.time() - 3 * 86_400
    for days in (1, 30):
        audit.write(audit.AuditScope("tester", retention_days=days), "look", "success", long_ago)
    assert audit.prune(time.time()) == 1
    assert [entry.retention_period_days for entry in audit.search(limit=10)] == [30]


def test_no_secret_gets_into_the_audit_log(processing_store):
    from csi.logs import register_secret

    register_secret("sk-canary-0123456789")
    audit.write(audit.AuditScope("t"), "x", "failure", NOW, error_message="401 for key sk-canary-0123456789")
    assert "canary" not in db.fetch("SELECT doc FROM audit_logs")[0][0]


def settings() -> Processing:
    from csi.net import Net

    return Processing(ProcessingSettings(), Net(), now=lambda: NOW)


def test_a_job_is_claimed_once_and_by_the_next_when_its_lease_ran_out(processing_store):
    video = at_status("transcription_queued")
    assert jobs.create(jobs.TRANSCRIPTION, new_job(settings(), video, NOW), NOW)
    assert not jobs.create(jobs.TRANSCRIPTION, new_job(settings(), video, NOW), NOW)
    held = jobs.claim("tr_vid00000001", NOW)
    assert jobs.claim("tr_vid00000001", NOW + 59) is None
    assert jobs.due(NOW + 59) == []
    assert jobs.due(NOW + 61) == ["tr_vid00000001"]
    again = jobs.claim("tr_vid00000001", NOW + 61)
    assert (held.crashes, again.crashes) == (0, 1)
    assert jobs.release_leases() == 1
    assert jobs.claim("tr_vid00000001", NOW).crashes == 1


def test_the_last_cent_is_given_out_once(processing_store):
    from decimal import Decimal

    video = at_status("transcription_queued")
    jobs.create(jobs.TRANSCRIPTION, new_job(settings(), video, NOW), NOW)
    day, budget = "2026-02-22", Decimal("1.0000")

    def begin(key: str, amount: str) -> bool:
        with db.writing():
            return paid_calls.begin(
                key, "tr_vid00000001", "p", day=day, estimate=Decimal(amount), budget=budget, now=NOW
            )

    assert begin("a", "0.6")
    assert not begin("b", "0.4001")
    assert begin("c", "0.4")
    paid_calls.finish("a", "paid", NOW, actual=Decimal("0.1234"))
    paid_calls.finish("a", "paid", NOW, actual=Decimal("9"))
    paid_calls.finish("c", "free", NOW)
    assert paid_calls.used(day) == Decimal("0.1234")


def test_signals_cursor_notices_and_marks(processing_store):
    signal = received_events.Signal("ev-1", 7, "p", "unrouted", "v1", "T", {"a": 1}, NOW, "why")
    assert received_events.save_new(signal, NOW)
    assert not received_events.save_new(signal, NOW)
    first, second = received_events.IntakeCursor(), received_events.IntakeCursor(7, "ev-1")
    assert received_events.move_cursor(first, second)
    assert not received_events.move_cursor(first, received_events.IntakeCursor(8, "ev-2"))
    assert received_events.cursor() == second
    assert received_events.move_cursor(second, received_events.IntakeCursor(2, "ev-3"))
    assert received_events.unrouted(("p",), 5) == [signal]
    assert runs.mark("2026-02-22", "quota", "x", NOW)
    assert not runs.mark("2026-02-22", "quota", "x", NOW)
    assert notices.add("s", "t", "b", due_at=NOW + 10, now=NOW)
    assert not notices.add("s", "t", "b", due_at=NOW, now=NOW)
    assert notices.claim(NOW) == ("", [])
    token, found = notices.claim(NOW + 10)
    assert [notice.title for notice in found] == ["t"]
    assert notices.mark_sent(token, NOW + 10) == 1


def test_a_run_and_its_numbers_on_both_engines(processing_store):
    from csi.processing.pipeline.runs import describe_run

    at_status("skipped")
    audit.write(audit.AuditScope("tester"), "x", "failure", NOW, error_code="odd", duration_ms=5, event_type="api_call")
    doc = describe_run(settings(), "2026-02-22")
    assert (doc.discovered, doc.skipped, doc.failed, doc.api_calls_made) == (1, 1, 0, 1)
    assert doc.error_categories == {"odd": 1}
    runs.put(doc)
    assert [found.shape() for found in export.collection_documents("run_events")] == [doc.shape()]
    assert dead_jobs.search(status="all", limit=5) == []


def test_a_summary_job_needs_every_field_of_the_specification():
    with pytest.raises(ValueError, match="prompt_version"):
        SummarizationJobDocument(job_id="su_1", video_id="v", status="queued")  # type: ignore[call-arg]


def test_a_pause_its_probe_and_its_end(processing_store):
    assert providers.find("openai") == ProviderState("openai")
    providers.record_failure("openai", "HTTP 503", NOW)
    providers.record_failure("openai", "HTTP 502", NOW + 5)
    assert providers.find("openai") == ProviderState("openai", failing_since=NOW, failures=2, last_error="HTTP 502")
    providers.record_success("openai")
    assert providers.pause("openai", "authentication", "HTTP 401", NOW, probe_at=NOW + 300) is True
    assert providers.pause("openai", "authentication", "HTTP 401", NOW + 9, probe_at=NOW + 309) is False
    assert providers.find("openai").paused_at == NOW
    assert providers.due_probes(NOW + 299) == []
    assert providers.due_probes(NOW + 300) == ["openai"]
    assert providers.claim_probe("openai", NOW + 300, next_at=NOW + 600) is True
    assert providers.claim_probe("openai", NOW + 300, next_at=NOW + 600) is False
    assert providers.resume("openai", ["no_credit"]) is False
    assert providers.resume("openai") is True
    assert providers.resume("openai") is False
    assert providers.find("openai").failing_since is None


def test_a_heartbeat_keeps_when_the_intake_began_to_fail(processing_store):
    assert heartbeats.latest("processing") is None
    heartbeats.record("processing", NOW, "no file")
    heartbeats.record("processing", NOW + 5, "no file")
    assert heartbeats.latest("processing") == heartbeats.WorkerHeartbeat(NOW + 5, "no file", NOW)
    heartbeats.record("processing", NOW + 10)
    assert heartbeats.latest("processing") == heartbeats.WorkerHeartbeat(NOW + 10)


def test_facts_and_alerts_on_both_engines(processing_store):
    rt = Processing(ProcessingSettings(), Net(), now=lambda: NOW)
    with db.writing():
        heartbeats.record("processing", NOW - 100)
    found = problems(rt)
    assert [problem.id for problem in found] == ["processing_silent"]
    with db.writing():
        alerts.record(found, NOW, None)
        (claimed,) = alerts.claim_unnotified(NOW, 120)
        alerts.mark_notified(claimed, NOW)
        alerts.record([], NOW + 60, None)
    assert alerts.firing() == []
    assert alerts.latest(5)[0].failing_seconds == 160
