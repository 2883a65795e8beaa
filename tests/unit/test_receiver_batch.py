"""Parsing a verified body."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.ingester.event import CreatorSignalEvent
from csi.receiver.batch import fingerprint, read_batch, status_of
from csi.receiver.request import RequestError

EVENT: dict[str, Any] = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])  # type: ignore[index, arg-type]
ENVELOPE: dict[str, Any] = {
    "csi_version": "1.0.0",
    "csi_instance_id": "csi-1",
    "batch_id": "b1",
    "events": [],
}


def body_of(**changes: Any) -> bytes:
    return json.dumps(ENVELOPE | changes).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"a":NaN}',
        b"[Infinity]",
        b"[" * 100_000,
        b"\xef\xbb\xbf{}",
        b"9" * 5000,
        '{"a":1}'.encode("utf-16"),
    ],
)
def test_what_is_not_json_is_400(body: bytes) -> None:
    with pytest.raises(RequestError, match="invalid_json") as caught:
        read_batch(body, frozenset())
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        body_of(events={}),
        body_of(events=None),
        body_of(batch_id=7),
        body_of(batch_id=""),
        body_of(batch_id="b\x1b[2J"),
        body_of(csi_instance_id="x" * 201),
        body_of(csi_version=None),
        body_of(batch_id="\ud800"),
    ],
)
def test_a_wrong_envelope_is_400(body: bytes) -> None:
    with pytest.raises(RequestError, match="invalid_envelope") as caught:
        read_batch(body, frozenset())
    assert caught.value.status == 400


def test_only_allowed_instances() -> None:
    assert read_batch(body_of(), frozenset({"csi-1"})).instance_id == "csi-1"
    with pytest.raises(RequestError, match="instance_not_allowed") as caught:
        read_batch(body_of(), frozenset({"csi-2"}))
    assert caught.value.status == 403


def test_a_hundred_events_and_no_more() -> None:
    assert len(read_batch(body_of(events=[EVENT] * 100), frozenset()).items) == 100
    with pytest.raises(RequestError, match="too_many_events") as caught:
        read_batch(body_of(events=[EVENT] * 101), frozenset())
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "event",
    [
        None,
        1,
        [],
        {},
        EVENT | {"event_id": 7},
        EVENT | {"event_id": ""},
        EVENT | {"event_id": "x" * 513},
        EVENT | {"event_id": "a\x00b"},
        EVENT | {"dedupe_key": "\ud800"},
        EVENT | {"source": "a\nb"},
        EVENT | {"occurred_at": ""},
        EVENT | {"occurred_at": "yesterday"},
        EVENT | {"occurred_at": "9999-12-31T23:59:59-23:59"},
        EVENT | {"occurred_at": "Mon, 01 Jan 99999999999 00:00:00 GMT"},
        EVENT | {"subject": None},
    ],
)
def test_a_bad_event_is_invalid_and_stands_alone(event: Any) -> None:
    items = read_batch(body_of(events=[EVENT, event, EVENT]), frozenset()).items
    assert [item.event is None for item in items] == [False, True, False]


def test_fields_of_a_later_contract_are_kept() -> None:
    (item,) = read_batch(body_of(events=[EVENT | {"later": {"ü": "\ud800"}}]), frozenset()).items
    assert json.loads(item.text)["later"] == {"ü": "\ud800"}


@pytest.mark.parametrize(
    ("routing", "pipeline"),
    [({"pipeline": "p"}, "p"), ({}, None), ({"pipeline": 7}, None), ({"pipeline": "\ud800"}, None)],
)
def test_pipeline_is_a_word_or_nothing(routing: dict[str, Any], pipeline: str | None) -> None:
    (item,) = read_batch(body_of(events=[EVENT | {"routing": routing}]), frozenset()).items
    assert item.pipeline == pipeline


def test_fingerprint_ignores_only_emitted_at() -> None:
    assert fingerprint(EVENT) == fingerprint(EVENT | {"emitted_at": "later"})
    assert fingerprint(EVENT) != fingerprint(EVENT | {"occurred_at": "later"})


def test_status_follows_the_verdicts() -> None:
    assert status_of([]) == 200
    assert status_of(["accepted", "accepted"]) == 200
    assert status_of(["duplicate", "duplicate"]) == 409
    assert status_of(["accepted", "duplicate"]) == 207
    assert status_of(["invalid"]) == status_of(["invalid", "duplicate"]) == 207


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(value=json_values, name=st.sampled_from(sorted(EVENT)))
def test_any_value_in_any_field_is_a_verdict_never_a_crash(value: Any, name: str) -> None:
    (item,) = read_batch(body_of(events=[EVENT | {name: value}]), frozenset()).items
    assert (item.event is None) == (item.text == "")
