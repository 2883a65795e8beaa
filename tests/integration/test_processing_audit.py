"""The audit log: sensitive actions are marked, and no entry contains a secret in any form."""

import base64
import json
from pathlib import Path
from unittest.mock import patch
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csi import logs
from csi.errors import CsiError
from csi.logs import redaction
from csi.processing.pipeline import add_videos, dead_job_actions, maintenance, notify, provider_access, runs
from csi.processing.pipeline.operator_log import log_action
from csi.processing.pipeline.retry_video import retry_video
from csi.processing.pipeline.summarise_again import SummaryWishes, summarise_again
from csi.processing.runtime import StepWake
from csi.processing.store import audit, notification_log
from csi.processing.store.audit import SENSITIVE_TEXT, is_sensitive
from csi.processing.store.db import fetch, writing
from csi.processing.video_lists import ListedVideo
from tests.fakes.providers import LOST, FakeAssembly, FakeChat

SECRETS = st.text("".join(map(chr, range(33, 127))), min_size=12, max_size=40)
TEXTS = st.text(max_size=20) | st.just("x " * 990)
PLACES = [
    "data_summary",
    "error_message",
    "tool_name",
    "api_endpoint",
    "stack_trace",
    "tags",
    "resource",
    "correlation",
]


def forms(secret: str) -> list[str]:
    data = secret.encode()
    coded = base64.b64encode(data).decode()
    return [secret, quote(secret, safe=""), coded, data.hex(), json.dumps(secret)[1:-1]]


def write(place: str, text: str) -> audit.AuditLogDocument:
    scope = audit.AuditScope(
        "agent",
        text if place == "correlation" else "way",
        "video",
        text if place == "resource" else "video",
    )
    fields = {} if place in ("resource", "correlation") else {place: [text] if place == "tags" else text}
    audit.write(scope, "complete", "failure", 1.0, **fields)
    return audit.search(limit=1)[0]


def test_no_form_of_a_secret_gets_into_an_entry(open_bench):
    @settings(max_examples=150, deadline=None)
    @given(secret=SECRETS, before=TEXTS, after=TEXTS, place=st.sampled_from(PLACES), form=st.integers(0, 4))
    def holds(secret, before, after, place, form):
        with patch.object(redaction.redactor, "forms", ()):
            logs.register_secret(secret)
            shown = json.dumps(write(place, before + forms(secret)[form] + after).shape(), ensure_ascii=False)
        assert forms(secret)[form] not in shown

    open_bench()
    with writing():  # one transaction for all examples: a hundred commits are slow
        holds()


def test_every_act_of_a_long_day_is_in_the_table_and_marked_by_it(open_bench, tmp_path):
    with FakeAssembly() as assembly, FakeChat() as chat:
        a_long_day(open_bench, assembly, chat, tmp_path)
        entries = audit.search(limit=1000)
        seen = {entry.action.partition(":")[0] for entry in entries}
        assert seen == set(SENSITIVE_TEXT)
        assert [entry.action for entry in entries if entry.sensitive_data != is_sensitive(entry.action)] == []
        told = {entry.action for entry in entries if entry.sensitive_data}
        assert {"fetch:file", "upload", "transcribed", "complete", "summarized", "notify", "dlq_note"} <= told
        assert not {"route:process", "skip", "queue_transcription", "dead_letter", "budget_alert"} & told


def a_long_day(open_bench, assembly: FakeAssembly, chat: FakeChat, home: Path) -> None:
    """Files and audio, a lost answer, a wrong key, refused calls, a skipped video, and a person at the dead letters."""
    (home / "audio").mkdir()
    for number in (2, 3):
        (home / "audio" / f"vid0000000{number}.mp3").write_bytes(b"audio")
    assembly.faults = {"POST /v2/transcript": [LOST]}
    files = {"directory": home / "transcripts"}
    bench = open_bench(
        transcription={
            "providers": ["file", "assemblyai"],
            "file": files,
            "assemblyai": {"base_url": assembly.url, "audio_dir": home / "audio", "usd_per_hour": "0.36"},
        },
        summarization={"provider": "openai", "openai": {"base_url": f"{chat.url}/v1"}},
        notifications={"window": 0},
        budget={"daily_usd": "0.20", "alert_at": 0.3},
        limits={"skip_kinds": ["short"]},
    )
    bench.deliver("vid00000001")
    bench.deliver("vid00000002", text=None)
    bench.deliver("vid00000003", text=None)
    bench.deliver("vid00000004", subject={"kind": "live"})
    bench.deliver("vid00000008", subject={"kind": "short"})
    bench.run_for(120, stride=15)
    bench.deliver("vid00000001", pipeline="youtube_tutorial_explainer")
    bench.run_for(15)
    chat.faults = {"/chat/completions": [401]}
    chat.always = {"/chat/completions": 400}
    for number in (5, 6, 7):
        bench.deliver(f"vid0000000{number}")
    bench.run_for(30)
    provider_access.resume(bench.rt, "openai")
    bench.run_for(30)
    dead_job_actions.assign(bench.rt, "su_vid00000005", "Ada")
    dead_job_actions.note(bench.rt, "su_vid00000005", "Ada has topped up")
    dead_job_actions.retry(bench.rt, "su_vid00000005", force=True)
    dead_job_actions.close(bench.rt, "su_vid00000006", "resolved", "by hand")
    dead_job_actions.reopen(bench.rt, "su_vid00000006")
    retry_video(bench.rt, "vid00000008")
    maintenance.release_failed_job(bench.rt, StepWake("summarise", "su_vid00000007"), ZeroDivisionError("a defect"))
    dead_job_actions.close(bench.rt, "su_vid00000007", "abandoned", "not worth it")
    assert notify.resend(bench.rt, notification_log.table.latest(1)[0].id)
    runs.note_run(bench.rt, bench.rt.today(), "Ada was here")
    add_videos.add_videos(bench.rt, [ListedVideo(1, "vid00000009", "vid00000009")], "manual", "manual")
    summarise_again(bench.rt, "vid00000001", SummaryWishes())
    with writing():
        for action in ("mute", "unmute", "release"):
            log_action(bench.rt, action, "by command")


def test_an_action_that_is_missing_in_the_table_counts_as_sensitive():
    assert is_sensitive("something_new")


def test_keys_that_a_provider_echoes_or_a_person_types_are_in_no_table(open_bench):
    key = "sk-canary-9f8e7d6c5b4a"
    with FakeChat() as chat, patch.object(redaction.redactor, "forms", ()):
        logs.register_secret(key)
        error = {"error": {"message": f"wrong key {key}, or {base64.b64encode(key.encode()).decode()}"}}
        chat.always = {"/chat/completions": (400, error, {})}
        bench = open_bench(summarization={"provider": "openai", "openai": {"base_url": f"{chat.url}/v1"}})
        bench.deliver("vid00000001")
        bench.drain()
        dead_job_actions.assign(bench.rt, "su_vid00000001", f"Ada ({key})")
        with pytest.raises(CsiError, match="looks like a secret"):
            dead_job_actions.note(bench.rt, "su_vid00000001", f"the key was {key}")
        with pytest.raises(CsiError, match="looks like a secret"):
            dead_job_actions.close(bench.rt, "su_vid00000001", "abandoned", f"key={key.encode().hex()}")
    names = [row[0] for row in fetch("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = [str(row) for name in names for row in fetch(f'SELECT * FROM "{name}"')]
    assert len(rows) > 20
    assert [row for row in rows if any(form in row for form in forms(key))] == []
