"""The signature: the golden vectors, the two forms, and whatever text a title may hold."""

import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.ingester import signature
from csi.ingester.signature import InvalidSignature, ValidSignature

SECRET, TIMESTAMP, REQUEST_ID = "csi-test-secret", "1708600000", "req_abc123"

GOLDEN = [
    ("plain", "ascii", "0bfbaf963b2df663eb24b786beac2be27a752b7d896c2c713bdf740d694b6774"),
    ("Über 🚀 “quotes”", "utf8", "71cd92efb656c60f16c7ac1f19276d906efb6b40e0ac9a5e9f30dddfb5e9d2e7"),
    ("Über 🚀 “quotes”", "ascii", "410feb7482f70decd6bbd2daed2e95f11744c6f3f8e056b30452b8cdcd1b2adf"),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
SENDABLE = JSON.filter(lambda value: _is_utf8(json.dumps(value, ensure_ascii=False)))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def envelope(title: str) -> dict[str, object]:
    return {
        "batch_id": "b1",
        "csi_instance_id": "csi-vps-01",
        "csi_version": "1.0.0",
        "events": [{"subject": {"title": title}}],
    }


def check(body: bytes, digest: str, *, now: float = 1708600000, **changes: str) -> ValidSignature | InvalidSignature:
    parts = {"timestamp": TIMESTAMP, "request_id": REQUEST_ID, "signature": f"sha256={digest}"} | changes
    return signature.verify([SECRET], body=body, now=now, **parts)


@pytest.mark.parametrize(("title", "form", "digest"), GOLDEN)
def test_golden_vectors(title, form, digest):
    body = signature.canonical(envelope(title), form)
    assert signature.sign(SECRET, TIMESTAMP, REQUEST_ID, body) == digest
    assert check(body, digest) == ValidSignature(form)


def test_the_prds_own_reference_gives_the_same():
    body = envelope("Ünïcode")
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    message = f"{TIMESTAMP}.{REQUEST_ID}.{text}"
    reference = hmac.new(SECRET.encode("utf-8"), message.encode("utf-8"), hashlib.sha256).hexdigest()
    assert signature.sign(SECRET, TIMESTAMP, REQUEST_ID, signature.canonical(body)) == reference


@pytest.mark.parametrize(
    ("changes", "now", "reason"),
    [
        ({}, 1708600000 + 301, "stale_timestamp"),
        ({}, 1708600000 - 301, "stale_timestamp"),
        ({"signature": "sha256=" + "0" * 64}, 1708600000, "bad_signature"),
        ({"signature": GOLDEN[0][2]}, 1708600000, "malformed_signature"),
        ({"signature": "sha256=" + GOLDEN[0][2].upper()}, 1708600000, "malformed_signature"),
        ({"signature": "sha256=é"}, 1708600000, "malformed_signature"),
        ({"request_id": "req-with-dashes"}, 1708600000, "malformed_request_id"),
        ({"request_id": "x" * 65}, 1708600000, "malformed_request_id"),
        ({"timestamp": "1708600000.5"}, 1708600000, "malformed_timestamp"),
        ({"timestamp": "٣"}, 1708600000, "malformed_timestamp"),
        ({"timestamp": "9" * 40}, 1708600000, "malformed_timestamp"),
    ],
)
def test_what_is_refused_and_why(changes, now, reason):
    body = signature.canonical(envelope("plain"))
    parts = {"signature": f"sha256={GOLDEN[0][2]}", "timestamp": TIMESTAMP, "request_id": REQUEST_ID} | changes
    assert signature.verify([SECRET], body=body, now=now, **parts) == InvalidSignature(reason)


@pytest.mark.parametrize("offset", [-299, 0, 299])
def test_five_minutes_either_way_are_fine(offset):
    body = signature.canonical(envelope("plain"))
    assert check(body, GOLDEN[0][2], now=1708600000 + offset) == ValidSignature("ascii")


def test_every_flipped_byte_is_refused():
    body = signature.canonical(envelope("plain"))
    for index in range(len(body)):
        forged = body[:index] + bytes([body[index] ^ 1]) + body[index + 1 :]
        assert check(forged, GOLDEN[0][2]) == InvalidSignature("bad_signature")


def test_both_secrets_of_a_rotation_are_accepted():
    body = signature.canonical(envelope("plain"))
    parts = {"timestamp": TIMESTAMP, "request_id": REQUEST_ID, "signature": f"sha256={GOLDEN[0][2]}"}
    assert signature.verify(["new-secret", SECRET], body=body, now=1708600000, **parts) == ValidSignature("ascii")


def test_each_attempt_has_its_own_id_and_time():
    first = signature.headers(SECRET, b"{}", now=1.0)
    second = signature.headers(SECRET, b"{}", now=5401.0)
    assert first["X-CSI-Request-ID"] != second["X-CSI-Request-ID"]
    assert signature.REQUEST_ID.fullmatch(first["X-CSI-Request-ID"])
    assert (first["X-CSI-Timestamp"], second["X-CSI-Timestamp"]) == ("1", "5401")
    assert first["X-CSI-Signature"] != second["X-CSI-Signature"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_json_is_not_signed(number):
    with pytest.raises(ValueError):
        signature.canonical({"score": number})


@given(SENDABLE, st.sampled_from(["ascii", "utf8"]))
def test_whatever_is_signed_is_verified(value, form):
    body = signature.canonical({"events": [{"subject": value}]}, form)
    headers = signature.headers(SECRET, body, now=1000.0)
    verdict = signature.verify(
        ["other", SECRET],
        body=body,
        signature=headers["X-CSI-Signature"],
        timestamp=headers["X-CSI-Timestamp"],
        request_id=headers["X-CSI-Request-ID"],
        now=1100.0,
    )
    assert isinstance(verdict, ValidSignature)


@given(SENDABLE)
def test_a_body_reencoded_on_its_way_is_still_verified(value):
    body = {"events": [{"subject": value}]}
    headers = signature.headers(SECRET, signature.canonical(body, "ascii"), now=1000.0)
    verdict = signature.verify(
        [SECRET],
        body=json.dumps(body, ensure_ascii=False, indent=1).encode(),
        signature=headers["X-CSI-Signature"],
        timestamp="1000",
        request_id=headers["X-CSI-Request-ID"],
        now=1000.0,
    )
    assert isinstance(verdict, ValidSignature)


@given(st.binary(max_size=200), st.text(max_size=80), st.text(max_size=20), st.text(max_size=70))
def test_nothing_makes_verify_raise(body, header, timestamp, request_id):
    verdict = signature.verify(
        [SECRET], body=body, signature=header, timestamp=timestamp, request_id=request_id, now=1.0
    )
    assert isinstance(verdict, InvalidSignature)
