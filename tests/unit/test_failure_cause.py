"""Why a receiver does not accept events, in words: the status or the kind of failure alone is never shown."""

import re
from pathlib import Path

import pytest

from csi.emitter import failure_cause as module
from csi.emitter.failure_cause import failure_cause, in_words, without_code
from csi.emitter.verdict import judge
from csi.errors import NetError
from csi.net import HttpHeaders, HttpResponse

CASES = [
    ("connect: connection refused", "connection refused", "start the receiver", False),
    ("connect: name cannot be resolved", "name cannot be resolved", "correct the host name", False),
    ("connect", "no connection", "start the receiver", False),
    ("tls: certificate expired on 2026-08-01", "certificate expired on 2026-08-01", "renew the receiver's", True),
    ("tls: certificate is for another host name", "certificate is for another host name", "name of the cert", True),
    ("timeout: no answer within 10 s", "no answer within 10 s", "delivery.timeout_seconds", False),
    ("reset", "it closed the connection before its answer was complete", "its log", False),
    ("insecure", "its address is plain http", "https", True),
    ("bad_url", "its address cannot be used", "CSI_UA_ENDPOINT", True),
    ("http 401: bad_signature", "authentication failed (401): check the secret, the bearer token", "secret", True),
    ("http 403", "not allowed (403)", "csi.instance_id", True),
    ("http 404", "nothing exists at its address (404)", "correct the path", True),
    ("http 410", "the receiver removed this address (410)", "CSI_UA_ENDPOINT", True),
    ("http 302", "it redirects to another address (302)", "final", True),
    ("http 418", "it refuses every request (418)", "CSI_UA_ENDPOINT", True),
    ("http 429: own_word", "the receiver rate-limits us (429)", "max_concurrent_requests", False),
    ("http 500", "the receiver fails (500)", "repair the receiver", False),
    ("http 503: busy", "the receiver is unavailable (503)", "repair the receiver", False),
    ("it refuses every event: http 400: bad_schema", "it refuses every event (400)", "csi dlq list", True),
    ("answer without ok", "its answer is not JSON", "CSI_UA_ENDPOINT", False),
    ("answer does not add up", "the counts in its answer do not add up", "correct the receiver's answer", False),
    ("http 401: x; the receiver's clock is -400 s from ours", "clock is 400 s behind ours", "set-ntp", True),
    ("", "it failed", "repair the receiver", False),
]


@pytest.mark.parametrize(("reason", "words", "remedy", "is_proven"), CASES)
def test_each_reason_has_words_a_remedy_that_fits_and_a_section_of_the_runbook(reason, words, remedy, is_proven):
    found = failure_cause(reason)
    assert words in found.words
    assert remedy in found.remedy
    assert found.is_proven is is_proven
    headings = re.findall(r"^## (.+)$", Path("ops/runbook.md").read_text(), re.M)
    assert found.runbook in [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_no_one_is_told_to_start_a_receiver_whose_certificate_or_name_is_wrong():
    for reason in ("tls: certificate expired on 2026-08-01", "tls", "connect: name cannot be resolved", "http 404"):
        assert "start the receiver" not in failure_cause(reason).remedy


@pytest.mark.parametrize("reason", [reason for reason, *_ in CASES])
def test_what_is_public_has_nothing_that_the_receiver_said(reason):
    for own in ("bad_signature", "own_word", "busy", "bad_schema"):
        assert own not in failure_cause(reason).words + failure_cause(reason).remedy


def test_those_who_are_signed_in_see_the_receivers_words_too():
    assert in_words("http 503: busy") == "the receiver is unavailable (503); it says: busy"
    assert in_words("it refuses every event: http 400: no") == "it refuses every event (400); it says: no"
    assert in_words("connect: connection refused") == "connection refused"
    assert in_words("moving the receiver") == "moving the receiver"


def test_a_dead_letter_keeps_the_status_and_has_words_for_everything_else():
    assert without_code("timeout: no answer within 10 s") == "no answer within 10 s"
    assert without_code("tls") == "no TLS connection"
    assert without_code("http 422: invalid_schema") == "http 422: invalid_schema"
    assert without_code("invalid_schema") == "invalid_schema"


def test_every_reason_of_a_verdict_is_known():
    kinds = ("connect", "timeout", "reset", "protocol", "bad_encoding", "too_large", "busy", "tls", "insecure")
    answers = [NetError("x", kind=kind) for kind in kinds]
    bodies = (b"", b'{"ok": true, "accepted": 7}')
    answers += [HttpResponse(status, HttpHeaders(), body, "u") for status in range(100, 600) for body in bodies]
    for answer in answers:
        reason = getattr(judge(answer, 1, 0.0), "reason", None)
        assert reason is None or failure_cause(reason).words != "it failed", reason
        assert reason is None or not re.fullmatch(r"[a-z_]+|http \d+", failure_cause(reason).words)
    assert set(module._KINDS) >= set(kinds)
