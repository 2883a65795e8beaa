"""What an answer's headers mean."""

import pytest

from csi.adapters import response_headers
from csi.errors import NetError
from tests.fakes.stub_net import reply

NOW = 1_771_761_600.0  # Sun, 22 Feb 2026 12:00:00 GMT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0", 1.0),
        ("99999999999999999999", 3600.0),
        ("Sun, 22 Feb 2026 12:01:00 GMT", 60.0),
        ("Sun, 22 Feb 2026 11:00:00 GMT", 1.0),
        ("Mon, 22 Feb 2027 12:00:00 GMT", 3600.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("1e9", None),
        ("²", None),
    ],
)
def test_retry_after(text, seconds):
    assert response_headers.retry_after(reply(b"", 429, retry_after=text), NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        ({"cache_control": "public, max-age=900"}, 900.0),
        ({"cache_control": "public, max-age=900", "age": "897"}, 3.0),
        ({"cache_control": "max-age=900", "age": "2000"}, 0.0),
        ({"cache_control": "MAX-AGE=60", "expires": "Sun, 22 Feb 2026 13:00:00 GMT"}, 60.0),
        ({"expires": "Sun, 22 Feb 2026 12:15:00 GMT"}, 900.0),
        ({"expires": "Sun, 22 Feb 2026 12:15:00 GMT", "date": "Sun, 22 Feb 2026 12:10:00 GMT"}, 300.0),
        ({"expires": "Sun, 22 Feb 2026 11:00:00 GMT"}, 0.0),
        ({"expires": "0"}, None),
        ({"cache_control": "no-cache, max-age=900"}, None),
        ({"cache_control": "no-store"}, None),
        ({"cache_control": "max-age=99999999"}, 86_400.0),
        ({"cache_control": "max-age=soon"}, None),
        ({"cache_control": 'max-age="60"', "age": "x"}, 60.0),
        ({}, None),
    ],
)
def test_how_long_an_answer_stays_fresh(headers, left):
    assert response_headers.fresh_until(reply(b"", **headers), NOW) == (None if left is None else NOW + left)


@pytest.mark.parametrize("good", ['"abc"', 'W/"abc"', "abc", '"' + "x" * 200 + '"'])
def test_an_etag_that_can_be_sent_back_is_kept(good):
    assert response_headers.validator(reply(b"", etag=good), "etag") == good


@pytest.mark.parametrize("bad", ["", " ", "x" * 257, '"ä"', '"日"', '"a\tb"', "a\x7f"])
def test_an_etag_that_a_header_cannot_carry_is_dropped(bad):
    assert response_headers.validator(reply(b"", etag=bad), "etag") is None


def test_a_kept_validator_is_its_owners_and_for_six_hours():
    stored = response_headers.stored_validator('"a:b"', "feed", NOW)
    assert response_headers.validator_to_send(stored, "feed", NOW + 21_599) == '"a:b"'
    assert response_headers.validator_to_send(stored, "feed", NOW + 21_600) is None
    assert response_headers.validator_to_send(stored, "feed", NOW - 10) is None
    assert response_headers.validator_to_send(stored, "api", NOW) is None
    assert response_headers.stored_validator(None, "feed", NOW) is None
    for other in (None, "", '"plain"', "feed:", "feed:x:y", f"feed:{int(NOW)}:"):
        assert response_headers.validator_to_send(other, "feed", NOW) is None


@pytest.mark.parametrize(
    ("kind", "expected"), [("timeout", "transient"), ("paused", "paused"), ("too_large", "malformed")]
)
def test_an_exchange_that_failed_is_said_in_words(kind, expected):
    error = response_headers.unreachable(NetError("x:1: no answer", kind=kind), "the feed could not be read")
    assert (str(error), error.kind) == ("the feed could not be read: x:1: no answer", expected)
