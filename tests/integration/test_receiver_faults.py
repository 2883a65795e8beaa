"""Fault cases 35–43 and 81–86 at the receiver: for each number the tests that prove it."""

import ast
import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from csi.ingester.event import CreatorSignalEvent
from csi.ingester.signature import canonical, headers
from csi.receiver.app import INGEST_PATH, create_app
from csi.receiver.settings import ReceiverSettings

TESTS = Path(__file__).resolve().parents[1]
APP, PROCESS, HERE = "integration/test_receiver_app.py", "integration/test_receiver_process.py", Path(__file__).name
CHECKS = "unit/test_receiver_request.py"
SETTINGS, BATCH = "unit/test_receiver_settings.py", "unit/test_receiver_batch.py"
PAGES = "integration/test_processing_pages.py"

PROOFS: dict[int, list[tuple[str, str]]] = {
    35: [(APP, "test_golden_vectors_pass_the_signature")],
    36: [
        (APP, "test_both_canonical_forms_whatever_was_sent"),
        (HERE, "test_36_any_subject_is_verified_and_kept_as_it_was_sent"),
    ],
    37: [
        (APP, "test_big_numbers_and_odd_text_are_kept"),
        (BATCH, "test_a_bad_event_is_invalid_and_stands_alone"),
    ],
    38: [
        (BATCH, "test_what_is_not_json_is_400"),
        (HERE, "test_38_numbers_that_are_not_json_are_refused_and_nothing_is_kept"),
    ],
    39: [(APP, "test_clock_tolerance_is_300_seconds")],
    40: [(HERE, "test_40_after_ninety_minutes_a_fresh_signature_is_taken_and_the_old_one_is_not")],
    41: [(APP, "test_rotation_takes_both_secrets")],
    42: [(APP, "test_any_byte_flipped_is_refused_and_changes_nothing")],
    43: [
        (HERE, "test_36_any_subject_is_verified_and_kept_as_it_was_sent"),
        (BATCH, "test_any_value_in_any_field_is_a_verdict_never_a_crash"),
    ],
    81: [
        (SETTINGS, "test_a_malformed_secret_is_refused_by_name_and_never_shown"),
        (PROCESS, "test_no_real_secret_no_start"),
    ],
    82: [
        (HERE, "test_82_it_listens_on_this_machine_unless_it_is_told_otherwise"),
        (PAGES, "test_without_a_password_there_are_no_pages"),
    ],
    83: [
        (PROCESS, "test_strange_credentials_are_401"),
        (PROCESS, "test_doubled_headers_are_401"),
        (CHECKS, "test_anything_else_is_401"),
    ],
    84: [
        (HERE, "test_84_another_site_and_other_methods_change_nothing"),
        (PROCESS, "test_broken_http_never_is_a_500"),
    ],
    85: [
        (APP, "test_an_unsigned_stream_is_never_collected"),
        (PROCESS, "test_a_long_body_without_a_length_is_cut_off"),
        (PROCESS, "test_slow_strangers_do_not_take_the_places_of_senders"),
        (APP, "test_too_many_at_once_is_503_and_passes"),
    ],
    86: [
        (HERE, "test_86_open_doors_tell_no_title_id_or_address"),
        (APP, "test_stats_are_numbers_for_the_senders_token"),
    ],
}

SECRET, NOW = "csi-test-secret", 1708600000.0
EVENT: dict[str, Any] = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])  # type: ignore[index, arg-type]
SUBJECTS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(
            st.characters(exclude_categories=["Cs"]), max_size=50
        ),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)  # fmt: skip


@pytest.mark.parametrize("number", [*range(35, 44), *range(81, 87)])
def test_each_fault_has_its_proof(number: int) -> None:
    for file, name in PROOFS[number]:
        path = Path(__file__) if file == HERE else TESTS / file
        assert name in _tests_of(path), f"fault {number}: {name} is not in {file}"


def _tests_of(path: Path) -> set[str]:
    """Tests that run: one that is marked to be skipped proves nothing."""
    found = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {node.name for node in found if not any("skip" in ast.unparse(mark) for mark in node.decorator_list)}


def envelope(*events: Any) -> dict[str, Any]:
    return {"csi_version": "1.0.0", "csi_instance_id": "csi-vps-01", "batch_id": "b1", "events": list(events)}


class Door:
    """The receiver in process, with its clock in hand."""

    def __init__(self, home: Path) -> None:
        self.now, self.path = NOW, home / "r.db"
        self.app = create_app(ReceiverSettings(secret=SECRET, db_path=self.path), now=lambda: self.now)
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False, client=("127.0.0.1", 1))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8090")

    def signed(self, body: bytes) -> dict[str, str]:
        return {"Authorization": f"Bearer {SECRET}"} | headers(SECRET, body, now=self.now)

    def kept(self) -> int:
        return int(self.app.state.receiver.store.counts()["accepted"])


@pytest_asyncio.fixture
async def door(tmp_path: Path) -> Any:
    made = Door(tmp_path)
    yield made
    await made.http.aclose()
    made.app.state.receiver.close()


def test_36_any_subject_is_verified_and_kept_as_it_was_sent(tmp_path: Path) -> None:
    made, count = Door(tmp_path), iter(range(10_000))

    @settings(max_examples=60, deadline=None)
    @given(SUBJECTS)
    def holds(subject: dict[str, Any]) -> None:
        name = f"e{next(count)}"
        sent = EVENT | {"event_id": name, "subject": EVENT["subject"] | subject}
        body = canonical(envelope(sent))
        answer = runner.run(made.http.post(INGEST_PATH, content=body, headers=made.signed(body)))
        assert answer.status_code == 200, answer.text
        with sqlite3.connect(made.path) as db:
            row = db.execute("SELECT event_json FROM signals WHERE event_id = ?", (name,)).fetchone()
        assert json.loads(row[0]) == sent

    with asyncio.Runner() as runner:
        holds()
        runner.run(made.http.aclose())
    made.app.state.receiver.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_38_numbers_that_are_not_json_are_refused_and_nothing_is_kept(door: Door, number: str) -> None:
    body = canonical(envelope(EVENT)).replace(b'"platform"', b'"x":' + number.encode() + b',"platform"', 1)
    answer = await door.http.post(INGEST_PATH, content=body, headers=door.signed(body))
    assert (answer.status_code, door.kept()) == (400, 0)


@pytest.mark.asyncio
async def test_40_after_ninety_minutes_a_fresh_signature_is_taken_and_the_old_one_is_not(door: Door) -> None:
    body = canonical(envelope(EVENT))
    old = door.signed(body)
    door.now += 90 * 60
    assert (await door.http.post(INGEST_PATH, content=body, headers=old)).status_code == 401
    assert (await door.http.post(INGEST_PATH, content=body, headers=door.signed(body))).status_code == 200
    assert door.kept() == 1


def test_82_it_listens_on_this_machine_unless_it_is_told_otherwise() -> None:
    from csi.cli.receiver import receiver

    host = next(option for option in receiver.params if option.name == "host")
    assert host.default == "127.0.0.1"


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE"])
async def test_84_another_site_and_other_methods_change_nothing(door: Door, method: str) -> None:
    body = canonical(envelope(EVENT))
    foreign = {"Origin": "https://evil.example", "Host": "evil.example", "X-HTTP-Method-Override": "POST"}
    other = await door.http.request(method, INGEST_PATH, content=body, headers=door.signed(body) | foreign)
    assert other.status_code == 405
    unsigned = await door.http.post(INGEST_PATH, content=body, headers=foreign | {"Content-Type": "text/plain"})
    assert (unsigned.status_code, door.kept()) == (401, 0)
    assert "access-control-allow-origin" not in unsigned.headers


@pytest.mark.asyncio
async def test_86_open_doors_tell_no_title_id_or_address(door: Door) -> None:
    named = {"video_id": "canaryvideo", "title": "canary title", "url": "https://canary.example/x"}
    sent = EVENT | {"event_id": "canary:event", "subject": EVENT["subject"] | named}
    body = canonical(envelope(sent))
    assert (await door.http.post(INGEST_PATH, content=body, headers=door.signed(body))).status_code == 200
    for path in ("/healthz", "/readyz", "/stats", "/", "/metrics", "/canary"):
        assert "canary" not in (await door.http.get(path)).text, path
