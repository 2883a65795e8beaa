"""What every answer means, as a table (PRD §8.2, decision 0042, 22–27)."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.emitter.verdict import (
    Delivered,
    EndpointFault,
    PerEvent,
    Refused,
    Throttled,
    Transient,
    judge,
    next_attempt,
    retry_after,
)
from csi.errors import NetError
from csi.net import HttpHeaders, HttpResponse

NOW = 1_771_761_600.0
OK = {"ok": True, "accepted": 3, "rejected": 0, "errors": []}


def answer(status: int, body: object = b"", **headers: str) -> HttpResponse:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(
        status, HttpHeaders([(name.replace("_", "-"), value) for name, value in headers.items()]), raw, "http://ua"
    )


@pytest.mark.parametrize(
    ("given_answer", "verdict"),
    [
        (answer(200, OK), Delivered()),
        (answer(202, {"ok": True}), Delivered()),
        (answer(204), Delivered()),
        (answer(409, {"ok": False, "error": "duplicate"}), Delivered()),
        (answer(409, b"<html>"), Delivered()),
        (answer(200, b""), Transient("answer without ok")),
        (answer(200, b"<html>welcome</html>"), Transient("answer without ok")),
        (answer(200, b"[1]"), Transient("answer without ok")),
        (answer(200, {"ok": False}), Transient("answer without ok")),
        (answer(200, {"ok": "true"}), Transient("answer without ok")),
        (answer(200, {"ok": True, "accepted": 2}), Transient("answer does not add up")),
        (answer(200, {"ok": True, "accepted": 3, "rejected": 1}), Transient("answer does not add up")),
        (answer(200, b"[" * 100_000), Transient("answer without ok")),
        (answer(400, {"error": "invalid_envelope"}), Refused("http 400: invalid_envelope")),
        (answer(413), Refused("http 413")),
        (answer(422), Refused("http 422")),
        (answer(401), EndpointFault("http 401")),
        (answer(403), EndpointFault("http 403")),
        (answer(404), EndpointFault("http 404")),
        (answer(410), EndpointFault("http 410")),
        (answer(301, location="http://elsewhere"), EndpointFault("http 301")),
        (answer(308), EndpointFault("http 308")),
        (answer(405), EndpointFault("http 405")),
        (answer(408), Transient("http 408")),
        (answer(425), Transient("http 425")),
        (answer(429), Transient("http 429")),
        (answer(500), Transient("http 500")),
        (answer(503, {"ok": False, "error": "ua_overloaded"}), Transient("http 503: ua_overloaded")),
        (answer(503, rb'{"error": "a\ud800b\u0000c"}'), Transient("http 503: abc")),
        (answer(400, rb'{"error": "\udfff"}'), Refused("http 400")),
        (answer(503, b"", retry_after="60"), Throttled(60.0, "http 503")),
        (answer(429, b"", retry_after="2"), Throttled(2.0, "http 429")),
        (answer(503, {"retry_after_seconds": 7}), Throttled(7.0, "http 503")),
        (answer(599), Transient("http 599")),
        (answer(101), Transient("http 101")),
        (NetError("x", kind="timeout"), Transient("timeout")),
        (NetError("x", kind="reset"), Transient("reset")),
        (NetError("x", kind="connect"), Transient("connect")),
        (NetError("x", kind="too_large"), Transient("too_large")),
        (NetError("x", kind="tls"), EndpointFault("tls")),
        (NetError("x", kind="redirect"), EndpointFault("redirect")),
    ],
)
def test_the_table(given_answer, verdict):
    assert judge(given_answer, 3, NOW) == verdict


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ({"accepted": 2, "rejected": 1, "errors": [{"index": 1, "error": "invalid_schema"}]}, {1: "invalid_schema"}),
        ({"accepted": 2, "rejected": 1, "errors": [{"index": 1, "error": "duplicate_event"}]}, {}),
        ({"errors": [{"index": 0, "error": "a"}, {"index": 2, "error": "b"}]}, {0: "a", 2: "b"}),
        (rb'{"errors": [{"index": 1, "error": "a\ud800b\u0000c"}]}', {1: "abc"}),
        (
            {"accepted": 0, "rejected": 3, "errors": [{"index": i, "error": "x"} for i in range(3)]},
            {0: "x", 1: "x", 2: "x"},
        ),
    ],
)
def test_a_207_is_read_by_index(body, verdict):
    assert judge(answer(207, body), 3, NOW) == PerEvent(verdict)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        {"accepted": 3, "rejected": 1, "errors": [{"index": 1, "error": "x"}]},
        {"accepted": 2, "rejected": 1, "errors": [{"index": 3, "error": "x"}]},
        {"accepted": 2, "rejected": 1, "errors": [{"index": -1, "error": "x"}]},
        {"accepted": 2, "rejected": 1, "errors": [{"index": True, "error": "x"}]},
        {"accepted": 1, "rejected": 2, "errors": [{"index": 1, "error": "x"}, {"index": 1, "error": "y"}]},
        {"accepted": 2, "rejected": 1, "errors": [{"error": "x"}]},
        {"accepted": 2, "rejected": 1, "errors": []},
        {"accepted": 2, "rejected": 1, "errors": "index 1"},
    ],
)
def test_a_207_that_does_not_add_up_is_never_delivered(body):
    assert judge(answer(207, body), 3, NOW) == Transient("answer does not add up")


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("60", 60.0),
        ("1.5", 1.5),
        ("0", 1.0),
        ("-5", 1.0),
        ("999999999", 3600.0),
        ("1e400", None),
        ("nan", None),
        ("Sun, 22 Feb 2026 12:00:30 GMT", 30.0),
        ("Sunday, 22-Feb-26 12:00:30 GMT", 30.0),
        ("Sun Feb 22 12:00:30 2026", 30.0),
        ("Sun, 22 Feb 2026 11:00:00 GMT", 1.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_in_all_its_forms(value, wait):
    assert retry_after(answer(503, b"", retry_after=value), NOW) == wait


def test_the_header_comes_before_the_body_and_the_first_of_two_counts():
    both = HttpResponse(
        503, HttpHeaders([("Retry-After", "5"), ("Retry-After", "50")]), b'{"retry_after_seconds":70}', "http://ua"
    )
    assert retry_after(both, NOW) == 5.0


@given(st.integers(100, 599), st.binary(max_size=60), st.text(max_size=20), st.integers(0, 100))
def test_no_answer_raises_and_only_good_ones_are_delivered(status, body, header, size):
    verdict = judge(HttpResponse(status, HttpHeaders([("retry-after", header)]), body, "http://ua"), size, NOW)
    if isinstance(verdict, Delivered):
        assert status in (204, 205, 409) or json.loads(body)["ok"] is True


def test_three_attempts_at_0_20_and_60():
    rng = random.Random(1)
    for attempts_made, wait in ((1, 20), (2, 60)):
        for _ in range(100):
            assert 0.85 * wait <= next_attempt(attempts_made, NOW, rng) - NOW <= 1.15 * wait
    assert next_attempt(3, NOW, rng) is None
