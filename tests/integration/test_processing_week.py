"""A simulated week, checked against specification 001's text and against what the stand-ins served and billed."""

import random
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from csi import clock as csi_clock
from csi.processing.pipeline import runs
from csi.processing.providers.video_facts import VideoFacts
from csi.processing.store.db import fetch
from csi.processing.store.export import collection_documents
from tests.fakes.providers import FakeAssembly, FakeChat
from tests.rigs.processing_bench import TEXT, ProcessKilled

DAY, STRIDE = 86_400, 1200
COLLECTIONS = ("videos", "jobs/transcription", "jobs/summarization", "audit_logs", "jobs_deadletter", "run_events")
# The arrows of the specification's diagram. A video begins as `discovered`; a retry continues where it failed.
ARROWS = {
    ("discovered", "transcription_queued"),
    ("transcription_queued", "transcribed"),
    ("transcribed", "summarized"),
    *((status, "failed") for status in ("discovered", "transcription_queued", "transcribed", "summarized")),
    ("failed", "skipped"),
    ("failed", "transcription_queued"),
    ("failed", "transcribed"),
}
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
KILLS = [
    *("intake.committed", "admit.committed", "transcribe.claimed", "transcribe.reserved", "transcribe.uploaded"),
    *("transcribe.submitting", "transcribe.submitted", "transcribe.transcript", "transcribe.written"),
    *("summarise.claimed", "summarise.asking", "summarise.answered", "summarise.booked", "summarise.written"),
    *("failure.committed", "run.written", "digest.written", "notify.committed"),
]


@dataclass
class Truth:
    """What the simulated world knows of a video."""

    published: float
    captions_at: float | None
    is_premiere: bool
    length: float = 600.0
    views: int = 0


@dataclass
class World:
    videos: dict[str, Truth] = field(default_factory=dict)
    now: Any = None

    def find(self, video_id: str, *, is_stream: bool) -> VideoFacts | None:
        truth = self.videos[video_id]
        over_at = truth.published + 20 * 3600
        if truth.is_premiere and self.now() < over_at:
            return VideoFacts(broadcast="upcoming", starts_at=over_at - 3600)
        return VideoFacts(truth.length, truth.views, None, f"Creator of {video_id}", "none")


def documents() -> dict[str, list[dict[str, Any]]]:
    return {name: [doc.shape() for doc in collection_documents(name)] for name in COLLECTIONS}


def wrong_values(world: World, assembly: FakeAssembly) -> list[str]:
    """Every value that the specification's text or the stand-ins' ledgers contradict."""
    found, docs = [], documents()

    def expect(holds: bool, place: str, value: object) -> None:
        if not holds:
            found.append(f"{place}: {value}")

    for name, rows in docs.items():
        for row in rows:
            for key, value in row.items():
                if key.endswith("_at") or key in ("timestamp", "retry_after", "planned_start_time", "planned_end_time"):
                    expect(bool(MOMENT.fullmatch(value)), f"{name}.{key}", value)
                if key.endswith("_usd"):
                    expect(round(value, 4) == value >= 0, f"{name}.{key}", value)
    known = {f"{name}/{row['job_id']}": row for name in COLLECTIONS[1:3] for row in docs[name]}
    for row in docs["videos"]:
        truth, place = world.videos[row["video_id"]], f"videos/{row['video_id']}"
        expect(row["duration_sec"] == truth.length, f"{place}.duration_sec", row["duration_sec"])
        expect(row.get("view_count") == truth.views, f"{place}.view_count", row.get("view_count"))
        expect(row["channel_title"] == f"Creator of {row['video_id']}", f"{place}.channel_title", row["channel_title"])
        expect(row["status"] == "summarized", f"{place}.status", (row["status"], row.get("last_error")))
        if row["status"] == "summarized":
            expect(row["processing_stage"] == "completed" and "last_error" not in row, place, row)
            expect(row["transcript_doc_ref"] in known and row["summary_doc_ref"] in known, f"{place}.refs", row)
            expect(row["discovered_at"] <= row["completed_at"] <= row["updated_at"], f"{place}.times", row)
    for name, row in known.items():
        expect(row["status"] == "completed", f"{name}.status", row["status"])
        expect("error_message" not in row and "error_type" not in row, f"{name}.error", row.get("error_message"))
        expect(row["created_at"] <= row.get("completed_at", ""), f"{name}.completed_at", row.get("completed_at"))
        expect("next_retry_at" not in row, f"{name}.next_retry_at", row.get("next_retry_at"))
        if "assemblyai_job_id" in row:
            expect(row["actual_cost_usd"] == row["estimated_cost_usd"] == 0.06, f"{name}.cost", row)
            expect(row["transcript_text"] == assembly.text, f"{name}.text", row["transcript_text"])
        elif "transcript_text" in row:
            expect(row["transcript_text"] == TEXT and "actual_cost_usd" not in row, f"{name}.text", row)
    for row in docs["jobs_deadletter"]:
        expect(row["dlq_status"] == "resolved", f"{row['job_id']}.dlq_status", row["dlq_status"])
        expect(row["first_failure_at"] <= row["last_attempt_at"] <= row["moved_to_dlq_at"], row["job_id"], row)
    for row in docs["audit_logs"]:
        if row["event_type"] == "api_call" and not row["action"].startswith("fetch"):
            whole = {"api_endpoint", "api_method", "duration_ms"} <= row.keys()
            expect(whole, f"audit.{row['action']}", row)
    for video_id, old, new in fetch("SELECT video_id, old, new FROM steps ORDER BY id"):
        expect((old is None and new == "discovered") or (old, new) in ARROWS, f"{video_id}.step", (old, new))
    for row in docs["run_events"]:
        begin = csi_clock.parse(f"{row['run_id']}T00:00:00Z")
        for status in ("discovered", "transcribed", "summarized"):
            sql = "SELECT count(DISTINCT video_id) FROM steps WHERE new = ? AND at >= ? AND at < ?"
            expect(
                row[status] == fetch(sql, status, begin, begin + DAY)[0][0], f"{row['run_id']}.{status}", row[status]
            )
        expect(row["budget_used_usd"] <= row["planned_budget_usd"], f"{row['run_id']}.budget", row["budget_used_usd"])
    return found


@pytest.mark.slow
def test_a_week_has_no_wrong_value_gives_up_no_video_and_pays_nothing_twice(open_bench, clock, tmp_path):
    """Outages, late captions, premieres, spent budgets, midnights, and a kill every six hours."""
    rng, world = random.Random(11), World(now=clock)
    (tmp_path / "audio").mkdir()
    with FakeAssembly() as assembly, FakeChat(idempotent=True) as chat:
        audio = {"base_url": assembly.url, "audio_dir": tmp_path / "audio", "usd_per_hour": "0.36"}
        model = {"base_url": f"{chat.url}/v1", "usd_per_million_input": 1, "usd_per_million_output": 2}
        bench = open_bench(
            transcription={
                "providers": ["file", "assemblyai"],
                "file": {"directory": tmp_path / "transcripts"},
                "assemblyai": audio,
            },
            summarization={"provider": "openai", "openai": {**model, "honours_idempotency_key": True, "timeout": 5}},
            budget={"daily_usd": "0.10"},
        )
        begun = clock()
        for number in range(24):
            video_id, published = f"vid{number:08d}", begun + rng.uniform(0, 3.5 * DAY)
            has_audio = number % 4 == 0
            late = published + rng.choice([0, 300, 5 * 3600, 20 * 3600, 60 * 3600])
            is_premiere = number % 6 == 1
            if is_premiere:
                late = published + 22 * 3600
            world.videos[video_id] = Truth(published, None if has_audio else late, is_premiere, views=number)
            if has_audio:
                (tmp_path / "audio" / f"{video_id}.mp3").write_bytes(b"audio")
        waiting, killed = dict(world.videos), [lambda: 0]
        bench.rt.fact_sources = (world,)
        for step in range(int(7.5 * DAY / STRIDE)):
            for video_id, truth in list(waiting.items()):
                if truth.published <= clock():
                    kind = "upcoming" if truth.is_premiere else "video"
                    subject = {"kind": kind, "duration_seconds": None, "published_at": csi_clock.iso(truth.published)}
                    bench.deliver(video_id, text=None, subject=subject)
                    del waiting[video_id]
            for video_id, truth in world.videos.items():
                if truth.captions_at is not None and truth.captions_at <= clock():
                    (tmp_path / "transcripts" / f"{video_id}.txt").write_text(TEXT)
            hours = (clock() - begun) / 3600
            is_out = 40 <= hours < 49
            chat.always = {"/chat/completions": 503} if is_out else {}
            assembly.always = {"/v2/upload": 503} if is_out else {}
            if step % 18 == 17:
                killed.append(bench.kill_at(rng.choice(KILLS)))
            try:
                bench.run_for(STRIDE, stride=300)
            except ProcessKilled:
                clock.move(61)
                bench.start().fact_sources = (world,)
        assert sum(count() for count in killed) > 5
        bench.rt.failpoint = lambda name: None
        bench.run_for(2 * 3600, stride=300)
        runs.update_runs(bench.rt)
        found = wrong_values(world, assembly)
        assert found == [], "\n".join(found)
        assert fetch("SELECT count(*) FROM calls WHERE state NOT IN ('paid', 'free')") == [(0,)]
        paid = dict(fetch("SELECT provider, count(*) FROM calls WHERE state = 'paid' GROUP BY provider"))
        assert paid == {"assemblyai": assembly.billed, "openai": chat.billed} == {"assemblyai": 6, "openai": 24}
        assert Decimal(fetch("SELECT SUM(actual_micro_usd) FROM calls")[0][0]) == 6 * 60_000 + 24 * 1200
