"""Paid providers: documented statuses and retries, the budget, and no double payment after any crash."""

import errno
import itertools
import os
import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from csi.errors import CsiError
from csi.processing import alerting
from csi.processing.pipeline import admit, dead_job_actions, maintenance, runs
from csi.processing.providers.base import ProviderError
from csi.processing.store import audit, dead_jobs, jobs, notices, paid_calls, providers, videos
from csi.processing.store.db import fetch
from tests.fakes.providers import GOOD, LOST, FakeAssembly, FakeChat, reply
from tests.rigs.processing_bench import ProcessKilled

VIDEO = "vid00000001"
TRANSCRIBE_DEATHS = [
    "transcribe.claimed",
    "transcribe.reserved",
    "transcribe.uploaded",
    "transcribe.submitting",
    "transcribe.submitted",
    "transcribe.transcript",
    "transcribe.written",
    "transcribe.committed",
]
SUMMARISE_DEATHS = [
    "intake.committed",
    "admit.committed",
    "summarise.claimed",
    "summarise.asking",
    "summarise.answered",
    "summarise.booked",
    "summarise.written",
    "summarise.committed",
]


@pytest.fixture
def assembly():
    with FakeAssembly() as server:
        yield server


@pytest.fixture
def chat():
    with FakeChat() as server:
        yield server


def audio_bench(open_bench, assembly: FakeAssembly, home: Path, **settings):
    (home / "audio").mkdir(exist_ok=True)
    (home / "audio" / f"{VIDEO}.mp3").write_bytes(b"ID3 not really audio")
    block = {"base_url": assembly.url, "audio_dir": home / "audio", "usd_per_hour": "0.36"}
    bench = open_bench(transcription={"providers": ["assemblyai"], "assemblyai": block}, **settings)
    bench.deliver(VIDEO, text=None)
    return bench


def chat_bench(open_bench, chat: FakeChat, *, deliver: bool = True, openai=(), **settings):
    block = {
        "base_url": f"{chat.url}/v1",
        "model": "test-model",
        "usd_per_million_input": 1,
        "usd_per_million_output": 2,
        "timeout": 5,
        "retry_unknown_below_usd": 0,
        **dict(openai),
    }
    bench = open_bench(summarization={"provider": "openai", "openai": block}, **settings)
    if deliver:
        bench.deliver(VIDEO)
    return bench


# ── AssemblyAI ──────────────────────────────────────────────────────────────────────────────────────────


def test_audio_is_uploaded_submitted_and_transcribed(open_bench, assembly, tmp_path):
    assembly.waits = 2
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.drain()
    assert bench.job(f"tr_{VIDEO}").doc.status == "processing"
    bench.run_for(60)
    assert bench.status(VIDEO) == "summarized"
    doc = bench.job(f"tr_{VIDEO}").doc
    assert (doc.status, doc.assemblyai_job_id, doc.language_code) == ("completed", "job-1", "en_us")
    assert (doc.estimated_cost_usd, doc.actual_cost_usd) == (Decimal("0.0600"), Decimal("0.0600"))
    assert videos.get(VIDEO).doc.assemblyai_job_id == "job-1"
    assert assembly.submissions[0]["speaker_labels"] is True
    assert "**A:** Hello" in (bench.settings.artifacts / VIDEO / "transcript.md").read_text()
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0600")


@pytest.mark.parametrize("place", TRANSCRIBE_DEATHS)
def test_a_death_anywhere_pays_the_transcript_once(open_bench, assembly, tmp_path, place):
    bench = audio_bench(open_bench, assembly, tmp_path)
    died = bench.kill_at(place)
    bench.drain_through_deaths(seconds=30)
    assert died() == 1
    assert bench.status(VIDEO) == "summarized"
    assert assembly.billed == 1
    assert fetch("SELECT count(*) FROM calls WHERE state = 'paid'") == [(1,)]
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0600")


def test_a_submission_whose_answer_is_lost_is_found_again(open_bench, assembly, tmp_path):
    assembly.faults = {"POST /v2/transcript": [LOST]}
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(60)
    assert bench.status(VIDEO) == "summarized"
    assert (assembly.billed, assembly.count("POST /v2/transcript")) == (1, 1)


def test_a_submission_that_arrives_late_is_not_made_again(open_bench, assembly, tmp_path):
    """We stopped waiting, or died; the provider got to it half a minute later."""
    late: list[dict] = []
    submit = assembly._submit
    assembly._submit = lambda body: late.append(body) or (504, {"error": "gateway time-out"}, {})
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(40)
    assert assembly.count("GET /v2/transcript") == 2
    submit(late[0])
    bench.run_for(120)
    assert bench.status(VIDEO) == "summarized"
    assert (assembly.billed, len(late)) == (1, 1)


def test_a_submission_that_never_arrived_is_made_again(open_bench, assembly, tmp_path):
    assembly.faults = {"POST /v2/transcript": [503]}
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(120)
    assert bench.status(VIDEO) == "summarized"
    assert (assembly.billed, assembly.count("POST /v2/transcript")) == (1, 2)
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0600")


def test_api_calls_wait_10_to_160_and_attempts_60_120_240_then_a_dead_letter(open_bench, assembly, tmp_path, clock):
    assembly.always = {"/v2/upload": 500}
    bench = audio_bench(open_bench, assembly, tmp_path, dlq={"auto_retry": False})
    times, seen = [], 0
    start = clock()
    while dead_jobs.open_count() == 0:
        bench.drain()
        if assembly.count("/v2/upload") > seen:
            seen = assembly.count("/v2/upload")
            times.append(clock() - start)
        clock.move(1)
    gaps = [round(after - before) for before, after in itertools.pairwise(times)]
    api = [10, 20, 40, 80, 160]
    assert gaps == [*api, 60, *api, 120, *api, 240, *api]
    doc = dead_job_actions.get(f"tr_{VIDEO}").doc
    assert (doc.failure_type, doc.total_attempts, doc.can_retry) == ("max_retries", 4, True)
    assert bench.status(VIDEO) == "failed"
    assert bench.job(f"tr_{VIDEO}").doc.error_type == "api_error"


def test_a_provider_that_is_down_for_an_hour_loses_nothing(open_bench, assembly, tmp_path):
    assembly.always = {"/v2/upload": 503}
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(3600, stride=30)
    assert bench.status(VIDEO) == "failed"
    assembly.always = {}
    bench.run_for(3 * 3600, stride=60)
    assert bench.status(VIDEO) == "summarized"
    doc = dead_job_actions.get(f"tr_{VIDEO}").doc
    assert (doc.dlq_status, doc.can_retry) == ("resolved", False)
    assert "retried by auto-retry" in doc.resolution_notes


def test_a_negative_balance_pauses_the_provider_and_costs_nothing(open_bench, assembly, tmp_path):
    error = {"error": "Your account balance is negative. Please top up to continue."}
    assembly.always = {"POST /v2/transcript": (400, error, {})}
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.drain()
    assert providers.find("assemblyai").pause_cause == "no_credit"
    assert (dead_jobs.open_count(), jobs.waiting("assemblyai")) == (0, 1)
    assert bench.job(f"tr_{VIDEO}").doc.error_type == "quota_exceeded"
    assert paid_calls.used(bench.rt.today()) == 0
    bench.run_for(3600, stride=60)
    assert assembly.count("POST /v2/transcript") == 13
    assembly.always = {}
    bench.run_for(330, stride=30)
    assert (bench.status(VIDEO), assembly.billed, assembly.count("/v2/upload")) == ("summarized", 1, 1)


def test_a_job_that_fails_at_the_provider_is_free_and_a_dead_letter(open_bench, tmp_path):
    with FakeAssembly(error="Transcoding failed. File does not appear to contain audio.") as assembly:
        bench = audio_bench(open_bench, assembly, tmp_path)
        bench.run_for(20)
        doc = dead_job_actions.get(f"tr_{VIDEO}").doc
        assert (doc.failure_type, doc.can_retry) == ("fatal_error", False)
        assert bench.job(f"tr_{VIDEO}").doc.error_type == "invalid_audio"
        assert paid_calls.used(bench.rt.today()) == 0 == assembly.billed


@pytest.mark.parametrize(
    "odd",
    [
        {"language_code": {"a": 1}},
        {"audio_duration": "long"},
        {"audio_duration": -5},
        {"audio_duration": 1e30},
        {"utterances": 5},
        {"utterances": [{"start": "x"}]},
        {"text": ["a"]},
    ],
    ids=str,
)
def test_a_transcript_that_cannot_be_read_is_looked_at_again_and_never_paid_anew(open_bench, assembly, tmp_path, odd):
    whole = assembly._look
    assembly._look = lambda name: (200, whole(name)[1] | odd, {})
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(3600, stride=30)
    doc = dead_job_actions.get(f"tr_{VIDEO}").doc
    assert (doc.failure_type, doc.failure_reason) == ("max_retries", "bad_answer")
    assembly._look = whole
    bench.run_for(3 * 3600, stride=60)
    assert bench.status(VIDEO) == "summarized"
    assert assembly.billed == 1 == len(assembly.submissions)
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0600")


@pytest.mark.parametrize("seconds", [None, 0, 366 * 86_400], ids=["none", "zero", "a year"])
def test_a_length_that_cannot_be_is_not_the_price_and_not_the_videos_length(open_bench, assembly, tmp_path, seconds):
    whole = assembly._look
    assembly._look = lambda name: (200, whole(name)[1] | {"audio_duration": seconds}, {})
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(60)
    assert bench.status(VIDEO) == "summarized"
    assert videos.get(VIDEO).doc.duration_sec == 600
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0600")


def test_a_transcript_of_another_job_is_not_taken(open_bench, assembly, tmp_path):
    whole = assembly._look
    assembly._look = lambda name: (200, whole(name)[1] | {"id": "job-999", "text": "of another video"}, {})
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(300)
    assert "it answered with another job" in bench.job(f"tr_{VIDEO}").doc.error_message
    assembly._look = whole
    bench.run_for(3600, stride=30)
    assert bench.job(f"tr_{VIDEO}").doc.transcript_text == assembly.text
    assert assembly.billed == 1


def test_429_waits_as_long_as_it_is_asked(open_bench, assembly, tmp_path, clock):
    assembly.faults = {"/v2/upload": [(429, {"error": "Too Many Requests"}, {"Retry-After": "90"})]}
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.drain()
    clock.move(89)
    bench.drain()
    assert assembly.count("/v2/upload") == 1
    clock.move(1)
    bench.drain()
    assert assembly.count("/v2/upload") == 2


def test_where_there_are_no_captions_audio_is_uploaded(open_bench, assembly, tmp_path):
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / f"{VIDEO}.m4a").write_bytes(b"audio")
    block = {"base_url": assembly.url, "audio_dir": tmp_path / "audio"}
    files = {"directory": tmp_path / "transcripts"}
    bench = open_bench(transcription={"providers": ["file", "assemblyai"], "file": files, "assemblyai": block})
    bench.deliver(VIDEO, text=None)
    bench.run_for(20)
    assert bench.status(VIDEO) == "summarized"
    assert assembly.billed == 1


@pytest.mark.parametrize("out", ["{out}", "{out}.mp3", "--to={out}.mp3"])
def test_the_operators_command_fetches_audio_without_a_shell(open_bench, assembly, tmp_path, out):
    script = tmp_path / "fetch"
    script.write_text('#!/bin/sh\nprintf "%s" "$1" > "${2#--to=}"\n')
    script.chmod(0o755)
    block = {"base_url": assembly.url, "audio_command": [str(script), "{url}", out]}
    bench = open_bench(transcription={"providers": ["assemblyai"], "assemblyai": block})
    bench.deliver(VIDEO, text=None)
    bench.run_for(20)
    assert bench.status(VIDEO) == "summarized"


def test_no_audio_anywhere_is_skipped_and_says_what_to_set(open_bench, assembly):
    bench = open_bench(transcription={"providers": ["assemblyai"], "assemblyai": {"base_url": assembly.url}})
    bench.deliver(VIDEO, text=None)
    bench.drain()
    assert bench.status(VIDEO) == "skipped"
    assert "audio_dir" in videos.get(VIDEO).doc.last_error


# ── the model ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_writes_summary_and_documents(open_bench, chat):
    bench = chat_bench(open_bench, chat, deliver=False)
    bench.deliver(VIDEO, pipeline="youtube_tutorial_explainer")
    bench.drain()
    doc = bench.job(f"su_{VIDEO}").doc
    assert (doc.model_used, doc.prompt_id, doc.prompt_version) == ("test-model-1", "summary", "1.0")
    assert (doc.input_tokens, doc.output_tokens) == (3000, 300)
    assert doc.estimated_cost_usd == Decimal("0.0036") == paid_calls.used(bench.rt.today())
    assert (bench.settings.artifacts / VIDEO / "IMPLEMENTATION.md").read_text() == "# Made"
    assert runs.describe_run(bench.rt, bench.rt.today()).tokens_consumed == 3300


def test_a_worker_that_is_asked_to_end_begins_no_paid_call_and_leaves_no_dead_letter(open_bench, chat):
    bench = chat_bench(open_bench, chat, openai={"chunk_words": 100})
    bench.deliver("vid00000002", text="word " * 250)

    def end_soon(place: str) -> None:
        if place == "summarise.booked":
            bench.rt.stopping.set()

    bench.rt.failpoint = end_soon
    for wake in [*maintenance.due_wakes(bench.rt), maintenance.StepWake("admit")]:
        maintenance.run_step(bench.rt, wake)
    maintenance.run_step(bench.rt, maintenance.StepWake("transcribe", "tr_vid00000002"))
    assert maintenance.run_step(bench.rt, maintenance.StepWake("summarise", "su_vid00000002")) == [
        maintenance.StepWake("summarise", "su_vid00000002")
    ]
    job = bench.job("su_vid00000002")
    assert (chat.billed, job.attempts, job.crashes) == (1, 0, 0)
    bench.start()
    bench.drain()
    assert bench.statuses() == {VIDEO: "summarized", "vid00000002": "summarized"}
    assert (chat.billed, dead_jobs.open_count()) == (1 + 3 + 1, 0)


def test_documents_that_are_wanted_late_are_paid_and_nothing_else_again(open_bench, chat):
    bench = chat_bench(open_bench, chat)
    bench.drain()
    assert (bench.status(VIDEO), chat.billed) == ("summarized", 1)
    bench.deliver(VIDEO, pipeline="youtube_tutorial_explainer")
    bench.drain()
    assert (bench.status(VIDEO), chat.billed) == ("summarized", 3)
    assert (bench.settings.artifacts / VIDEO / "CONCEPT.md").read_text() == "# Made"


def test_a_document_that_is_wanted_while_the_summary_is_written_is_not_forgotten(open_bench, chat):
    bench = chat_bench(open_bench, chat)

    def come_again(place: str) -> None:
        if place == "summarise.answered" and chat.billed == 1:
            bench.deliver(VIDEO, pipeline="youtube_tutorial_explainer")
            maintenance.run_step(bench.rt, maintenance.StepWake("intake"))

    bench.rt.failpoint = come_again
    bench.drain()
    assert (bench.status(VIDEO), chat.billed) == ("summarized", 3)


def test_long_transcripts_are_split_and_merged(open_bench, chat):
    bench = chat_bench(open_bench, chat, deliver=False, openai={"chunk_words": 100})
    bench.deliver(VIDEO, text="word " * 2500)
    bench.drain()
    assert bench.status(VIDEO) == "summarized"
    keys = [row[0].split("/")[1] for row in fetch("SELECT call_key FROM calls ORDER BY call_key")]
    assert sum(key.startswith("part-") for key in keys) == 25
    assert sum(key.startswith("merge-") for key in keys) == 3


@pytest.mark.parametrize("place", SUMMARISE_DEATHS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["honours the key", "does not"])
def test_a_death_anywhere_pays_the_summary_once(open_bench, place, idempotent):
    with FakeChat(idempotent=idempotent) as chat:
        bench = chat_bench(open_bench, chat, openai={"honours_idempotency_key": idempotent})
        died = bench.kill_at(place)
        bench.drain_through_deaths()
        assert died() == 1
        unsure = place in ("summarise.asking", "summarise.answered") and not idempotent
        assert bench.status(VIDEO) == ("failed" if unsure else "summarized")
        assert chat.billed == (0 if unsure and place == "summarise.asking" else 1)
        if unsure:
            doc = dead_job_actions.get(f"su_{VIDEO}").doc
            assert (doc.failure_type, doc.can_retry) == ("manual_intervention", True)
            dead_job_actions.retry(bench.rt, f"su_{VIDEO}")
            bench.drain()
            assert bench.status(VIDEO) == "summarized"
        booked = fetch("SELECT count(*) FROM calls WHERE state IN ('paid', 'unknown')")[0][0]
        assert booked >= chat.billed


@pytest.mark.parametrize(
    "fault",
    [LOST, 504, 409, (200, b"<html>busy</html>", {}), (200, {"choices": []}, {})],
    ids=["answer lost", "gateway timed out", "still being worked on", "no JSON", "no choices"],
)
def test_a_call_that_left_and_was_not_answered_is_not_made_again_by_itself(open_bench, chat, fault):
    chat.faults = {"/chat/completions": [fault]}
    bench = chat_bench(open_bench, chat)
    bench.run_for(4 * 3600, stride=300)
    assert chat.count("/chat/completions") == 1
    doc = dead_job_actions.get(f"su_{VIDEO}").doc
    assert (doc.failure_type, doc.dlq_status, doc.can_retry) == ("manual_intervention", "pending", True)
    assert "whether the call was carried out and paid is unknown" in doc.final_error
    assert fetch("SELECT state FROM calls") == [("unknown",)]
    assert paid_calls.used(bench.rt.today()) > 0
    dead_job_actions.retry(bench.rt, f"su_{VIDEO}")
    bench.drain()
    assert (bench.status(VIDEO), chat.count("/chat/completions")) == ("summarized", 2)


def test_a_time_out_is_like_a_crash_in_the_middle_of_the_call(open_bench, chat):
    slow = threading.Event()
    chat.script = [lambda: (slow.wait(10), reply(GOOD))[1]]
    bench = chat_bench(open_bench, chat, openai={"timeout": 1})
    bench.drain()
    slow.set()
    assert dead_job_actions.get(f"su_{VIDEO}").doc.failure_type == "manual_intervention"
    bench.run_for(3600, stride=300)
    assert (chat.count("/chat/completions"), chat.billed) == (1, 1)


@pytest.mark.parametrize("fault", [LOST, 504, 409], ids=["answer lost", "gateway timed out", "still being worked on"])
def test_with_a_key_that_is_honoured_the_same_call_goes_out_again_and_is_paid_once(open_bench, fault):
    with FakeChat(idempotent=True) as chat:
        chat.faults = {"/chat/completions": [fault, fault]}
        bench = chat_bench(open_bench, chat, openai={"honours_idempotency_key": True})
        bench.run_for(120)
        assert bench.status(VIDEO) == "summarized"
        keys = {headers["idempotency-key"] for _, _, headers in chat.requests}
        assert (len(keys), len(chat.requests), chat.billed) == (1, 3, 1)
        assert fetch("SELECT state FROM calls") == [("paid",)]
        assert paid_calls.used(bench.rt.today()) == Decimal("0.0012")


def test_a_clear_no_to_a_repeated_call_does_not_make_the_first_one_free(open_bench):
    with FakeChat(idempotent=True) as chat:
        chat.faults = {"/chat/completions": [LOST, 503, 429]}
        bench = chat_bench(open_bench, chat, openai={"honours_idempotency_key": True})
        bench.run_for(180)
        assert (bench.status(VIDEO), chat.billed) == ("summarized", 1)
        assert {headers["idempotency-key"] for _, _, headers in chat.requests} == {f"su_{VIDEO}/part-1/1"}


def test_an_endpoint_that_no_longer_honours_the_key_is_not_asked_again(open_bench):
    with FakeChat(idempotent=True) as chat:
        chat.faults = {"/chat/completions": [LOST]}
        bench = chat_bench(open_bench, chat, openai={"honours_idempotency_key": True})
        bench.drain()
        block = bench.settings.summarization.openai.model_copy(update={"honours_idempotency_key": False})
        summarization = bench.settings.summarization.model_copy(update={"openai": block})
        bench.settings = bench.settings.model_copy(update={"summarization": summarization})
        bench.start()
        bench.run_for(3600, stride=60)
        assert chat.count("/chat/completions") == 1
        assert dead_job_actions.get(f"su_{VIDEO}").doc.failure_type == "manual_intervention"


def test_a_call_that_never_left_is_free_and_made_again(open_bench, chat, clock):
    bench = chat_bench(open_bench, chat)
    there, bench.rt.chat = bench.rt.chat, unreachable_chat(bench)
    bench.drain()
    assert fetch("SELECT state FROM calls") == [("free",)]
    bench.rt.chat = there
    clock.move(10)
    bench.drain()
    assert (bench.status(VIDEO), chat.billed) == ("summarized", 1)


def unreachable_chat(bench):
    assert bench.rt.chat is not None
    nowhere = bench.rt.chat.settings.model_copy(update={"base_url": "http://127.0.0.1:9/v1"})
    return replace(bench.rt.chat, settings=nowhere)


def test_500_and_503_of_a_model_are_a_clear_no(open_bench, chat):
    chat.faults = {"/chat/completions": [500, 503]}
    bench = chat_bench(open_bench, chat)
    bench.run_for(60)
    assert (bench.status(VIDEO), chat.billed) == ("summarized", 1)
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0012")


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (reply("not json"), "invalid_json"),
        (reply({"bullets": []}), "invalid_json"),
        (reply(GOOD | {"bullets": ["x" * 30_000]}), "invalid_json"),
        (reply(GOOD) | {"choices": [{"message": {"content": [{"text": "x"}]}}]}, "empty_answer"),
        (reply(GOOD, finish="length"), "truncated"),
        (reply(GOOD, finish="content_filter"), "content_filter"),
        (reply(None, refusal="I cannot help with that"), "model_refused"),
        (reply(""), "empty_answer"),
    ],
    ids=["not json", "fields missing", "endless", "no text", "cut off", "filtered", "refused", "empty"],
)
def test_an_answer_that_is_no_summary_is_paid_counted_and_asked_again(open_bench, chat, clock, bad, code):
    chat.script = [lambda: dict(bad)]
    bench = chat_bench(open_bench, chat)
    bench.drain()
    job = bench.job(f"su_{VIDEO}")
    assert (job.doc.status, job.attempts, chat.billed) == ("retrying", 1, 1)
    assert code in {entry.error_code for entry in audit.search(limit=20)}
    clock.move(30)
    bench.drain()
    assert bench.status(VIDEO) == "summarized"
    assert chat.billed == 2
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0024")


def test_a_model_that_never_answers_well_is_a_dead_letter_after_30_60_120(open_bench, chat, clock):
    chat.script = [lambda: reply("no")] * 10
    bench = chat_bench(open_bench, chat)
    for wait in (0, 30, 60, 120):
        clock.move(wait)
        bench.drain()
    assert chat.billed == 4
    assert dead_job_actions.get(f"su_{VIDEO}").doc.failure_type == "max_retries"
    assert bench.status(VIDEO) == "failed"
    assert bench.job(f"su_{VIDEO}").doc.estimated_cost_usd == Decimal("0.0048") == paid_calls.used(bench.rt.today())


def test_a_summary_has_its_estimate_before_it_is_asked_for_and_its_price_after(open_bench, chat):
    bench = chat_bench(open_bench, chat)
    bench.kill_at("summarise.asking")
    with pytest.raises(ProcessKilled):
        bench.drain()
    assert bench.job(f"su_{VIDEO}").doc.estimated_cost_usd == paid_calls.used(bench.rt.today()) > Decimal("0.0012")


def test_json_in_a_code_fence_is_read(open_bench, chat):
    chat.script = [lambda: reply('```json\n{"bullets":["a"],"key_concepts":[],"executive_summary":"x"}\n```')]
    bench = chat_bench(open_bench, chat)
    bench.drain()
    assert bench.status(VIDEO) == "summarized"


def test_without_usage_tokens_are_estimated(open_bench):
    with FakeChat(usage=False) as chat:
        bench = chat_bench(open_bench, chat)
        bench.drain()
        assert bench.job(f"su_{VIDEO}").doc.input_tokens > 100


@pytest.mark.parametrize("tokens", [-5_000_000, "many", 10**30, True, None])
def test_a_number_of_tokens_that_cannot_be_is_estimated(open_bench, chat, tokens):
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
    chat.script = [lambda: reply(GOOD) | {"usage": usage, "model": "m" * 30_000}]
    bench = chat_bench(open_bench, chat)
    bench.drain()
    doc = bench.job(f"su_{VIDEO}").doc
    assert (bench.status(VIDEO), chat.billed, len(doc.model_used)) == ("summarized", 1, 200)
    assert 0 < doc.input_tokens < 5000
    assert 0 < doc.output_tokens < 500


def test_no_credit_at_the_model_pauses_it(open_bench, chat):
    error = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    chat.always = {"/chat/completions": (429, error, {})}
    bench = chat_bench(open_bench, chat)
    bench.drain()
    assert chat.count("/chat/completions") == 1
    assert providers.find("openai").pause_cause == "no_credit"
    assert dead_jobs.open_count() == 0


# ── money ───────────────────────────────────────────────────────────────────────────────────────────────


def test_at_80_percent_one_alert_at_100_no_new_paid_work_until_tomorrow(open_bench, chat, clock):
    bench = chat_bench(
        open_bench, chat, deliver=False, budget={"daily_usd": "0.0060"}, openai={"max_output_tokens": 600}
    )
    for number in range(6):
        bench.deliver(f"vid0000000{number}")
    bench.drain()
    today = bench.rt.today()
    assert paid_calls.used(today) <= Decimal("0.0060")
    done = sum(status == "summarized" for status in bench.statuses().values())
    assert 0 < done < 6
    assert chat.billed == done
    assert runs.describe_run(bench.rt, bench.rt.today()).quota_limits_hit == ["daily_budget_usd"]
    alerts = fetch("SELECT count(*) FROM notices WHERE subject LIKE 'budget:%'")[0][0]
    assert alerts == 1
    assert dead_jobs.open_count() == 0
    clock.move(86_400)
    bench.drain()
    assert sum(status == "summarized" for status in bench.statuses().values()) > done


def test_an_expensive_video_waits_without_using_an_attempt(open_bench, assembly, tmp_path):
    bench = audio_bench(open_bench, assembly, tmp_path, budget={"daily_usd": "0.1"})
    (tmp_path / "audio" / "vid00000002.mp3").write_bytes(b"audio")
    bench.deliver("vid00000002", text=None)
    bench.run_for(120, stride=15)
    job = bench.job("tr_vid00000002")
    assert (assembly.billed, job.attempts, bench.status("vid00000002")) == (1, 0, "transcription_queued")
    bench.run_for(86_400, stride=3600)
    assert bench.status("vid00000002") == "summarized"


def test_what_no_day_could_pay_for_is_a_dead_letter_that_says_so(open_bench, assembly, tmp_path):
    bench = audio_bench(open_bench, assembly, tmp_path, budget={"daily_usd": "0.01"})
    bench.drain()
    doc = dead_job_actions.get(f"tr_{VIDEO}").doc
    assert (assembly.billed, doc.failure_reason, doc.can_retry) == (0, "over_budget", True)
    assert "more than the daily budget" in doc.final_error


def test_two_threads_that_admit_the_same_video_make_one_job(open_bench, monkeypatch):
    bench = open_bench()
    bench.deliver(VIDEO)
    maintenance.run_step(bench.rt, maintenance.StepWake("intake"))
    seen = videos.discovered(bench.clock(), 5)
    monkeypatch.setattr(videos, "discovered", lambda now, limit: seen)  # both threads read the row before either wrote
    assert len(admit.admit(bench.rt)) == 1
    assert admit.admit(bench.rt) == []
    assert fetch("SELECT count(*) FROM jobs") == [(1,)]


def test_a_retry_of_broken_audio_uploads_anew(open_bench, tmp_path):
    with FakeAssembly(error="File does not appear to contain audio.") as assembly:
        bench = audio_bench(open_bench, assembly, tmp_path)
        bench.run_for(20)
        assembly.error = ""
        dead_job_actions.retry(bench.rt, f"tr_{VIDEO}", force=True)
        bench.run_for(20)
        assert bench.status(VIDEO) == "summarized"
        assert assembly.count("/v2/upload") == 2


def test_a_dead_job_whose_video_moved_on_is_left_alone(open_bench, assembly, tmp_path):
    assembly.always = {"/v2/upload": 500}
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.run_for(2000, stride=10)
    videos.skip(videos.get(VIDEO), "by hand", bench.clock())
    bench.run_for(4000, stride=500)
    assert bench.status(VIDEO) == "skipped"
    assert dead_jobs.find(f"tr_{VIDEO}").doc.can_retry is False


def test_estimates_are_rounded_up_and_amounts_to_four_decimals(open_bench, assembly, tmp_path):
    bench = audio_bench(open_bench, assembly, tmp_path)
    from csi.processing.providers.base import TranscriptRequest

    provider = bench.rt.paid["assemblyai"]
    assert provider.estimate(TranscriptRequest("v", "u", 0.001)) == Decimal("0.000001")
    assert provider.estimate(TranscriptRequest("v", "u", 0)) == Decimal("0.3600")


def test_sums_are_rounded_and_not_their_parts(open_bench, chat):
    """Each call costs 0.00004 USD: rounded one by one, nothing would ever have been spent."""
    bench = chat_bench(open_bench, chat, openai={"usd_per_million_input": "0.04", "usd_per_million_output": 0})
    bench.drain()
    for number in range(2, 11):
        bench.deliver(f"vid000000{number:02d}")
    bench.drain()
    assert paid_calls.used(bench.rt.today()) == Decimal("0.0004")


# ── money that returns, and uploads ─────────────────────────────────────────────────────────────────────


def test_money_that_returns_wakes_the_jobs_that_wait_for_it(open_bench, assembly, tmp_path):
    """A video of unknown length reserves an hour; what it did not use is for the next one, on the same day."""
    (tmp_path / "audio").mkdir()
    bench = audio_bench(open_bench, assembly, tmp_path, budget={"daily_usd": "0.50"})
    for name in ("vid00000002", "vid00000003"):
        (tmp_path / "audio" / f"{name}.mp3").write_bytes(b"audio")
        bench.deliver(name, text=None, subject={"duration_seconds": None})
    assembly.waits = 3
    bench.run_for(0)
    assert jobs.waiting_by_reason() == {"budget": 1}
    assert videos.get("vid00000002").doc.duration_sec == 0
    bench.run_for(200)
    assert set(bench.statuses().values()) == {"summarized"}
    assert runs.describe_run(bench.rt, bench.rt.today()).quota_limits_hit == []
    assert (paid_calls.used(bench.rt.today()), paid_calls.reserved(bench.rt.today())) == (Decimal("0.18"), 0)
    assert videos.get("vid00000002").doc.duration_sec == 600


def test_audio_that_the_budget_does_not_cover_is_not_uploaded(open_bench, assembly, tmp_path):
    bench = audio_bench(open_bench, assembly, tmp_path, budget={"daily_usd": "0.07"})
    (tmp_path / "audio" / "vid00000002.mp3").write_bytes(b"audio")
    bench.deliver("vid00000002", text=None)
    bench.run_for(120, stride=15)
    assert (assembly.count("/v2/upload"), jobs.waiting_by_reason()) == (1, {"budget": 1})
    assert runs.describe_run(bench.rt, bench.rt.today()).quota_limits_hit == ["daily_budget_usd"]


def test_an_old_upload_is_not_submitted(open_bench, assembly, tmp_path, clock):
    assembly.always = {"POST /v2/transcript": 429}
    bench = audio_bench(open_bench, assembly, tmp_path, dlq={"auto_retry": False})
    bench.drain()
    assert bench.job(f"tr_{VIDEO}").work["phase"] == "uploaded"
    clock.move(21 * 3600)
    assembly.always = {}
    bench.run_for(60)
    assert (bench.status(VIDEO), assembly.billed) == ("summarized", 1)
    assert assembly.submissions[-1]["audio_url"].endswith("/2")


def test_a_job_that_the_provider_forgot_is_submitted_again(open_bench, assembly, tmp_path):
    assembly.waits = 2
    bench = audio_bench(open_bench, assembly, tmp_path)
    bench.drain()
    assembly.jobs.clear()
    bench.run_for(120)
    assert (bench.status(VIDEO), len(assembly.submissions)) == ("summarized", 2)


def test_a_provider_that_forgets_every_job_is_not_paid_without_end(open_bench, assembly, tmp_path):
    assembly.always = {f"/v2/transcript/job-{number}": 404 for number in range(1, 20)}
    bench = audio_bench(open_bench, assembly, tmp_path, dlq={"auto_retry": False})
    bench.run_for(2000, stride=10)
    assert (bench.status(VIDEO), len(assembly.submissions)) == ("failed", 3)


# ── calls without an answer, and dead letters ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", [LOST, 504, (200, b"<html>", {}), (200, b'{"choices": [', {})])
def test_a_cheap_call_without_an_answer_is_made_again_as_the_next_attempt(open_bench, chat, clock, fault):
    chat.faults = {"/chat/completions": [fault, fault]}
    bench = chat_bench(open_bench, chat, openai={"retry_unknown_below_usd": "0.01"})
    bench.drain()
    assert (bench.status(VIDEO), bench.job(f"su_{VIDEO}").doc.status) == ("transcribed", "retrying")
    bench.run_for(100)
    assert (bench.status(VIDEO), dead_jobs.open_count()) == ("summarized", 0)
    assert bench.job(f"su_{VIDEO}").doc.error_message is None


def test_a_cheap_call_that_is_never_answered_is_for_a_person_after_the_attempts(open_bench, chat):
    chat.always = {"/chat/completions": 504}
    bench = chat_bench(open_bench, chat, openai={"retry_unknown_below_usd": "0.01"})
    bench.run_for(400)
    doc = dead_job_actions.get(f"su_{VIDEO}").doc
    assert (doc.failure_type, doc.total_attempts) == ("manual_intervention", 4)


def test_a_retry_is_resolved_when_it_has_succeeded_and_not_before(open_bench, chat):
    chat.faults = {"/chat/completions": [LOST, LOST]}
    bench = chat_bench(open_bench, chat)
    bench.drain()
    dead_job_actions.retry(bench.rt, f"su_{VIDEO}")
    letter = dead_job_actions.get(f"su_{VIDEO}")
    assert (letter.state, letter.doc.dlq_status, letter.doc.resolved_at) == ("retrying", "pending", None)
    with pytest.raises(CsiError, match="is being retried since"):
        dead_job_actions.retry(bench.rt, f"su_{VIDEO}")
    bench.drain()
    letter = dead_job_actions.get(f"su_{VIDEO}")
    assert (letter.state, letter.doc.escalation_level) == ("pending", 2)
    dead_job_actions.retry(bench.rt, f"su_{VIDEO}")
    bench.drain()
    letter = dead_job_actions.get(f"su_{VIDEO}")
    assert (letter.state, bench.status(VIDEO)) == ("resolved", "summarized")
    with pytest.raises(CsiError, match="has succeeded since"):
        dead_job_actions.reopen(bench.rt, f"su_{VIDEO}")


@pytest.mark.parametrize("closed", ["resolved", "abandoned"])
def test_closing_a_dead_letter_can_be_undone(open_bench, chat, closed):
    chat.faults = {"/chat/completions": [LOST]}
    bench = chat_bench(open_bench, chat)
    bench.drain()
    dead_job_actions.close(bench.rt, f"su_{VIDEO}", closed, "by mistake")
    assert bench.status(VIDEO) == ("skipped" if closed == "abandoned" else "failed")
    doc = dead_job_actions.reopen(bench.rt, f"su_{VIDEO}")
    assert (doc.dlq_status, doc.resolved_at, bench.status(VIDEO)) == ("pending", None, "failed")
    dead_job_actions.retry(bench.rt, f"su_{VIDEO}")
    bench.drain()
    assert bench.status(VIDEO) == "summarized"
    assert fetch("SELECT count(*) FROM jobs") == [(2,)]


# ── leases ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_kills_the_process_three_times_is_quarantined(open_bench):
    bench = open_bench()
    bench.deliver(VIDEO)
    bench.deliver("vid00000002")
    poison = bench.rt

    def hit(place: str) -> None:
        if place == "transcribe.claimed" and jobs.find(f"tr_{VIDEO}").doc.status == "queued" and _holds(VIDEO):
            raise ProcessKilled(place)

    def _holds(video: str) -> bool:
        return fetch("SELECT 1 FROM jobs WHERE job_id = ? AND lease_until > ?", f"tr_{video}", bench.clock()) != []

    poison.failpoint = hit
    assert bench.drain_through_deaths() == 3
    assert bench.statuses() == {VIDEO: "failed", "vid00000002": "summarized"}
    doc = dead_job_actions.get(f"tr_{VIDEO}").doc
    assert (doc.tags, doc.failure_reason) == (["quarantined"], "crash")


def test_a_living_workers_lease_never_runs_out(open_bench, clock):
    bench = open_bench()
    bench.deliver(VIDEO)
    bench.drain()
    bench.deliver("vid00000002")
    maintenance.run_step(bench.rt, maintenance.StepWake("intake"))
    maintenance.run_step(bench.rt, maintenance.StepWake("admit"))
    held = jobs.claim("tr_vid00000002", clock())
    for _ in range(10):
        clock.move(50)
        maintenance.maintain(bench.rt)
    assert jobs.claim("tr_vid00000002", clock()) is None
    assert held is not None


def test_a_full_disk_holds_a_job_up_and_buries_nothing(open_bench, monkeypatch):
    """The worker lives and renews its leases all the while: a job whose step failed must not be among them."""
    bench = open_bench()
    bench.deliver(VIDEO)
    with monkeypatch.context() as full:
        full.setattr(
            os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))
        )
        bench.work_for(600)
    assert bench.status(VIDEO) == "transcription_queued"
    assert jobs.find(f"tr_{VIDEO}").crashes == 0
    bench.work_for(60)
    assert bench.status(VIDEO) == "summarized"


def test_artifacts_that_have_no_place_hold_a_job_up_and_bury_nothing(open_bench, tmp_path):
    (tmp_path / "in the way").write_text("a file where a directory should be")
    bench = open_bench(artifacts_dir=tmp_path / "in the way" / "artifacts")
    bench.deliver(VIDEO)
    bench.work_for(300)
    assert (bench.status(VIDEO), jobs.find(f"tr_{VIDEO}").crashes) == ("transcription_queued", 0)
    (tmp_path / "in the way").unlink()
    bench.work_for(60)
    assert bench.status(VIDEO) == "summarized"


def test_a_defect_ends_in_a_dead_letter_and_stops_no_other_job(open_bench):
    bench = open_bench()

    class Broken:
        name = "file"

        def fetch(self, wanted):
            raise (
                ZeroDivisionError(wanted.video_id)
                if wanted.video_id == VIDEO
                else ProviderError("none", "absent", "no_file")
            )

    bench.rt.free["file"] = Broken()
    bench.deliver(VIDEO)
    bench.deliver("vid00000002")
    bench.work_for(300)
    assert bench.statuses() == {VIDEO: "failed", "vid00000002": "skipped"}
    assert dead_job_actions.get(f"tr_{VIDEO}").doc.tags == ["quarantined"]


def test_what_was_found_out_under_a_lost_lease_is_not_written(open_bench, clock):
    bench = open_bench()
    bench.deliver(VIDEO)
    maintenance.run_step(bench.rt, maintenance.StepWake("intake"))
    maintenance.run_step(bench.rt, maintenance.StepWake("admit"))
    first = jobs.claim(f"tr_{VIDEO}", clock())
    clock.move(61)
    second = jobs.claim(f"tr_{VIDEO}", clock())
    assert second.crashes == 1
    with pytest.raises(jobs.LostLease):
        jobs.update(first, clock(), status="processing")


def test_notices_are_not_lost_when_the_sender_dies(open_bench, clock):
    bench = open_bench(notifications={"window": 0}, routes={"quiet": {"action": "notify"}})
    sent = []
    bench.rt.notifiers = [lambda title, body: sent.append(title)]
    bench.deliver(VIDEO, pipeline="quiet")
    bench.kill_at("notify.committed")
    with pytest.raises(ProcessKilled):
        bench.drain()
    assert (notices.waiting_count(), sent) == (0, [])
    bench.start().notifiers = [lambda title, body: sent.append(title)]
    alerting.check(bench.rt, is_worker=True)
    alerting.check(bench.rt, is_worker=True)
    assert len(sent) == 1
    assert dict(fetch("SELECT state, count(*) FROM notices GROUP BY state")) == {"sent": 1}
