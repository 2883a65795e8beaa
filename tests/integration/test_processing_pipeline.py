"""From a received signal to transcript, summary, artifacts and digest, with the built-in providers."""

import json
from pathlib import Path

import pytest

from csi import clock as csi_clock
from csi.processing import alerting
from csi.processing.pipeline import dead_job_actions, digests, maintenance, notify, runs
from csi.processing.pipeline.intake import reroute
from csi.processing.pipeline.retry_video import retry_video
from csi.processing.store import (
    artifacts,
    audit,
    dead_jobs,
    jobs,
    notices,
    notification_log,
    received_events,
    videos,
)
from csi.processing.store.db import fetch
from csi.processing.store.export import collection_documents
from csi.receiver.store import SignalStore
from tests.rigs.processing_bench import TEXT

QUIET = {"notifications": {"window": 0}, "routes": {"quiet": {"action": "notify"}}}


def test_a_signal_becomes_transcript_summary_and_artifacts(open_bench):
    bench = open_bench()
    event_id = bench.deliver("vid00000001", pipeline="youtube_tutorial_explainer")
    bench.drain()
    video = videos.get("vid00000001")
    assert (video.status, video.doc.processing_stage, video.correlation_id) == ("summarized", "completed", event_id)
    assert [name for name, _ in videos.steps(video.id)] == [
        "discovered",
        "transcription_queued",
        "transcribed",
        "summarized",
    ]
    kinds = {artifact.kind: artifact for artifact in artifacts.of_video(video.id)}
    assert set(kinds) == {"transcript", "transcript_json", "summary", "summary_json", "concept", "implementation"}
    assert video.doc.drive_refs.transcript_id == kinds["transcript"].artifact_id
    assert video.doc.drive_refs.summary_id == kinds["summary"].artifact_id
    folder = bench.settings.artifacts / "vid00000001"
    assert {path.name for path in folder.iterdir()} >= {"CONCEPT.md", "IMPLEMENTATION.md", "summary.md"}
    assert TEXT in (folder / "transcript.md").read_text()
    assert "no language model was used" in (folder / "summary.md").read_text()
    summary = bench.job("su_vid00000001").doc
    assert summary.model_used == "csi-extractive-1"
    assert all(bullet in TEXT for bullet in summary.summary.bullets)


def test_every_document_written_is_in_the_specifications_shape(open_bench):
    bench = open_bench()
    bench.deliver("vid00000001")
    bench.deliver("vid00000002", text=None)
    bench.drain()
    runs.update_runs(bench.rt)
    found = {
        name: [doc.shape() for doc in collection_documents(name)]
        for name in ("videos", "jobs/transcription", "jobs/summarization", "audit_logs", "run_events")
    }
    assert {name: len(rows) for name, rows in found.items() if name != "audit_logs"} == {
        "videos": 2,
        "jobs/transcription": 2,
        "jobs/summarization": 1,
        "run_events": 1,
    }
    assert found["videos"][0]["published_at"].endswith("Z")
    assert "completed_at" not in found["jobs/transcription"][1]


def test_a_video_delivered_twice_is_processed_once(open_bench):
    bench = open_bench()
    bench.deliver("vid00000001")
    bench.deliver("vid00000001", event_id="src:other:playlist")
    bench.drain()
    bench.deliver("vid00000001", event_id="src:third")
    bench.drain()
    assert bench.statuses() == {"vid00000001": "summarized"}
    assert fetch("SELECT count(*) FROM jobs")[0][0] == 2
    assert len(fetch("SELECT 1 FROM signals WHERE video_id = ?", "vid00000001")) == 3


@pytest.mark.parametrize("until", ["intake", "transcribed", "summarized"])
def test_a_video_that_comes_again_by_another_pipeline_gets_what_that_one_adds(open_bench, until):
    """A channel's video is added to the tutorials' playlist later, at any step of its processing."""
    bench = open_bench(routes={"plain": {"action": "process"}})
    bench.deliver("vid00000001", pipeline="plain")
    if until == "transcribed":
        maintenance.run_step(bench.rt, maintenance.StepWake("intake"))
        maintenance.run_step(bench.rt, maintenance.StepWake("admit"))
        maintenance.run_step(bench.rt, maintenance.StepWake("transcribe", "tr_vid00000001"))
    if until == "summarized":
        bench.drain()
    for pipeline in ("youtube_tutorial_explainer", "creator_watchlist_handler", "plain"):
        bench.deliver("vid00000001", pipeline=pipeline)
        bench.drain()
    assert bench.statuses() == {"vid00000001": "summarized"}
    assert {"concept", "implementation"} < {artifact.kind for artifact in artifacts.of_video("vid00000001")}
    assert fetch("SELECT subject FROM notices") == [("video:vid00000001",)]
    assert [name for name, _ in videos.steps("vid00000001")].count("failed") == (until == "summarized")
    assert runs.describe_run(bench.rt, bench.rt.today()).failed == 0


def test_an_unknown_pipeline_is_stored_reported_and_taken_up_when_it_is_known(open_bench):
    bench = open_bench()
    bench.deliver("vid00000001", pipeline="mystery")
    bench.drain()
    assert received_events.unknown_pipelines() == {"mystery": 1}
    assert bench.statuses() == {}
    bench.settings = bench.settings.model_copy(
        update={"routes": {**bench.settings.routes, "mystery": bench.settings.routes["creator_watchlist_handler"]}}
    )
    reroute(bench.start())
    bench.drain()
    assert bench.status("vid00000001") == "summarized"
    assert received_events.unknown_pipelines() == {}


@pytest.mark.parametrize(
    ("action", "rows"), [("notify", 1), ("digest", 0), ("ignore", 0)], ids=["notify", "digest", "ignore"]
)
def test_other_actions_make_no_video(open_bench, action, rows):
    bench = open_bench(routes={"quiet": {"action": action}})
    bench.deliver("vid00000001", pipeline="quiet")
    bench.drain()
    assert bench.statuses() == {}
    assert notices.waiting_count() == rows
    assert received_events.counts() == {action: 1}


def test_a_signal_without_a_usable_video_is_kept_and_named(open_bench):
    bench = open_bench()
    bench.deliver("x", text=None, subject={"video_id": "../../etc/passwd"})
    bench.drain()
    assert received_events.counts() == {"unusable": 1}
    assert bench.statuses() == {}


@pytest.mark.parametrize(
    ("subject", "rule"),
    [
        ({"kind": "upcoming"}, "kind"),
        ({"kind": "live"}, "kind"),
        ({"duration_seconds": 14_401}, "max_duration"),
        ({"duration_seconds": 20}, "min_duration"),
        ({"title": "Giveaway!"}, "title"),
    ],
    ids=["upcoming", "live", "too long", "too short", "title"],
)
def test_skip_rules_end_in_skipped_through_failed(open_bench, subject, rule):
    skipped = ["live", "upcoming"]
    bench = open_bench(limits={"min_duration": 30, "skip_title": "(?i)giveaway", "skip_kinds": skipped})
    bench.deliver("vid00000001", subject=subject)
    bench.drain()
    assert [name for name, _ in videos.steps("vid00000001")] == ["discovered", "failed", "skipped"]
    doc = runs.describe_run(bench.rt, bench.rt.today())
    assert (doc.skipped, doc.failed, doc.policies_enforced) == (1, 0, [rule])


def test_the_days_limit_holds_the_rest_until_tomorrow(open_bench, clock):
    bench = open_bench(limits={"videos_per_day": 2})
    for number in range(5):
        bench.deliver(f"vid0000000{number}")
    bench.drain()
    assert sorted(bench.statuses().values()) == ["discovered"] * 3 + ["summarized"] * 2
    assert runs.describe_run(bench.rt, bench.rt.today()).quota_limits_hit == ["videos_per_day"]
    clock.move(86_400)
    bench.drain()
    assert sorted(bench.statuses().values()) == ["discovered"] + ["summarized"] * 4


@pytest.mark.parametrize(("text", "code"), [("", "no_speech"), (None, "no_file")], ids=["zero words", "nothing there"])
def test_without_words_the_video_is_skipped(open_bench, text, code):
    bench = open_bench()
    bench.deliver("vid00000001", text=text)
    bench.drain()
    assert bench.status("vid00000001") == "skipped"
    assert bench.job("tr_vid00000001").doc.status == "failed"
    assert dead_jobs.open_count() == 0
    assert code in {entry.error_code for entry in audit.search(limit=50)}


def test_half_a_million_words_are_summarised(open_bench):
    bench = open_bench()
    bench.deliver("vid00000001", text="The model learns from tokens every day. " * 72_000)
    bench.drain()
    doc = bench.job("tr_vid00000001").doc
    assert doc.transcript_json["words"] == 504_000
    assert bench.status("vid00000001") == "summarized"


def test_more_words_than_the_limit_are_refused_by_name(open_bench):
    bench = open_bench(limits={"max_transcript_words": 10})
    bench.deliver("vid00000001")
    bench.drain()
    assert bench.status("vid00000001") == "skipped"
    assert "max_transcript_words" in videos.get("vid00000001").doc.last_error


def test_a_wrong_language_is_skipped(open_bench):
    bench = open_bench()
    bench.settings = bench.settings.model_copy(
        update={"transcription": bench.settings.transcription.model_copy(update={"languages": ("en",)})}
    )
    bench.start()
    bench.deliver("vid00000001", text=None)
    (bench.home / "transcripts" / "vid00000001.json").write_text(json.dumps({"text": "Guten Tag", "language": "de"}))
    bench.drain()
    assert bench.status("vid00000001") == "skipped"
    assert (
        videos.get("vid00000001").doc.last_error == "the transcript is in de, which is not in transcription.languages"
    )


def test_one_correlation_id_joins_the_whole_way(open_bench):
    bench = open_bench()
    event_id = bench.deliver("vid00000001")
    bench.drain()
    way = list(reversed(audit.search(limit=50, correlation=event_id)))
    assert [entry.action for entry in way] == [
        "route:process",
        "queue_transcription",
        "fetch:file",
        "transcribed",
        "summarized",
    ]
    assert [entry.parent_log_id for entry in way] == [None, *(entry.log_id for entry in way[:-1])]


def test_the_run_counts_what_the_rows_say_and_yesterdays_gets_its_digest(open_bench, clock):
    bench = open_bench(routes={"quiet": {"action": "digest"}}, notifications={"window": 300})
    bench.deliver("vid00000001")
    bench.deliver("vid00000002", text="")
    bench.deliver("vid00000003", pipeline="quiet", subject={"title": "Only <b>seen</b>"})
    bench.drain()
    runs.update_runs(bench.rt)
    today = bench.rt.today()
    doc = runs.runs.find(today)
    numbers = (doc.status, doc.discovered, doc.transcription_queued, doc.transcribed, doc.summarized, doc.skipped)
    assert numbers == ("running", 2, 2, 1, 1, 1)
    assert doc.agent_stats["transcriber"].actions_taken == 4
    assert doc.error_categories == {"no_speech": 1}
    clock.move(86_400)
    bench.run_for(0)
    assert runs.runs.find(today).status == "completed"
    page = (bench.settings.artifacts / "digests" / f"digest-{today}.md").read_text()
    assert "## Title of vid00000001" in page
    assert "Only \\<b\\>seen" in page
    html = (bench.settings.artifacts / "digests" / f"digest-{today}.html").read_text()
    assert "Only &lt;b&gt;seen" in html


@pytest.mark.parametrize("place", ["digest.written", "run.written"])
def test_a_death_at_midnight_loses_no_digest_and_announces_it_once(open_bench, clock, place):
    bench = open_bench()
    bench.deliver("vid00000001")
    bench.run_for(0)
    today = bench.rt.today()
    clock.move(86_400)
    died = bench.kill_at(place)
    bench.drain_through_deaths(seconds=15)
    assert died() == 1
    assert runs.runs.find(today).status == "completed"
    today_ends = csi_clock.iso(runs.day_span(today)[1])
    assert (bench.settings.artifacts / "digests" / f"digest-{today}.html").exists()
    assert fetch("SELECT count(*) FROM notices WHERE subject = ?", f"digest::{today_ends}") == [(1,)]


def test_a_day_keeps_its_dead_letters_when_one_dies_again_later(open_bench, clock):
    bench = open_bench()
    (bench.home / "transcripts" / "vid00000001.json").write_text("{broken")
    bench.deliver("vid00000001", text=None)
    bench.run_for(0)
    first = bench.rt.today()
    clock.move(86_400)
    dead_job_actions.retry(bench.rt, "tr_vid00000001", force=True)
    bench.run_for(0)
    assert [runs.describe_run(bench.rt, day).dlq for day in (first, bench.rt.today())] == [1, 1]


def test_notifications_are_collected_for_five_minutes_and_sent_once(open_bench, clock):
    bench = open_bench(routes={"quiet": {"action": "notify"}})
    sent: list[tuple[str, str]] = []
    bench.rt.notifiers = [lambda title, body: sent.append((title, body))]
    bench.deliver("vid00000001", pipeline="quiet")
    bench.drain()
    clock.move(200)
    bench.deliver("vid00000002", pipeline="quiet")
    bench.drain()
    assert sent == []
    clock.move(100)
    bench.drain()
    assert [title for title, _ in sent] == ["CSI: 2 items"]
    assert "Title of vid00000001" in sent[0][1]
    assert "Title of vid00000002" in sent[0][1]
    clock.move(1000)
    bench.drain()
    assert len(sent) == 1


def test_a_notification_that_fails_is_tried_again_for_a_day_and_can_be_resent(open_bench, clock):
    bench = open_bench(**QUIET)
    is_down, sent = True, []

    def fail(title: str, body: str) -> None:
        if is_down:
            raise notify.NotificationError("unreachable")
        sent.append(title)

    bench.rt.notifiers = [fail]
    bench.deliver("vid00000001", pipeline="quiet")
    for _ in range(27):
        bench.drain()
        alerting.check(bench.rt, is_worker=True)
        clock.move(3600)
    (row,) = notification_log.table.latest(5)
    assert (row.state, row.error) == ("dropped", "unreachable")
    assert row.attempts >= 20
    is_down = False
    assert notify.resend(bench.rt, row.id)
    alerting.check(bench.rt, is_worker=True)
    assert sent == ["Title of vid00000001"]
    assert notification_log.table.latest(5)[0].state == "sent"
    assert not notify.resend(bench.rt, 999)


def test_a_new_video_is_announced_with_its_creator_and_a_late_summary_follows(open_bench, clock):
    bench = open_bench()
    sent: list[tuple[str, str]] = []
    bench.rt.notifiers = [lambda title, body: sent.append((title, body))]
    link = "https://www.youtube.com/watch?v=vid00000001"
    published_at = csi_clock.iso(clock())
    bench.deliver(
        "vid00000001",
        text=None,
        subject={"channel_title": "A creator", "url": link, "published_at": published_at},
    )
    bench.drain()
    assert sent == []
    clock.move(300)
    bench.drain()
    assert sent == [("Title of vid00000001", f"A creator\n{link}")]
    (bench.home / "transcripts" / "vid00000001.txt").write_text(TEXT)
    for _ in range(2):  # asked again after 10 minutes
        clock.move(300)
        bench.drain()
    clock.move(300)
    bench.drain()
    assert len(sent) == 2
    assert sent[1][0] == "Title of vid00000001"
    assert "language model" in sent[1][1]


def test_a_summary_within_the_window_takes_the_place_of_the_announcement(open_bench, clock):
    bench = open_bench()
    sent: list[tuple[str, str]] = []
    bench.rt.notifiers = [lambda title, body: sent.append((title, body))]
    for name in ("vid00000001", "vid00000002"):
        bench.deliver(name)
    bench.drain()
    clock.move(299)
    bench.drain()
    assert sent == []
    clock.move(2)
    bench.drain()
    ((title, body),) = sent
    assert (title, body.count("language model")) == ("CSI: 2 items", 2)
    clock.move(3600)
    bench.drain()
    assert len(sent) == 1


def test_a_target_that_fails_does_not_repeat_messages_to_the_others(open_bench, clock):
    bench = open_bench(**QUIET)
    sent: list[str] = []
    is_down = True

    def late(title: str, body: str) -> None:
        if is_down:
            raise notify.NotificationError("unreachable")
        sent.append(f"late: {title}")

    bench.rt.notifiers = [lambda title, body: sent.append(title), late]
    bench.deliver("vid00000001", pipeline="quiet")
    for _ in range(5):
        bench.drain()
        alerting.check(bench.rt, is_worker=True)
        clock.move(60)
    (title,) = sent
    is_down = False
    clock.move(120)
    alerting.check(bench.rt, is_worker=True)
    assert sent == [title, f"late: {title}"]


def test_without_addresses_notifications_go_to_a_file(open_bench, clock):
    bench = open_bench(notifications={"window": 0})
    bench.deliver("vid00000001")
    bench.drain()
    assert "Title of vid00000001" in bench.settings.notice_file.read_text()
    assert bench.settings.notice_file.stat().st_mode & 0o777 == 0o600


def test_paused_takes_signals_over_and_does_nothing_else(open_bench):
    bench = open_bench(paused=True)
    bench.deliver("vid00000001")
    bench.drain()
    assert bench.statuses() == {"vid00000001": "discovered"}
    assert runs.describe_run(bench.rt, bench.rt.today()).status == "paused"


def test_a_lost_receiver_database_is_one_sentence(open_bench, tmp_path: Path):
    bench = open_bench()
    bench.inbox.close()
    bench.settings.receiver_db.write_bytes(b"not a database" * 100)
    from csi.errors import StoreError
    from csi.processing.receiver_database import read_after

    with pytest.raises(StoreError, match="the receiver's database cannot be read"):
        read_after(bench.settings.receiver_db, received_events.IntakeCursor(), 10)
    assert maintenance.due_wakes(bench.rt) == maintenance.maintain(bench.rt) == []


@pytest.mark.parametrize("count", [1, 9])
def test_a_receivers_database_that_was_made_anew_is_read_from_its_beginning(open_bench, count):
    """The numbers begin at 1 again, below or already past the last one that was seen."""
    bench = open_bench()
    for number in range(5):
        bench.deliver(f"old{number}")
    bench.drain()
    bench.inbox.close()
    for file in bench.home.glob("receiver.db*"):
        file.unlink()
    bench.inbox = SignalStore(bench.settings.receiver_db)
    bench.deliver("old0", event_id="src:test:old0:1")
    for number in range(count):
        bench.deliver(f"new{number}")
    bench.drain()
    assert set(bench.statuses().values()) == {"summarized"}
    assert len(bench.statuses()) == 5 + count
    assert len(fetch("SELECT 1 FROM signals WHERE video_id = ?", "old0")) == 1
    assert maintenance.due_wakes(bench.rt) == []


def test_a_digest_of_an_empty_day_is_a_page_all_the_same(open_bench):
    bench = open_bench()
    markdown, _ = digests.make_digest(bench.rt, digests.whole_day(bench.rt.today()))
    assert "0 summarised" in markdown


def test_jobs_wait_only_for_their_own_time(open_bench, clock):
    """Rescue finds a job whose wake-up was lost: `drain` is nothing but rescue."""
    bench = open_bench()
    bench.deliver("vid00000001")
    bench.drain()
    assert jobs.due(clock(), 10) == []


def test_the_whole_walk_on_postgresql(open_bench, postgres_url, clock):
    bench = open_bench(database=postgres_url, notifications={"window": 0})
    bench.deliver("vid00000001", pipeline="youtube_tutorial_explainer")
    bench.deliver("vid00000002")
    bench.deliver("vid00000003", text="")
    bench.deliver("vid00000002", subject={"title": "NUL \x00 \ud800"}, pipeline="creator_watchlist_handler")
    bench.drain()
    bench.deliver("vid00000002", pipeline="youtube_tutorial_explainer")
    bench.drain()
    assert {"concept", "implementation"} < {artifact.kind for artifact in artifacts.of_video("vid00000002")}
    runs.update_runs(bench.rt)
    assert sorted(bench.statuses().values()) == ["skipped", "summarized", "summarized"]
    assert dict(fetch("SELECT state, count(*) FROM notices GROUP BY state")) == {"sent": 3}
    retry_video(bench.rt, "vid00000003")
    (bench.home / "transcripts" / "vid00000003.txt").write_text(TEXT)
    bench.drain()
    assert bench.status("vid00000003") == "summarized"
    runs.update_runs(bench.rt)
    clock.move(86_400)
    runs.update_runs(bench.rt)
    assert [(run.status, run.summarized) for run in runs.runs.page(5)] == [("planned", 0), ("completed", 3)]
