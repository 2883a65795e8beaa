"""Fault cases 35–43: what is signed is what arrives, and a judge who never saw our code says so."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csi.errors import MalformedItem
from csi.ingester import signature
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.text import clean_tree
from csi.store import db
from tests.fakes.scripted_receiver import SECRET, accept, json_reply
from tests.faults.independent import objection
from tests.rigs.in_process import ledger_pipeline

GOLDEN = [
    ("plain", "ascii", "0bfbaf963b2df663eb24b786beac2be27a752b7d896c2c713bdf740d694b6774"),
    ("Über 🚀 “quotes”", "utf8", "71cd92efb656c60f16c7ac1f19276d906efb6b40e0ac9a5e9f30dddfb5e9d2e7"),
    ("Über 🚀 “quotes”", "ascii", "410feb7482f70decd6bbd2daed2e95f11744c6f3f8e056b30452b8cdcd1b2adf"),
]
TITLES = [
    "plain",
    "Über 🚀 “quotes”",
    "日本語のタイトル 한국어 中文",
    "مرحبا بالعالم \u202e abc",
    "line\u2028separator\u2029paragraph",
    "</script><script>alert(1)</script>",
    "lone \ud800 surrogate \udfff",
    "null \x00 byte and \x1b[31m escape",
    'tab\tnewline\nquote"backslash\\',
    "e\u0301 combining, 👩‍👩‍👧 joined",
    "x" * 5000,
]


def vector(title: str) -> dict:
    events = [{"subject": {"title": title}}]
    return {"batch_id": "b1", "csi_instance_id": "csi-vps-01", "csi_version": "1.0.0", "events": events}


def test_case_35_golden_vectors(case):
    wrong = [
        title
        for title, form, digest in GOLDEN
        if signature.sign(SECRET, "1708600000", "req_abc123", signature.canonical(vector(title), form)) != digest
    ]
    case.note(vectors=len(GOLDEN), wrong=len(wrong))
    assert wrong == []


@pytest.mark.parametrize("tier", ["urgent", "standard", "high_volume"])
def test_case_36_bytes_received_are_bytes_signed(case, tmp_path, seed, tier):
    with ledger_pipeline(tmp_path, 503, 503, tier=tier, lists=3) as s:
        s.publish(30, ref=-1, title="Zug № {} 🚂")
        s.run()
        s.wait(160, step=2)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests), objections=len(s.ua.objections))
        assert s.ua.objections == []
        for request in s.ua.requests:
            digest = signature.sign(
                SECRET, request.headers["x-csi-timestamp"], request.headers["x-csi-request-id"], request.body
            )
            assert request.headers["x-csi-signature"] == f"sha256={digest}"


def test_case_37_odd_titles(case, tmp_path, seed):
    with ledger_pipeline(tmp_path) as s:
        for title in TITLES:
            s.shelf.put(s.lists[0], s.clock(), title)
        s.run()
        s.wait(30)
        dead = s.count("SELECT COUNT(*) FROM dead_letter")
        case.close(s.books(), seed=seed, titles=len(TITLES), objections=len(s.ua.objections))
        assert (s.ua.objections, dead) == ([], 0)
        arrived = [request.events[0]["subject"]["title"] for request in s.ua.requests]
        assert not any("\x00" in title or "\x1b" in title for title in arrived)
        assert all(len(title) <= 500 for title in arrived)


def test_case_38_numbers_that_are_not_json(case, tmp_path, seed):
    """NaN, Infinity and 10**30 in a payload: an event without them, or a dead letter; never a request with them."""
    odd = [float("nan"), float("inf"), -float("inf"), 10**30, -(10**30), 1e308]
    with ledger_pipeline(tmp_path) as s:
        for number in odd:
            s.shelf.put(s.lists[0], s.clock(), f"Number {number}", position=number)
        s.publish(1)
        s.run()
        s.wait(30)
        text = b"".join(request.body for request in s.ua.requests)
        case.close(s.books(), seed=seed, numbers=len(odd), objections=len(s.ua.objections))
        assert s.ua.objections == []
        assert not any(word in text for word in (b"NaN", b"Infinity", b"10" + b"0" * 29))


@pytest.mark.parametrize("offset", [299, -299])
def test_case_39_a_clock_within_the_tolerance(case, tmp_path, seed, offset):
    with ledger_pipeline(tmp_path) as s:
        s.ua.then = strict(s, offset)
        s.publish(2)
        s.run()
        s.wait(30)
        case.close(s.books(), seed=seed, offset=offset)
        assert s.states() == {"delivered": 2}


@pytest.mark.parametrize("offset", [301, -301])
def test_case_39_a_clock_beyond_the_tolerance(case, tmp_path, seed, offset):
    """Held and said, not dead-lettered; when the clock is right again, everything arrives."""
    with ledger_pipeline(tmp_path, lists=2) as s:
        s.ua.then = strict(s, offset)
        s.publish(4, ref=-1)
        s.run()
        s.wait(300, step=5)
        dead = s.count("SELECT COUNT(*) FROM dead_letter")
        said = db.fetch("SELECT reason, last_error FROM destinations")
        s.heal()
        took = s.back_in()
        case.close(s.books(), seed=seed, offset=offset, dead_before=f"{dead}<=0", back=f"{took:.0f}s")
        assert s.states() == {"delivered": 4}
        assert dead == 0
        assert any("clock" in str(word) or "timestamp" in str(word) for row in said for word in row)


def strict(s, offset: float):
    """A receiver whose own clock differs, and which says what time it has, as HTTP servers do."""
    from email.utils import formatdate

    def answer(request):
        theirs = s.clock() + offset
        if abs(theirs - int(request.headers["x-csi-timestamp"])) <= 300:
            return accept(request)
        return json_reply(401, {"ok": False, "error": "stale_timestamp"}, date=formatdate(theirs, usegmt=True))

    return answer


def test_case_40_a_retry_after_ninety_minutes(case, tmp_path, seed):
    """Whatever waited, each request is signed with the time it leaves."""
    with ledger_pipeline(tmp_path, json_reply(429, retry_after="3600"), json_reply(429, retry_after="1800")) as s:
        s.publish(1)
        s.run()
        s.wait(5500, step=50)
        off = [abs(request.at - int(request.headers["x-csi-timestamp"])) for request in s.ua.requests]
        case.close(s.books(), seed=seed, requests=len(off), oldest_timestamp=f"{max(off):.0f}s<=1s")
        assert (s.states(), len(off)) == ({"delivered": 1}, 3)
        assert max(off) <= 1
        assert s.ua.requests[-1].at - s.ua.requests[0].at >= 5400


def test_case_41_rotation_without_a_failed_request(case, tmp_path, seed):
    """The receiver accepts old and new, then we change, then it drops the old one."""
    from dataclasses import replace

    accepted = [SECRET]

    def rotating(request):
        good = any(objection(secret, request.headers, request.body) is None for secret in accepted)
        return accept(request) if good else json_reply(401)

    with ledger_pipeline(tmp_path, then=rotating) as s:
        for step in ("old", "both", "new", "new only"):
            if step == "both":
                accepted.append("csi-test-secret-two")
            if step == "new":
                old = s.rt.destinations["default"]
                receiver = replace(old.receiver, key=b"csi-test-secret-two", bearer="csi-test-secret-two")
                s.rt.destinations["default"] = replace(old, receiver=receiver)
            if step == "new only":
                accepted.remove(SECRET)
            s.publish(3)
            s.wait(30, step=5)
        failed = s.count("SELECT COUNT(*) FROM delivery_attempts WHERE outcome <> 'delivered'")
        case.close(s.books(), seed=seed, failed_requests=failed)
        assert (s.states(), failed) == ({"delivered": 12}, 0)


def test_case_42_any_byte_flipped(case, tmp_path, seed):
    """Every byte of body and headers, in one random bit: both judges refuse it."""
    rng = random.Random(seed)
    with ledger_pipeline(tmp_path) as s:
        s.publish(1, title="Über {}")
        s.run()
        (request,) = s.ua.requests
    believed = [
        place
        for place in range(len(request.body))
        if independent_accepts(request.headers, flipped(request.body, place, rng))
        or own_accepts(request.headers, flipped(request.body, place, rng))
    ]
    for name in ("x-csi-signature", "x-csi-timestamp", "x-csi-request-id"):
        value = request.headers[name].encode()
        for place in range(len(value)):
            headers = request.headers | {name: flipped(value, place, rng).decode("latin-1")}
            believed += [(name, place)] if own_accepts(headers, request.body) else []
    case.note(bytes=len(request.body), believed=len(believed), seed=seed)
    assert believed == []


def flipped(data: bytes, place: int, rng: random.Random) -> bytes:
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(7))]) + data[place + 1 :]


def independent_accepts(headers: dict[str, str], body: bytes) -> bool:
    try:
        return objection(SECRET, headers, body) is None
    except (ValueError, AttributeError):
        return False


def own_accepts(headers: dict[str, str], body: bytes) -> bool:
    verdict = signature.verify(
        [SECRET],
        signature=headers["x-csi-signature"],
        timestamp=headers["x-csi-timestamp"],
        request_id=headers["x-csi-request-id"],
        body=body,
        now=1_771_761_600,
    )
    return isinstance(verdict, signature.ValidSignature)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=15,
)
SUBJECTS = st.dictionaries(st.text(max_size=20), ANYTHING, max_size=5)
_checked: list[bool] = []


@settings(max_examples=150, deadline=None, derandomize=True)
@given(SUBJECTS)
def check_subject(subject):
    """Any subject: refused as malformed, or cleaned, put into an event, signed, and accepted by both judges."""
    try:
        cleaned = clean_tree(subject)
    except MalformedItem:
        _checked.append(False)
        return
    event = CreatorSignalEvent(
        event_id="e",
        dedupe_key="k",
        source="s",
        event_type="t",
        occurred_at="2026-02-22T12:00:00Z",
        received_at="2026-02-22T12:00:00Z",
        emitted_at="2026-02-22T12:00:00Z",
        subject=cleaned,
        routing={},
        metadata={},
    )
    body = signature.canonical(vector("x") | {"events": [event.model_dump()]})
    headers = {
        "authorization": f"Bearer {SECRET}",
        "content-type": "application/json",
        **{name.lower(): value for name, value in signature.headers(SECRET, body, now=1_771_761_600).items()},
    }
    assert objection(SECRET, headers, body) is None
    assert own_accepts(headers, body)
    assert json.loads(body)["events"][0]["subject"] == cleaned
    _checked.append(True)


def test_case_43_any_subject_signs_and_verifies(case):
    check_subject()
    case.note(subjects=len(_checked), verified=sum(_checked), malformed=_checked.count(False))
    assert sum(_checked) >= 60
