"""The six collections against the specification's text: fields, enumerations, money, times."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from csi.processing.collection_models import (
    COLLECTIONS,
    AuditLogDocument,
    DeadLetterJobDocument,
    RunEventDocument,
    VideoDocument,
)
from csi.processing.money import from_micro, round_up, to_micro, usd
from csi.processing.providers.assemblyai import read_transcript
from csi.processing.providers.base import Transcript
from csi.processing.providers.openai import read_reply

SPEC = Path(__file__).resolve().parents[3] / "shared" / "spec"
INTERFACES = {
    "VideoDocument": "videos",
    "TranscriptionJobDocument": "jobs/transcription",
    "SummarizationJobDocument": "jobs/summarization",
    "AuditLogDocument": "audit_logs",
    "DeadLetterJobDocument": "jobs_deadletter",
    "RunEventDocument": "run_events",
}


def interface(name: str) -> str:
    found = sorted(SPEC.glob("001_*.txt"))
    if not found:
        pytest.skip("the specification is not beside the project; put it there to run this")
    return re.search(rf"interface {name} {{\n(.*?)\n}}", found[0].read_text(), re.DOTALL)[1]


@pytest.mark.parametrize("name", INTERFACES)
def test_every_field_of_the_specification_is_there_and_no_other(name):
    fields = dict(re.findall(r"^  (\w+)(\??):", interface(name), re.MULTILINE))
    model = COLLECTIONS[INTERFACES[name]]
    assert list(model.model_fields) == list(fields)
    required = {field for field, mark in fields.items() if not mark}
    assert {field for field, info in model.model_fields.items() if info.is_required()} == required


@pytest.mark.parametrize("name", INTERFACES)
def test_every_enumeration_is_the_specifications(name):
    enums = re.findall(r"^  (\w+)\??: ((?:'[\w]+'(?: \| )?)+);", interface(name), re.MULTILINE)
    schema = COLLECTIONS[INTERFACES[name]].model_json_schema()["properties"]
    for field, words in enums:
        text = json.dumps(schema[field])
        assert set(re.findall(r'"enum": (\[[^\]]*\])', text)) == {json.dumps(re.findall(r"'(\w+)'", words))}


LETTER = {
    "job_id": "tr_1",
    "original_collection": "jobs/transcription",
    "failure_reason": "x",
    "failure_type": "max_retries",
    "final_error": "e",
    "job_type": "transcription",
    "job_payload": {},
    "total_attempts": 4,
    "first_failure_at": "2026-02-22T12:00:00Z",
    "last_attempt_at": "2026-02-22T12:00:00Z",
    "moved_to_dlq_at": "2026-02-22T12:00:00Z",
    "agent_name": "a",
    "dlq_status": "pending",
    "can_retry": True,
    "priority": "low",
    "escalation_level": 1,
}
VIDEO = {
    "video_id": "v",
    "title": "t",
    "published_at": "2026-02-22T12:00:00Z",
    "channel_id": "c",
    "channel_title": "c",
    "duration_sec": 1,
    "status": "discovered",
    "processing_stage": "scraping",
    "discovered_at": "2026-02-22T12:00:00Z",
    "updated_at": "2026-02-22T12:00:00Z",
    "source": "manual",
}


@pytest.mark.parametrize(
    ("model", "good", "change"),
    [
        (VideoDocument, VIDEO, {"status": "done"}),
        (VideoDocument, VIDEO, {"processing_stage": "completed"}),
        (VideoDocument, VIDEO, {"priority": 11}),
        (VideoDocument, VIDEO, {"duration_sec": -1}),
        (VideoDocument, VIDEO, {"duration_sec": float("nan")}),
        (VideoDocument, VIDEO, {"published_at": "yesterday"}),
        (VideoDocument, VIDEO, {"api_key": "x"}),
        (VideoDocument, VIDEO, {"video_id": "../x"}),
        (DeadLetterJobDocument, LETTER, {"escalation_level": 6}),
        (DeadLetterJobDocument, LETTER, {"original_collection": "videos"}),
    ],
    ids=["status", "stage", "priority", "negative", "nan", "time", "unknown field", "key", "level", "collection"],
)
def test_a_document_that_is_not_in_shape_is_refused(model, good, change):
    model.model_validate(good)
    with pytest.raises(ValidationError):
        model.model_validate(good | change)


@given(st.text(max_size=200), st.text(max_size=200), st.floats(0, 1e6), st.integers(1, 10))
def test_any_title_survives_the_way_through_json(title, error, duration, priority):
    doc = VideoDocument.model_validate(
        {**VIDEO, "title": title, "last_error": error, "duration_sec": duration, "priority": priority}
    )
    text = json.dumps(doc.shape(), ensure_ascii=False)
    assert VideoDocument.model_validate(json.loads(text)) == doc
    assert "\x00" not in doc.title
    text.encode("utf-8")


@given(st.integers(0, 10**11))
def test_money_is_exact_in_rows_documents_and_json(units):
    amount = from_micro(100 * units)
    assert to_micro(amount) == 100 * units
    assert usd(json.loads(json.dumps(float(amount)))) == amount
    assert round_up(amount) == amount


@pytest.mark.parametrize("bad", [True, "x", float("inf"), float("nan"), None, 10**9], ids=repr)
def test_what_is_no_amount_is_refused(bad):
    with pytest.raises(ValueError, match="expected an amount"):
        usd(bad)


def test_rounding():
    assert usd(0.1 + 0.2) == Decimal("0.3000")
    assert usd("0.00005") == Decimal("0.0001")
    assert round_up(Decimal("0.0000001")) == Decimal("0.000001")
    assert (from_micro(49), from_micro(50)) == (Decimal("0.0000"), Decimal("0.0001"))


def test_a_run_id_is_a_day():
    with pytest.raises(ValidationError):
        RunEventDocument.model_validate({"run_id": "2026-02-30"})


def test_an_audit_entry_has_a_retention():
    with pytest.raises(ValidationError, match="retention_period_days"):
        AuditLogDocument.model_validate({"log_id": "l"})


def test_the_captured_transcript_parses(corpus):
    data = json.loads((corpus / "assemblyai" / "transcript_completed_all_features.json").read_text())
    found = read_transcript(data)
    assert isinstance(found, Transcript)
    assert (found.language, found.duration, found.segments[0].speaker) == ("en_us", 281.0, "A")
    assert found.words > 500
    assert 0.9 < found.confidence < 1


def test_the_captured_completion_parses(corpus):
    data = json.loads((corpus / "openai" / "chat_completion_default.json").read_text())
    found = read_reply(data, "")
    assert (found.input_tokens, found.output_tokens, found.usage_known) == (19, 10, True)
    assert found.text.startswith("Hello!")


@pytest.mark.parametrize(
    ("name", "status", "fault"),
    [
        ("error_400", 400, "refused"),
        ("error_InternalServerError", 500, "transient"),
        ("error_NotFound", 404, "refused"),
        ("error_TooManyRequests", 429, "transient"),
        ("error_Unauthorized", 401, "account"),
    ],
)
def test_the_captured_errors_have_their_meaning(corpus, name, status, fault):
    from csi.net import HttpHeaders, HttpResponse
    from csi.processing.providers.http_errors import refusal

    body = (corpus / "assemblyai" / f"{name}.json").read_bytes()
    error = refusal(HttpResponse(status, HttpHeaders(), body, "https://x"), "AssemblyAI", 0.0)
    assert error.fault == fault
    assert json.loads(body)["error"] in str(error)
