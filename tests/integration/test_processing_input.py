"""Videos that an operator names, summaries that are made again, and the two stores that can be replaced."""

import json
import os
from importlib import metadata

import pytest
from click.testing import CliRunner

from csi.cli.main import cli
from csi.errors import ConfigError, CsiError
from csi.processing.pipeline import add_videos
from csi.processing.pipeline.summarise_again import SummaryWishes, summarise_again
from csi.processing.providers.document_stores import DOCUMENT_GROUP, LOCAL, keep, open_documents
from csi.processing.store import artifacts, audit, jobs, videos
from csi.processing.video_lists import ListedVideo, UnreadableList, read_list, video_id_of
from tests.fakes.providers import FakeChat, ScriptedServer
from tests.integration.test_processing_paid import VIDEO, chat_bench

GOOD, OTHER = "dQw4w9WgXcQ", "vid00000009"
SHEET = f"""Video URL;Creator;Tags;Priority
https://www.youtube.com/watch?v={GOOD}&t=3;Ada;one,two;9
https://youtu.be/{OTHER};Bob;;
https://example.org/nothing;Eve;;
https://youtu.be/{OTHER};Bob again;;
vid00000010;;;99
"""


class Sheet(ScriptedServer):
    """A spreadsheet that is published as CSV."""

    status, text = 200, SHEET

    def answer(self, method, path, headers, body):
        return self.status, {"csv": self.text}, {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (GOOD, GOOD),
        (f"https://www.youtube.com/watch?app=desktop&v={GOOD}", GOOD),
        (f"youtu.be/{GOOD}?si=x", GOOD),
        (f"https://m.youtube.com/shorts/{GOOD}", GOOD),
        (f"https://www.youtube.com/live/{GOOD}?feature=share", GOOD),
        (f"https://evil.example/watch?v={GOOD}", None),
        ("https://www.youtube.com/@someone", None),
        ("http://[bad", None),
        ("", None),
        ("x" * 5_000, None),
    ],
)
def test_a_video_is_found_in_what_people_write(text, found):
    assert video_id_of(text) == found


def test_every_row_of_a_list_is_read_or_reported():
    rows = read_list(SHEET.encode())
    assert [(row.line, row.video_id, row.error is None) for row in rows] == [
        (2, GOOD, True),
        (3, OTHER, True),
        (4, None, False),
        (5, OTHER, True),
        (6, "vid00000010", False),
    ]
    assert (rows[0].channel_title, rows[0].tags, rows[0].priority) == ("Ada", ("one", "two"), 9)
    assert [row.video_id for row in read_list(f"# a comment\n{GOOD}\n\n{OTHER}\n".encode())] == [GOOD, OTHER]
    dated = read_list(f"video_id,published_at\n{GOOD},2026-02-01\n{OTHER},soon\n".encode())
    assert (dated[0].published_at, dated[1].error is None) == ("2026-02-01T00:00:00Z", False)


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE html><html>", b"\xff\xfe\x00", b"x" * (8 * 1024 * 1024 + 1), b"id\n" + b"a\n" * 10_001]
)
def test_a_list_that_is_none_is_refused_whole(content):
    with pytest.raises(UnreadableList):
        read_list(content)


def test_a_named_video_is_processed_and_no_rule_skips_it(open_bench):
    bench = open_bench(limits={"videos_per_day": 0, "skip_title": "."})
    (bench.home / "transcripts" / f"{GOOD}.txt").write_text("A sentence that is long enough. And another one.")
    rows = [ListedVideo(1, GOOD, GOOD)]
    assert [row.result for row in add_videos.add_videos(bench.rt, rows, "manual", "manual")] == ["added"]
    bench.drain()
    video = videos.get(GOOD)
    assert (video.status, video.doc.source) == ("summarized", "manual")
    again = add_videos.add_videos(bench.rt, rows, "manual", "manual")
    assert (again[0].result, again[0].error) == ("known", "is summarized")
    assert audit.search(limit=100, video=GOOD)[-1].action == "add_video"


def test_a_list_obeys_the_rules_and_its_source_is_sheet_backfill(open_bench):
    bench = open_bench(limits={"videos_per_day": 0})
    found = add_videos.add_videos(bench.rt, read_list(SHEET.encode()), "sheet_backfill", "manual")
    assert [row.result for row in found] == ["added", "added", "invalid", "known", "invalid"]
    bench.drain()
    video = videos.get(GOOD)
    assert (video.status, video.doc.source, video.doc.priority) == ("discovered", "sheet_backfill", 9)
    assert video.doc.tags == ["one", "two"]


def test_a_dry_run_adds_nothing(open_bench):
    bench = open_bench()
    found = add_videos.add_videos(bench.rt, read_list(SHEET.encode()), "sheet_backfill", "manual", dry_run=True)
    assert [row.result for row in found].count("added") == 2
    assert bench.statuses() == {}


def test_a_file_that_changes_while_it_is_read_is_refused(open_bench, monkeypatch):
    bench = open_bench()
    path = bench.home / "list.csv"
    path.write_text(SHEET)
    real = type(path).open

    def touched(self, *words, **more):
        file = real(self, *words, **more)
        os.truncate(path, 10)
        return file

    monkeypatch.setattr(type(path), "open", touched)
    with pytest.raises(UnreadableList, match="changed while it was read"):
        add_videos.read_source(bench.rt, str(path))


def test_a_spreadsheet_is_read_by_its_url_and_a_refusal_is_named(open_bench):
    bench = open_bench()
    with Sheet() as sheet:
        assert GOOD in add_videos.read_source(bench.rt, f"{sheet.url}/pub?output=csv").decode()
        sheet.status = 403
        with pytest.raises(UnreadableList, match="answers 403"):
            add_videos.read_source(bench.rt, f"{sheet.url}/pub?output=csv")
    with pytest.raises(UnreadableList, match="cannot be read"):
        add_videos.read_source(bench.rt, f"{sheet.url}/pub")
    with pytest.raises(UnreadableList, match="cannot be read"):
        add_videos.read_source(bench.rt, str(bench.home / "none.csv"))


def test_the_command_reports_every_row(open_bench, monkeypatch):
    bench = open_bench()
    monkeypatch.setenv("CSI_PROCESSING_STATE_DIR", str(bench.settings.state_dir))
    path = bench.home / "list.csv"
    path.write_text(SHEET)
    result = CliRunner().invoke(cli, ["processing", "add", str(path), "vid00000011", "--json"])
    assert result.exit_code == 5
    found = json.loads(result.stdout)
    assert (found["added"], found["known"], found["invalid"]) == (3, 1, 2)
    assert {row["line"] for row in found["rows"] if row["error"] and row["result"] == "invalid"} == {4, 6}
    assert videos.get("vid00000011").doc.source == "manual"
    assert CliRunner().invoke(cli, ["processing", "add", GOOD, "--pipeline", "no-such"]).exit_code == 2


# ── summaries that are made again ───────────────────────────────────────────────────────────────────────


class RecordingChat(FakeChat):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        super().__init__()

    def answer(self, method, path, headers, body):
        if path.endswith("/completions"):
            self.asked.append(json.loads(body))
        return super().answer(method, path, headers, body)


def test_a_summary_is_made_again_with_another_prompt_model_and_language(open_bench, tmp_path):
    with RecordingChat() as chat:
        bench = chat_bench(open_bench, chat)
        bench.drain()
        assert chat.billed == 1
        prompt = tmp_path / "mine.md"
        prompt.write_text("---\nid: mine\nversion: 7\n---\nAnswer with JSON: bullets, key_concepts, executive_summary.")
        wishes = SummaryWishes(str(prompt), "bigger-model", "German", "executive")
        summarise_again(bench.rt, VIDEO, wishes)
        assert videos.get(VIDEO).status == "transcribed"
        bench.drain()
        asked = chat.asked[-1]
        assert (chat.billed, asked["model"]) == (2, "bigger-model")
        assert "German" in asked["messages"][0]["content"]
        doc = bench.job(f"su_{VIDEO}").doc
        assert (doc.prompt_id, doc.prompt_version, doc.summary_type) == ("mine", "7", "executive")
        assert videos.get(VIDEO).status == "summarized"
        assert audit.search(limit=50, video=VIDEO)


def test_a_summary_that_is_made_again_is_not_paid_twice_after_a_crash(open_bench):
    with FakeChat() as chat:
        bench = chat_bench(open_bench, chat)
        bench.drain()
        summarise_again(bench.rt, VIDEO, SummaryWishes())
        bench.kill_at("summarise.booked")
        assert bench.drain_through_deaths() == 1
        assert chat.billed == 2
        assert bench.status(VIDEO) == "summarized"


def test_only_a_summarized_video_is_summarised_again_and_a_model_needs_one(open_bench):
    bench = open_bench()
    with pytest.raises(CsiError, match="there is no video"):
        summarise_again(bench.rt, "nothing", SummaryWishes())
    bench.deliver(GOOD)
    with pytest.raises(CsiError):
        summarise_again(bench.rt, GOOD, SummaryWishes())
    bench.drain()
    with pytest.raises(ConfigError, match="provider: openai"):
        summarise_again(bench.rt, GOOD, SummaryWishes(model="other"))
    summarise_again(bench.rt, GOOD, SummaryWishes(summary_type="detailed"))
    bench.drain()
    assert bench.job(f"su_{GOOD}").doc.summary_type == "detailed"


# ── stores ──────────────────────────────────────────────────────────────────────────────────────────────


class Drive:
    """A store of others: it counts, and fails as often as it is told."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.failures = 0

    def put(self, document) -> str:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the drive is away")
        self.kept[document.video_id, document.kind] = document.text
        return f"drive-{document.kind}"


def test_documents_go_to_the_store_that_is_plugged_in(open_bench):
    with FakeChat() as chat:
        bench = chat_bench(open_bench, chat)
        bench.rt.documents = drive = Drive()
        drive.failures = 2
        bench.run_for(3_600, stride=30)
        doc = videos.get(VIDEO).doc
        assert (doc.drive_refs.transcript_id, doc.drive_refs.summary_id) == ("drive-transcript", "drive-summary")
        assert set(drive.kept) == {(VIDEO, "transcript"), (VIDEO, "summary")}
        assert chat.billed == 1


def test_without_a_store_the_ids_are_those_of_the_files_and_the_memory_is_a_folder(open_bench):
    bench = open_bench()
    bench.deliver(GOOD)
    bench.drain()
    kinds = {one.kind: one.artifact_id for one in artifacts.of_video(GOOD)}
    doc, job = videos.get(GOOD).doc, jobs.find(f"su_{GOOD}").doc
    assert doc.drive_refs.summary_id == kinds["summary"]
    assert (job.zep_collection, job.zep_doc_id) == ("videos", doc.zep_doc_id)
    files = list((bench.settings.state_dir / "memory" / "videos").glob("*.json"))
    assert json.loads(files[0].read_text())["video_id"] == GOOD
    assert files[0].stat().st_mode & 0o777 == 0o600


def test_a_store_that_is_not_installed_is_a_fault_of_the_configuration(monkeypatch):
    assert open_documents(LOCAL)
    with pytest.raises(ConfigError, match="is not installed; there are: local"):
        open_documents("drive")
    entry = metadata.EntryPoint("drive", "tests.integration.test_processing_input:Drive", DOCUMENT_GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda **wanted: [entry])
    assert isinstance(open_documents("drive"), object)
    with pytest.raises(CsiError, match="returned no id"):
        keep("document", lambda: "")
