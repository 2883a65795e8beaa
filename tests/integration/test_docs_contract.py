"""docs/contract.md: its verifier verifies, its table is judge's, its samples are what is sent."""

import ast
import json
import re

import pytest

from csi.adapters.youtube import live_start, take_off
from csi.emitter import verdict
from csi.emitter.verdict import judge
from csi.errors import NetError
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.signature import canonical, headers, sign
from csi.net import HttpHeaders, HttpResponse
from csi.store import db
from tests.fakes.pages import ROOT, blocks, codes, every, prose, rows, section
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline

PAGE = ROOT / "docs" / "contract.md"
SIZE = 3
ALL_STATUSES = set(range(100, 600))
ADDS_UP = {"ok": True, "accepted": SIZE, "rejected": 0, "errors": []}
BY_INDEX = {"ok": False, "accepted": 2, "rejected": 1, "errors": [{"index": 1, "error": "x"}]}

SAMPLES = {
    '`"ok": true`, and the numbers add up': [(ADDS_UP, {}), ({"ok": True}, {})],
    'no JSON, no `"ok": true`, or numbers that do not add up': [
        (b"<html>", {}),
        ({"ok": False}, {}),
        ({"ok": True, "accepted": SIZE - 1}, {}),
    ],
    "without a body": [(b"", {})],
    "`errors` by index, and the numbers add up": [(BY_INDEX, {})],
    "anything else": [(b"", {}), (BY_INDEX | {"accepted": 3}, {})],
    "anything": [(b"", {}), (ADDS_UP, {})],
    "a `Date` header more than 290 s from our clock": [(b"", {"date": "Sun, 22 Feb 2026 10:00:00 GMT"})],
    "without a time to wait": [(b"", {}), ({"error": "ua_overloaded"}, {})],
    "`Retry-After` (seconds or a date), or `retry_after_seconds` in the body": [
        (b"", {"retry-after": "60"}),
        (b"", {"retry-after": "Sun, 22 Feb 2026 12:00:30 GMT"}),
        ({"retry_after_seconds": 60}, {}),
    ],
}
FAILURES = {
    "cannot connect, reset, timeout, cut off, larger than 1 MB": ["connect", "reset", "timeout", "cut", "too_large"],
    "TLS error, address not allowed": ["tls", "insecure", "bad_url"],
}


def verifier():
    (block,) = blocks(PAGE, "python")
    namespace: dict[str, object] = {}
    exec(compile(block.text, block.place, "exec"), namespace)
    return namespace["verify"]


@pytest.mark.parametrize("block", every("python"), ids=lambda block: block.place)
def test_every_python_block_runs(block):
    exec(compile(block.text, block.place, "exec"), {"__name__": "page"})


def test_the_verifier_is_short_and_needs_nothing_but_python():
    (block,) = blocks(PAGE, "python")
    assert len(block.text.strip().splitlines()) <= 30
    assert set(re.findall(r"^import (\w+)|^from (\w+)", block.text, re.MULTILINE)) <= {
        (name, "") for name in ("hashlib", "hmac", "json", "re", "time")
    }


@pytest.fixture
def sent(tmp_path, clock):
    """A function: one event with a title beyond ASCII, really signed and sent in that form."""

    def send(form):
        with simulated_youtube(playlists=1, now=clock) as yt, ScriptedReceiver() as ua, db.connection():
            yt.add(yt.playlists[0], "Über 🚀 “quotes”")
            source = {"api_base_url": yt.api_base_url, "playlists": [{"id": yt.playlists[0]}], "first_poll": "all"}
            InProcessPipeline(
                tmp_path, clock, ua.url, sources={"youtube_playlist": source}, delivery={"canonical_json": form}
            ).run()
            return ua.requests[0]

    return send


@pytest.mark.parametrize("form", ["ascii", "utf8"])
def test_the_verifier_accepts_what_is_really_sent_and_nothing_forged(sent, clock, form):
    verify, request = verifier(), sent(form)
    assert request.body.isascii() == (form == "ascii")
    assert verify(["another-secret", SECRET], request.headers, request.body, clock()) == request.envelope
    assert verify(["another-secret"], request.headers, request.body, clock()) is None
    assert verify([SECRET], request.headers, request.body.replace(b"video", b"vide0", 1), clock()) is None
    assert verify([SECRET], request.headers, request.body, clock() + 301) is None
    assert verify([SECRET], request.headers, request.body, clock() - 301) is None
    for name in ("x-csi-signature", "x-csi-timestamp", "x-csi-request-id", "authorization"):
        assert verify([SECRET], request.headers | {name: "ü"}, request.body, clock()) is None
        without = {key: value for key, value in request.headers.items() if key != name}
        assert verify([SECRET], without, request.body, clock()) is None
    stolen = headers("not-the-secret", request.body, now=clock())
    lowered = {name.lower(): value for name, value in stolen.items()}
    assert verify([SECRET], request.headers | lowered, request.body, clock()) is None


def test_the_vector_is_right():
    body = re.search(r"`(\{\"batch_id\"\S*\})`\s+gives", PAGE.read_text())[1]
    digest = sign("csi-test-secret", "1708600000", "req_abc123", canonical(json.loads(body)))
    assert canonical(json.loads(body)).decode() == body
    assert f"`{digest}`" in prose(PAGE)


def test_the_sample_event_has_the_fields_of_a_real_one(sent):
    sample = json.loads(blocks(PAGE, "json")[0].text)
    (real,) = sent("auto").envelope["events"]
    assert sample.keys() == real.keys()
    assert sample["subject"].keys() == real["subject"].keys() - {"description", "thumbnail_url"}
    assert (sample["routing"].keys(), sample["metadata"].keys()) == (real["routing"].keys(), real["metadata"].keys())
    assert CreatorSignalEvent.model_validate(sample).model_dump() == sample


def test_every_field_of_an_event_and_a_subject_is_explained(sent):
    text = section(PAGE, "Event")
    told = {name for cells in rows(text) for name in codes(cells[0])}
    (real,) = sent("auto").envelope["events"]
    assert (real.keys() | real["subject"].keys()) <= told


def test_every_event_type_of_an_adapter_is_listed():
    calls = [
        node
        for path in (ROOT / "csi/adapters").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RawEvent"
    ]
    (listed,) = [set(codes(cells[2])) for cells in rows(section(PAGE, "Event")) if cells[0] == "`event_type`"]
    constants = vars(live_start) | vars(take_off)
    types = [call.args[1] for call in calls]
    assert listed == {constants[it.id] if isinstance(it, ast.Name) else it.value for it in types}


def test_every_header_is_explained(sent):
    told = {codes(cells[0])[0].lower() for cells in rows(section(PAGE, "Headers"))}
    real = sent("auto").headers.keys()
    assert {name for name in real if name.startswith("x-")} <= told <= real


def answer_rows() -> list[list[str]]:
    return [cells for cells in rows(section(PAGE, "Answers")) if len(cells) == 3]


def statuses(cell: str) -> set[int]:
    """`100–199, 408`, where `every other 400–499` means those that no other row names."""
    found: set[int] = set()
    for part in cell.split(", "):
        low, _, high = part.removeprefix("every other ").partition("–")
        named = set(range(int(low), int(high or low) + 1))
        if part.startswith("every other"):
            named -= {
                status for cells in answer_rows() if cells[0] not in (cell, "none") for status in statuses(cells[0])
            }
        found |= named
    return found


def exceptions(cells: list[str]) -> set[int]:
    """Statuses of a range that have rows of their own."""
    own = {204, 205, 207}
    return own if cells[0] == "200–299" else set()


@pytest.mark.parametrize("cells", answer_rows(), ids=lambda cells: f"{cells[0]} {cells[1]}"[:60])
def test_each_row_of_the_table_is_judges(cells):
    if cells[0] == "none":
        found = {type(judge(NetError("x", kind=kind), SIZE, 0)).__name__ for kind in FAILURES[cells[1]]}
    else:
        found = {
            type(judge(answer(status, body, sent_headers), SIZE, 1_771_761_600.0)).__name__
            for status in statuses(cells[0]) - exceptions(cells)
            for body, sent_headers in SAMPLES[cells[1]]
        }
    assert found == {cells[2]}


def answer(status: int, body: object, sent_headers: dict[str, str]) -> HttpResponse:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(status, HttpHeaders(sent_headers), raw, "http://ua")


def test_every_status_has_a_row_and_every_verdict_its_consequence():
    covered = set().union(*(statuses(cells[0]) for cells in answer_rows() if cells[0] != "none"))
    assert covered == ALL_STATUSES
    told = [cells[0] for cells in rows(section(PAGE, "Answers")) if len(cells) == 2]
    assert set(told) == {kind.__name__ for kind in verdict.Verdict.__args__} == {cells[2] for cells in answer_rows()}


@pytest.mark.parametrize("block", blocks(PAGE, "json")[1:], ids=lambda block: block.place)
def test_the_sample_answers_are_understood(block):
    body = json.loads(block.text)
    sample = judge(answer(200 if body["ok"] else 207, body, {}), body["accepted"] + body["rejected"], 0)
    assert sample in (verdict.Delivered(), verdict.PerEvent({3: "invalid_schema"}))
