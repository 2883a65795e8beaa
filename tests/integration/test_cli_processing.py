"""The commands of processing as a person types them."""

import json
import time

import pytest
from click.testing import CliRunner

from csi.cli.command import user_name
from csi.cli.main import cli
from csi.errors import CsiError
from csi.processing.collection_models import COLLECTIONS
from csi.processing.pipeline import runs
from csi.processing.store import audit, dead_jobs, videos


@pytest.fixture
def csi(open_bench, monkeypatch):
    """A bench with one summarised and one dead video, and the command on it."""
    bench = open_bench()
    monkeypatch.setenv("CSI_PROCESSING_STATE_DIR", str(bench.settings.state_dir))
    monkeypatch.setenv("UA_SIGNALS_DB_PATH", str(bench.settings.receiver_db))
    bench.deliver("vid00000001")
    bench.drain()
    (bench.home / "transcripts" / "vid00000002.json").write_text("{broken")
    bench.deliver("vid00000002", text=None)
    bench.drain()
    runs.update_runs(bench.rt)

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(cli, words)
        if isinstance(result.exception, CsiError):
            assert result.exception.exit_code == code, result.exception
            return f"csi: {result.exception}"
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run


def test_status_tells_videos_money_and_dead_letters(csi):
    told = json.loads(csi("processing", "status", "--json"))
    assert told["videos"] == {"summarized": 1, "failed": 1}
    assert (told["dead_letters"], told["budget"]["daily_usd"]) == (1, "5.0000")
    assert "dead letters   1" in csi("processing", "status")
    assert told["waiting_jobs"] == {"person": 1}
    assert "waiting: 1 for a person" in csi("processing", "status")


def test_problems_are_muted_and_unmuted(csi):
    assert "muted: jobs_dead until" in csi("processing", "mute", "2h", "--problem", "jobs_dead", "--reason", "a test")
    assert "muted          jobs_dead until" in csi("processing", "status")
    assert json.loads(csi("processing", "status", "--json"))["mutes"][0]["reason"] == "a test"
    assert "there is no alert of this name" in csi("processing", "mute", "2h", "--problem", "typo", code=2)
    assert "1 mute ended" in csi("processing", "unmute")
    assert "muted" not in csi("processing", "status")


def test_what_an_operator_does_is_in_the_audit_log_with_the_user(csi):
    csi("processing", "mute", "2h", "--reason", "a test")
    csi("processing", "unmute")
    csi("processing", "release")
    csi("runs", "note", runs.runs.page(1)[0].run_id, "a quiet day")
    entries = json.loads(csi("processing", "audit", "--json", "--agent", "operator"))
    assert [entry["action"] for entry in entries] == ["run_note", "release", "unmute", "mute"]
    assert all(entry["user_id"] for entry in entries)
    assert "a quiet day" in csi("runs", "show", runs.runs.page(1)[0].run_id)


def test_status_says_what_comes_from_the_receiver_or_why_nothing_does(csi, tmp_path, monkeypatch):
    assert "signals read, 0 unread" in csi("processing", "status")
    monkeypatch.setenv("UA_SIGNALS_DB_PATH", str(tmp_path / "nowhere.db"))
    assert "there is no database at" in csi("processing", "status")
    (tmp_path / "nowhere.db").write_text("no database" * 100)
    assert "cannot be read" in csi("processing", "status")


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_an_export_is_json_lines_that_the_specification_accepts(csi, collection):
    lines = csi("processing", "export", "--collection", collection).splitlines()
    assert lines
    for line in lines:
        COLLECTIONS[collection].model_validate(json.loads(line))


def test_an_export_into_a_file_is_private(csi, tmp_path):
    csi("processing", "export", "--collection", "videos", "--out", str(tmp_path / "v.jsonl"))
    assert len((tmp_path / "v.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "v.jsonl").stat().st_mode & 0o777 == 0o600


def test_an_export_that_cannot_be_written_is_one_sentence(csi, tmp_path):
    told = csi("processing", "export", "--collection", "videos", "--out", str(tmp_path / "no" / "x"), code=1)
    assert "the export cannot be written: No such file or directory" in told


def test_one_videos_way_is_shown(csi):
    told = json.loads(csi("processing", "show", "vid00000001", "--json"))
    assert [step["status"] for step in told["steps"]][-1] == "summarized"
    assert "summary.md" in csi("processing", "show", "vid00000001")
    assert "there is no video nope" in csi("processing", "show", "nope", code=1)


def test_lists_are_for_people_and_programs(csi):
    assert "Title of vid00000002" in csi("processing", "list", "--status", "failed")
    assert len(json.loads(csi("processing", "list", "--json"))) == 2
    assert "transcriber" in csi("processing", "audit", "--outcome", "failure")
    assert json.loads(csi("processing", "audit", "--json", "--video", "vid00000001"))[0]["action"] == "summarized"
    assert json.loads(csi("runs", "list", "--json"))[0]["summarized"] == 1
    assert "completed" in csi("runs", "show", runs.runs.page(1)[0].run_id)


def test_the_audit_list_says_which_acts_touched_what_people_said(csi):
    marks = {line.split()[2]: "yes" in line.split() for line in csi("processing", "audit").splitlines()[1:]}
    assert (marks["fetch:file"], marks["summarized"]) == (True, True)
    assert (marks["route:process"], marks["dead_letter"]) == (False, False)


def test_a_note_with_a_key_of_the_environment_is_refused(csi, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-typed-123")
    told = csi("processing", "dlq", "note", "tr_vid00000002", "it is sk-canary-typed-123", code=1)
    assert "looks like a secret" in told
    assert "canary" not in told + csi("processing", "dlq", "show", "tr_vid00000002")
    monkeypatch.setenv("ASSEMBLYAI_API_KEY_FILE", "/nowhere")
    assert "canary" not in csi("processing", "audit")


def test_the_resolution_workflow(csi):
    job = "tr_vid00000002"
    assert job in csi("processing", "dlq", "list")
    assert "investigating, ada" in csi("processing", "dlq", "assign", job, "ada")
    csi("processing", "dlq", "note", job, "the file is broken")
    told = json.loads(csi("processing", "dlq", "show", job, "--json"))
    assert (told["dlq_status"], told["assigned_to"]) == ("investigating", "ada")
    assert "the file is broken" in told["resolution_notes"]
    csi("processing", "dlq", "retry", job, code=5)
    assert videos.get("vid00000002").status == "failed"
    assert "is retried" in csi("processing", "dlq", "retry", job, "--force")
    assert videos.get("vid00000002").status == "transcription_queued"
    assert "is being retried" in csi("processing", "dlq", "assign", job, "bob", code=1)


def test_bulk_actions_by_failure_type_and_their_undoing(csi):
    job = "tr_vid00000002"
    csi("processing", "dlq", "resolve", code=2)
    assert csi("processing", "dlq", "resolve", "--failure", "manual_intervention") == ""
    assert f"{job}: resolved" in csi("processing", "dlq", "resolve", "--failure", "fatal_error")
    assert "only a resolved or abandoned" not in csi("processing", "dlq", "reopen", job)
    assert "only a resolved or abandoned" in csi("processing", "dlq", "reopen", job, code=1)
    csi("processing", "dlq", "abandon", "--failure", "fatal_error", "--yes")
    assert f"{job}: pending" in csi("processing", "dlq", "reopen", job)
    assert videos.get("vid00000002").status == "failed"
    assert "is retried" in csi("processing", "dlq", "retry", "--failure", "fatal_error", "--force")
    entries = audit.search(limit=50, agent="operator")
    assert {entry.user_id for entry in entries} == {user_name()}


def test_names_and_notes_of_any_length_are_kept_short_and_plain(csi):
    job = "tr_vid00000002"
    assert "pass a name" in csi("processing", "dlq", "assign", job, " \x1b ", code=1)
    csi("processing", "dlq", "assign", job, "x" * 30_000)
    csi("processing", "dlq", "note", job, "red \x1b[31m\nand blue" + "y" * 90_000)
    told = json.loads(csi("processing", "dlq", "show", job, "--json"))
    assert told["assigned_to"] == "x" * 200
    assert "red [31m\nand blue" in told["resolution_notes"]


def test_abandon_asks_and_skips_the_video(csi):
    csi("processing", "dlq", "abandon", "tr_vid00000002", code=2)
    csi("processing", "dlq", "abandon", "tr_vid00000002", "--yes")
    assert videos.get("vid00000002").status == "skipped"
    assert dead_jobs.find("tr_vid00000002").doc.dlq_status == "abandoned"


def test_a_job_that_dies_again_rises_one_level(csi, open_bench, clock):
    csi("processing", "dlq", "assign", "tr_vid00000002", "ada")
    csi("processing", "dlq", "retry", "tr_vid00000002", "--force")
    bench = open_bench()
    clock.time = time.time() + 1  # the command ran by the real clock
    bench.drain()
    doc = dead_jobs.find("tr_vid00000002").doc
    assert (doc.dlq_status, doc.escalation_level, doc.total_attempts) == ("pending", 2, 2)
    assert (doc.assigned_to, doc.priority) == ("ada", "high")


def test_a_dry_run_changes_nothing(csi):
    assert "only with --force" in csi("processing", "dlq", "retry", "--all", "--dry-run")
    assert dead_jobs.open_count() == 1


def test_the_digest_is_printed(csi):
    day = runs.runs.page(1)[0].run_id
    assert "## Title of vid00000001" in csi("processing", "digest", "--day", day)
    assert "<h1>CSI digest" in csi("processing", "digest", "--html")
    assert "is not a day" in csi("processing", "digest", "--day", "yesterday", code=2)


def test_without_a_database_commands_say_so_and_make_none(tmp_path, monkeypatch):
    monkeypatch.setenv("CSI_PROCESSING_STATE_DIR", str(tmp_path / "nowhere"))
    result = CliRunner().invoke(cli, ["processing", "status"])
    assert "there is no database at" in str(result.exception)
    assert not (tmp_path / "nowhere").exists()


def test_check_says_what_will_be_done_or_what_is_missing(tmp_path, monkeypatch):
    file = tmp_path / "p.yaml"
    file.write_text("summarization:\n  provider: openai\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = CliRunner().invoke(cli, ["processing", "check", "--config", str(file)])
    assert "OPENAI_API_KEY is not set" in str(result.exception)
    file.write_text("")
    result = CliRunner().invoke(cli, ["processing", "check", "--config", str(file)])
    assert "youtube_tutorial_explainer: process + concept, implementation" in result.output


def test_retry_all_leaves_out_what_may_have_been_paid_until_it_is_named(csi, monkeypatch):
    letter = dead_jobs.find("tr_vid00000002")
    unsure = letter.doc.changed(failure_type="manual_intervention", can_retry=True, retry_after=None)
    dead_jobs.put(dead_jobs.DeadJob(unsure), retry_after=None, moved_at=1.0)
    assert "may have been paid already" in csi("processing", "dlq", "retry", "--all", code=5)
    assert dead_jobs.find("tr_vid00000002").doc.dlq_status == "pending"
    assert "is retried" in csi("processing", "dlq", "retry", "tr_vid00000002")
