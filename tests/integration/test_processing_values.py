"""Values in documents that validate and must also be true."""

import pytest

from csi import clock as csi_clock
from csi.errors import CsiError
from csi.logs import register_secret
from csi.processing.pipeline import add_videos, dead_job_actions, runs
from csi.processing.providers.http_errors import refusal
from csi.processing.store import artifacts, audit, dead_jobs, videos
from csi.processing.video_lists import read_list
from tests.fakes.providers import FakeAssembly, FakeChat
from tests.integration.test_processing_paid import VIDEO, audio_bench, chat_bench


def test_the_first_failure_is_the_first_and_one_failure_is_one_error(open_bench, clock, tmp_path):
    with FakeAssembly() as assembly:
        assembly.always = {"/v2/upload": 500}
        bench = audio_bench(open_bench, assembly, tmp_path, dlq={"auto_retry": False})
        begun = clock()
        bench.run_for(3000, stride=10)
        doc = dead_job_actions.get(f"tr_{VIDEO}").doc
        assert csi_clock.parse(doc.first_failure_at) == begun
        assert csi_clock.parse(doc.moved_to_dlq_at) > begun + 1000
        calls = assembly.count("/v2/upload")
        run = runs.describe_run(bench.rt, bench.rt.today())
        assert run.error_categories == {"http_500": calls}
        assert run.agent_stats["transcriber"].errors == calls
        assert videos.get(VIDEO).doc.error_count == calls
        assembly.always = {}
        dead_job_actions.retry(bench.rt, f"tr_{VIDEO}")
        bench.run_for(60)
        job = bench.job(f"tr_{VIDEO}")
        assert (job.doc.error_message, job.doc.error_type, job.work["first_failure_at"]) == (None, None, None)


def test_every_call_has_its_endpoint_method_status_and_duration(open_bench, tmp_path):
    with FakeAssembly() as assembly:
        assembly.faults = {"/v2/upload": [503]}
        bench = audio_bench(open_bench, assembly, tmp_path)
        bench.run_for(60)
        entries = [one for one in audit.search(limit=100) if one.event_type == "api_call"]
        made = [(one.api_method, one.api_endpoint.removeprefix(assembly.url), one.api_response_code) for one in entries]
        assert sorted(made) == sorted(
            [
                ("POST", "/v2/upload", 503),
                ("POST", "/v2/upload", 200),
                ("POST", "/v2/transcript", 200),
                ("GET", "/v2/transcript/job-1", 200),
            ]
        )
        assert all(one.duration_ms is not None for one in entries)
        assert runs.describe_run(bench.rt, bench.rt.today()).api_calls_made == len(assembly.requests)


@pytest.mark.parametrize("summary_type", ["short", "detailed", "executive"])
def test_the_type_of_summary_has_an_effect_and_only_a_detailed_one_has_a_detailed_file(open_bench, summary_type):
    bench = open_bench(summarization={"summary_type": summary_type, "max_bullets": 2})
    bench.deliver(VIDEO)
    bench.drain()
    doc = bench.job(f"su_{VIDEO}").doc
    assert len(doc.summary.bullets) == {"short": 2, "detailed": 4, "executive": 1}[summary_type]
    kinds = {one.artifact_id: one.kind for one in artifacts.of_video(VIDEO)}
    assert kinds[doc.drive_refs.short_summary_id] == "summary"
    detailed = doc.drive_refs.detailed_summary_id
    assert (detailed and kinds[detailed]) == ("summary_detailed" if summary_type == "detailed" else None)


def test_the_model_is_told_the_type_of_summary(open_bench):
    with FakeChat() as chat:
        asked: list[bytes] = []
        answer = chat.answer
        chat.answer = lambda *request: asked.append(request[3]) or answer(*request)
        bench = chat_bench(open_bench, chat)
        executive = bench.settings.summarization.model_copy(update={"summary_type": "executive"})
        bench.settings = bench.settings.model_copy(update={"summarization": executive})
        bench.start()
        bench.drain()
        assert b"a person who decides" in asked[0]


def test_planned_videos_are_those_that_waited_that_day(open_bench, clock):
    bench = open_bench(limits={"videos_per_day": 3})
    runs.update_runs(bench.rt)
    for number in range(5):
        bench.deliver(f"vid0000000{number}")
    bench.drain()
    today = bench.rt.today()
    assert runs.describe_run(bench.rt, today).planned_videos == 3
    clock.move(86_400)
    bench.drain()
    assert runs.describe_run(bench.rt, bench.rt.today()).planned_videos == 2
    assert runs.describe_run(bench.rt, today).planned_videos == 3


def test_a_run_says_what_triggered_it(open_bench, clock):
    bench = open_bench()

    def add(video_id: str, source: str) -> None:
        (row,) = read_list(f"{video_id}\n".encode())
        add_videos.add_videos(bench.rt, [row], source, "manual")
        bench.drain()

    def triggered_by() -> str:
        return runs.describe_run(bench.rt, bench.rt.today()).triggered_by

    assert triggered_by() == "schedule"
    add("vid00000001", "manual")
    assert triggered_by() == "manual"
    add("vid00000002", "sheet_backfill")
    assert triggered_by() == "backfill"
    bench.deliver("vid00000003")
    bench.drain()
    assert triggered_by() == "schedule"
    clock.move(86_400)
    add("vid00000004", "sheet_backfill")
    assert triggered_by() == "backfill"


def test_a_run_has_the_notes_that_an_operator_wrote(open_bench, clock):
    bench = open_bench()
    bench.rt.operator = "ada"
    bench.run_for(0)
    day = bench.rt.today()
    runs.note_run(bench.rt, day, "the provider was down")
    clock.move(86_400)
    bench.run_for(0)
    assert (runs.runs.find(day).notes, runs.runs.find(day).status) == ("the provider was down", "completed")
    (entry,) = [one for one in audit.search(limit=10) if one.action == "run_note"]
    assert (entry.user_id, entry.resource_id) == ("ada", day)
    with pytest.raises(CsiError, match="looks like a secret"):
        runs.note_run(bench.rt, day, "Authorization: Bearer abcdefghijklmnop0123456789")
    with pytest.raises(CsiError, match="there was no run"):
        runs.note_run(bench.rt, "2001-01-01", "x")
    runs.note_run(bench.rt, day, "")
    assert runs.runs.find(day).notes is None


def test_a_day_in_which_nothing_succeeded_has_failed(open_bench, clock):
    bench = open_bench()
    (bench.home / "transcripts" / f"{VIDEO}.json").write_text("{broken")
    bench.deliver(VIDEO, text=None)
    bench.run_for(0)
    today = bench.rt.today()
    clock.move(86_400)
    bench.run_for(0)
    assert runs.runs.find(today).status == "failed"


def test_a_rule_that_skips_a_video_is_no_error(open_bench):
    bench = open_bench(limits={"skip_kinds": ["short"]})
    bench.deliver(VIDEO, subject={"kind": "short"})
    bench.drain()
    assert (bench.status(VIDEO), videos.get(VIDEO).doc.error_count) == ("skipped", None)


def test_a_defect_leaves_its_stack_trace_in_the_audit_log(open_bench, monkeypatch):
    bench = open_bench()
    bench.deliver(VIDEO)
    monkeypatch.setattr(bench.rt.free["file"], "fetch", lambda request: 1 / 0)
    bench.work_for(0)
    bench.work_for(10)
    found = [one for one in audit.search(limit=50) if one.action == "step_failed:transcribe"]
    assert found
    assert (found[0].error_code, "fetch" in found[0].stack_trace) == ("ZeroDivisionError", True)


def test_a_401_is_authentication_also_when_it_speaks_of_billing():
    from csi.net import HttpHeaders, HttpResponse

    body = b'{"error": {"message": "Incorrect key; see your billing page, balance and credit"}}'
    error = refusal(HttpResponse(401, HttpHeaders([]), body, "http://x"), "the model", 0.0)
    assert (error.code, error.error_type) == ("authentication", "api_error")


def test_a_note_with_a_secret_is_refused(open_bench):
    bench = open_bench()
    (bench.home / "transcripts" / f"{VIDEO}.json").write_text("{broken")
    bench.deliver(VIDEO, text=None)
    bench.drain()
    register_secret("sk-canary-in-a-note")
    with pytest.raises(CsiError, match="looks like a secret"):
        dead_job_actions.note(bench.rt, f"tr_{VIDEO}", "the key is sk-canary-in-a-note")
    assert dead_jobs.find(f"tr_{VIDEO}").doc.resolution_notes is None
