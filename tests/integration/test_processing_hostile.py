"""Hostile text in signals and transcripts: it stops nothing, and is inert wherever it is shown."""

import json
import re

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csi.cli.main import cli
from csi.processing.pipeline import digests
from csi.processing.pipeline.intake import read_video
from csi.processing.store import audit, videos
from csi.processing.store.received_events import Signal

ROUTE = "creator_watchlist_handler"
SUBJECTS = [
    {"title": "lone \ud800 surrogate"},
    {"title": "NUL \x00 and escape \x1b[31m"},
    {"title": {"not": "text"}},
    {"duration_seconds": 10**400},
    {"duration_seconds": True, "view_count": 10**400},
    {"kind": "\ud800", "channel_title": ["x"], "channel_id": "\udc00"},
    {"url": "https://x/\ud800"},
    {"url": "https://" + "a" * 100_000},
    {"published_at": "9999-12-31T23:59:59-23:00", "description": 5},
]
ROUTINGS = [{"tags": 5}, {"tags": ["\ud800", 7, ""]}, {"priority": {}, "tags": {"a": 1}}]
TITLE = "Hostile \x1b]0;owned\x07 \u202egnirts\n# Heading <script>alert(1)</script> [x](javascript:1)"
LINK = "https://a.example/> <script>alert(1)</script> [x](javascript:alert(1))"

plain_values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = plain_values | st.sampled_from(["\ud800", "\x00", "https://\x00"]) | st.lists(plain_values, max_size=3)
FIELDS = ["title", "description", "url", "kind", "duration_seconds", "view_count", "published_at", "tags", "priority"]


def test_no_signal_stops_those_behind_it(open_bench):
    bench = open_bench()
    for number, subject in enumerate(SUBJECTS):
        bench.deliver(f"subject{number}", subject=subject)
    for number, routing in enumerate(ROUTINGS):
        bench.deliver(f"routing{number}", routing={"pipeline": ROUTE, **routing})
    bench.drain()
    assert set(bench.statuses().values()) == {"summarized"}
    assert len(bench.statuses()) == len(SUBJECTS) + len(ROUTINGS)
    assert videos.get("subject7").url == "https://www.youtube.com/watch?v=subject7"


@given(subject=st.dictionaries(st.sampled_from(FIELDS), values))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_subject_becomes_a_video_that_can_be_stored(subject):
    event = {"occurred_at": "2026-02-22T12:00:00Z", "subject": subject, "routing": subject, "source": subject}
    video = read_video(Signal("ev", 1, ROUTE, "process", "vid", "t", event, 0.0), 1_771_761_600.0)
    json.dumps([video.doc.shape(), video.url, video.kind], ensure_ascii=False, allow_nan=False).encode()


@pytest.fixture
def shown(open_bench):
    """A day with one processed and one merely noticed video, both hostile in every text."""
    bench = open_bench(routes={"only_seen": {"action": "digest"}})
    subject = {"title": TITLE, "url": LINK, "channel_title": TITLE, "channel_id": TITLE}
    bench.deliver("vid00000001", subject=subject, text=f"It is said: {TITLE}. It is said twice.")
    bench.deliver("vid00000002", subject=subject, pipeline="only_seen")
    bench.deliver("vid00000003", subject=subject, text=None)
    bench.drain()
    return bench


def test_a_digest_is_inert_as_markdown_and_as_html(shown):
    markdown, html = digests.make_digest(shown.rt, digests.whole_day(shown.rt.today()))
    for text in (markdown, html):
        assert "alert(1)" in text
        assert not any(letter in text for letter in "\x1b\x07")
    assert "\u202e" not in markdown
    for piece in ("<script", "\n# Heading", "[x](javascript"):
        assert piece not in markdown.replace("\\<", "").replace("\\[x\\]", "")
    assert "<script" not in html
    assert html.count("\u202e") == 5 == len(re.findall("<bdi>[^\\n]*?\u202e[^\\n]*?</bdi>", html))


def test_files_and_commands_print_no_control_characters(shown, monkeypatch):
    for file in (shown.settings.artifacts / "vid00000001").iterdir():
        text = file.read_text()
        assert "\x1b" not in text
        assert file.suffix != ".md" or text.splitlines()[0].startswith("# Hostile")
    monkeypatch.setenv("CSI_PROCESSING_STATE_DIR", str(shown.settings.state_dir))
    day = shown.rt.today()
    for line in (["digest", "--day", day], ["digest", "--day", day, "--html"], ["list"], ["show", "vid00000001"]):
        result = CliRunner().invoke(cli, ["processing", *line], color=True)
        assert result.exit_code == 0, result.output
        assert not any(letter in result.output for letter in "\x1b\x07")


def test_every_entry_has_the_retention_of_the_configuration(open_bench):
    bench = open_bench(retention={"audit_days": 7}, routes={"only_told": {"action": "notify"}})
    bench.deliver("vid00000001")
    bench.deliver("vid00000002", pipeline="only_told")
    bench.deliver("vid00000003", pipeline="unknown_pipeline")
    bench.drain()
    assert {entry.retention_period_days for entry in audit.search(limit=100)} == {7}
