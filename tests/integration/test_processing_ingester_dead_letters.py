"""The ingester's dead letters: read, capped, cleaned and validated."""

import json
from typing import Any

import pytest

from csi.net import HttpHeaders, HttpResponse, Net
from csi.processing.ingester_dead_letters import MOST, IngesterClient, IngesterDeadLetters, read_dead_letters
from tests.fakes.providers import ScriptedServer

LETTER = {
    "id": 7,
    "kind": "event",
    "event_id": "src:yt:rss:abc:1",
    "source": "youtube_channel_rss",
    "destination": None,
    "cause": "event",
    "error": "http 422",
    "status": 422,
    "retry_count": 3,
    "state": "open",
    "died_at": "2026-02-22T10:00:00Z",
}


def answer(body: Any, status: int = 200) -> HttpResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(status, HttpHeaders(), data, "http://127.0.0.1/admin/dlq")


class FakeSender(ScriptedServer):
    """It has one letter."""

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        return 200, {"total": 1, "letters": [LETTER]}, {}


def sender(url: str | None, token: str | None = "read-token-0123", now: float = 0.0) -> IngesterClient:
    return IngesterClient(Net(), url, token, lambda: now)


def test_a_letter_is_read_with_its_time():
    told = read_dead_letters(answer({"total": 1, "letters": [LETTER]}))
    assert (told.total, told.problem) == (1, "")
    assert (told.letters[0].id, told.letters[0].error, told.letters[0].destination) == (7, "http 422", "")
    assert told.letters[0].died_at == 1771754400.0


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"<html>", 200, "not a list of dead letters"),
        ([], 200, "not a list of dead letters"),
        ({"letters": {}}, 200, "not a list of dead letters"),
        (b"[" * 100_000, 200, "not a list of dead letters"),
        (b'{"letters": [], "total": ' + b"9" * 5_000 + b"}", 200, "not a list of dead letters"),
        ({"letters": [LETTER, 3, {"id": "x"}, {"id": -1}, {"id": 2**70}]}, 200, "4 of its rows are invalid"),
        ({}, 401, "rejected the token"),
        ({}, 403, "disabled"),
        ({}, 404, "no admin API"),
        ({}, 421, "web.allowed_hosts"),
        ({}, 503, "it answered 503"),
    ],
    ids=["html", "a list", "no rows", "deep", "huge number", "bad rows", "401", "403", "404", "421", "503"],
)
def test_an_answer_that_is_of_no_use_is_a_sentence(body, status, words):
    assert words in read_dead_letters(answer(body, status)).problem


@pytest.mark.parametrize(
    "died_at",
    ["yesterday", 12, None, "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "x" * 9_000],
    ids=["words", "number", "none", "before time", "after time", "long"],
)
def test_a_time_that_cannot_be_told_is_none(died_at):
    assert read_dead_letters(answer({"letters": [LETTER | {"died_at": died_at}]})).letters[0].died_at is None


def test_texts_are_short_printable_lines_and_rows_are_few():
    rude = LETTER | {"error": "a\x1b[31m\u202e\u0000b\n" + "x" * 5_000, "event_id": {"deep": 1}}
    told = read_dead_letters(answer({"total": 10**12, "letters": [rude] * (MOST + 50)}))
    assert len(told.letters) == MOST
    assert told.total == 10**9
    assert told.letters[0].error.startswith("a [31m b xxx")
    assert len(told.letters[0].error) == 300
    assert told.letters[0].event_id == ""


def test_it_is_asked_with_its_token_in_a_header_and_not_again_at_once():
    with FakeSender() as there:
        found = IngesterClient(Net(), there.url, "read-token-0123", iter([0.0, 0.0, 4.9, 5.1, 5.1]).__next__)
        assert [len(found.letters("open").letters) for _ in range(3)] == [1, 1, 1]
        assert there.count("/admin/dlq") == 2
        method, path, headers = there.requests[0]
        assert (method, path) == ("GET", "/admin/dlq?state=open&limit=200")
        assert headers["authorization"] == "Bearer read-token-0123"


def test_a_redirect_an_answer_without_end_and_a_closed_door_are_sentences():
    with FakeSender() as there:
        there.always = {"/admin/dlq": (302, b"", {"Location": "http://127.0.0.1:1/admin/dlq"})}
        assert "the request failed" in sender(there.url).letters("open").problem
        there.always = {"/admin/dlq": (200, b"x" * 600_000, {})}
        assert "the request failed" in sender(there.url).letters("open").problem
    assert "the request failed" in sender("http://127.0.0.1:9").letters("open").problem
    assert (
        "plain http is allowed for loopback addresses only" in sender("http://sender.example").letters("open").problem
    )


def test_what_is_not_configured_is_named():
    assert sender(None).letters("open") == IngesterDeadLetters(problem="ingester_url is not set in processing.yaml")
    assert "CSI_ADMIN_READ_TOKEN is not set" in sender("http://127.0.0.1:9", None).letters("open").problem
    assert "read-token" not in repr(sender("http://127.0.0.1:9"))
