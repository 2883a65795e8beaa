"""The receiver in process: every response of PRD §8.1, and every request that must be refused."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from loguru import logger
from starlette.applications import Starlette

from csi.ingester.event import CreatorSignalEvent
from csi.ingester.signature import canonical, headers, new_request_id
from csi.receiver import app as app_module
from csi.receiver.app import INGEST_PATH, create_app
from csi.receiver.settings import ReceiverSettings

pytestmark = pytest.mark.asyncio

SECRET = "csi-test-secret"
NOW = 1708600000
EVENT: dict[str, Any] = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])  # type: ignore[index, arg-type]
Answer = tuple[int, dict[str, Any]]


def envelope(*events: Any, **changes: Any) -> dict[str, Any]:
    body = {"csi_version": "1.0.0", "csi_instance_id": "csi-vps-01", "batch_id": "b1", "events": list(events)}
    return body | changes


def event(name: str, **changes: Any) -> dict[str, Any]:
    return EVENT | {"event_id": name} | changes


class Sender:
    """Signs as the ingester does; a test then bends what it wants to bend."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self.now = float(NOW)
        self.app: Starlette = create_app(settings, now=lambda: self.now)
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://receiver")

    def signed(self, body: bytes, *, secret: str = SECRET, **kwargs: Any) -> dict[str, str]:
        kwargs.setdefault("now", self.now)
        return {"Authorization": f"Bearer {secret}"} | headers(secret, body, **kwargs)

    async def post(self, body: bytes, sent: Any) -> Answer:
        response = await self.http.post(INGEST_PATH, content=body, headers=sent)
        return response.status_code, response.json()

    async def send(self, *events: Any, **kwargs: Any) -> Answer:
        body = canonical(envelope(*events))
        return await self.post(body, self.signed(body, **kwargs))

    async def close(self) -> None:
        await self.http.aclose()
        self.app.state.receiver.close()


@pytest.fixture
def settings(tmp_path: Path) -> ReceiverSettings:
    return ReceiverSettings(secret=SECRET, db_path=tmp_path / "r.db", ledger_path=tmp_path / "ledger.jsonl")


@pytest_asyncio.fixture
async def start(settings: ReceiverSettings) -> AsyncIterator[Callable[..., Sender]]:
    started: list[Sender] = []

    def begin(**changes: Any) -> Sender:
        started.append(Sender(replace(settings, **changes)))
        return started[-1]

    yield begin
    for sender in started:
        await sender.close()


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Everything logged, fields included."""
    lines: list[str] = []
    sink = logger.add(
        lambda message: lines.append(f"{message} {message.record['extra']}"),
        level=0,
        filter=lambda record: (record["name"] or "").startswith("csi."),  # not the test's own httpx client
    )
    yield lines
    logger.remove(sink)


def ok(accepted: int) -> Answer:
    return 200, {"ok": True, "accepted": accepted, "rejected": 0, "errors": []}


def no(status: int, word: str) -> Answer:
    return status, {"ok": False, "error": word}


def dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as db:
        lines = list(db.iterdump())
    db.close()
    return lines


def ledger_of(settings: ReceiverSettings) -> list[dict[str, Any]]:
    assert settings.ledger_path is not None
    return [json.loads(line) for line in settings.ledger_path.read_text().splitlines()]


async def test_a_batch_is_accepted_and_kept(start: Callable[..., Sender], settings: ReceiverSettings) -> None:
    assert await start().send(event("a"), event("b")) == ok(2)
    with sqlite3.connect(settings.db_path) as db:
        assert db.execute("SELECT event_id, deliveries FROM signals").fetchall() == [("a", 1), ("b", 1)]
        assert db.execute("SELECT status, events, batch_id FROM requests").fetchall() == [(200, 2, "b1")]
    db.close()
    assert [(line["event_id"], line["verdict"]) for line in ledger_of(settings)] == [
        ("a", "accepted"),
        ("b", "accepted"),
    ]


async def test_an_empty_batch_is_fine(start: Callable[..., Sender]) -> None:
    assert await start().send() == ok(0)


@pytest.mark.parametrize(
    ("title", "form", "digest"),
    [
        ("plain", "ascii", "0bfbaf963b2df663eb24b786beac2be27a752b7d896c2c713bdf740d694b6774"),
        ("Über 🚀 “quotes”", "utf8", "71cd92efb656c60f16c7ac1f19276d906efb6b40e0ac9a5e9f30dddfb5e9d2e7"),
        ("Über 🚀 “quotes”", "ascii", "410feb7482f70decd6bbd2daed2e95f11744c6f3f8e056b30452b8cdcd1b2adf"),
    ],
)
async def test_golden_vectors_pass_the_signature(
    start: Callable[..., Sender], title: str, form: Any, digest: str
) -> None:
    """Their event is no whole event, so 207 by schema is what a believed request gets."""
    body = canonical(envelope({"subject": {"title": title}}), form)
    sent = {
        "Authorization": f"Bearer {SECRET}",
        "X-CSI-Signature": f"sha256={digest}",
        "X-CSI-Timestamp": "1708600000",
        "X-CSI-Request-ID": "req_abc123",
    }
    errors = [{"index": 0, "error": "invalid_schema"}]
    expected = {"ok": False, "accepted": 0, "rejected": 1, "errors": errors}
    assert await start().post(body, sent) == (207, expected)


@pytest.mark.parametrize("signed_form", ["ascii", "utf8"])
@pytest.mark.parametrize("sent_form", ["ascii", "utf8"])
async def test_both_canonical_forms_whatever_was_sent(
    start: Callable[..., Sender], signed_form: Any, sent_form: Any
) -> None:
    sender = start()
    body = envelope(event("a", subject={"title": "Über 🚀 日本語 \u2028 </script>"}))
    assert await sender.post(canonical(body, sent_form), sender.signed(canonical(body, signed_form))) == ok(1)


@pytest.mark.parametrize("skew", [-301, -299, 299, 301])
async def test_clock_tolerance_is_300_seconds(start: Callable[..., Sender], skew: int) -> None:
    answer = await start().send(event("a"), now=NOW + skew)
    assert answer == (ok(1) if abs(skew) < 300 else no(401, "stale_timestamp"))


async def test_any_byte_flipped_is_refused_and_changes_nothing(
    start: Callable[..., Sender], settings: ReceiverSettings
) -> None:
    sender = start()
    body = canonical(envelope(event("a")))
    sent = sender.signed(body)
    before = dump(settings.db_path)
    for index in range(len(body)):
        flipped = body[:index] + bytes([body[index] ^ (1 << index % 8)]) + body[index + 1 :]
        assert await sender.post(flipped, sent) == no(401, "bad_signature")
    for name, value in sent.items():
        for index in range(len(value)):
            letter = "0" if value[index] != "0" else "1"
            bent = sent | {name: value[:index] + letter + value[index + 1 :]}
            assert (await sender.post(body, bent))[0] == 401
    assert dump(settings.db_path) == before
    assert ledger_of(settings) == []
    assert await sender.post(body, sent) == ok(1)


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer wrong", "Basic x", "Bearer " + "x" * 1_000_000, "ü€"])
async def test_wrong_credentials_are_401(start: Callable[..., Sender], value: str) -> None:
    sender = start()
    body = canonical(envelope(event("a")))
    sent = {key: text.encode() for key, text in sender.signed(body).items()} | {"Authorization": value.encode()}
    assert await sender.post(body, sent) == no(401, "bad_credentials")


@pytest.mark.parametrize("name", ["Authorization", "X-CSI-Signature", "X-CSI-Timestamp", "X-CSI-Request-ID"])
async def test_headers_missing_doubled_or_strange_are_401(start: Callable[..., Sender], name: str) -> None:
    sender = start()
    body = canonical(envelope(event("a")))
    sent = sender.signed(body)
    assert await sender.post(body, [*sent.items(), (name, sent[name])]) == no(401, "doubled_header")
    for strange in (b"", b"\xff\xfe\x80", "ü".encode(), b"9" * 200_000, b"\xd9\xa3", b"-1", b"1e9"):
        raw = {key: text.encode() for key, text in sent.items()} | {name: strange}
        assert (await sender.post(body, raw))[0] == 401
    del sent[name]
    assert await sender.post(body, sent) == no(401, "missing_header")


async def test_rotation_takes_both_secrets(start: Callable[..., Sender]) -> None:
    sender = start(previous_secret="the-old-secret")
    assert await sender.send(event("a"), secret="the-old-secret") == ok(1)
    assert await sender.send(event("b")) == ok(1)
    assert (await sender.send(event("c"), secret="a-third-secret"))[0] == 401


async def test_a_bearer_token_of_its_own(start: Callable[..., Sender]) -> None:
    sender = start(bearer_token="another-token")
    body = canonical(envelope(event("a")))
    sent = sender.signed(body)
    assert await sender.post(body, sent) == no(401, "bad_credentials")
    assert await sender.post(body, sent | {"Authorization": "Bearer another-token"}) == ok(1)


async def test_a_replay_is_409_and_counts_for_nothing(start: Callable[..., Sender], settings: ReceiverSettings) -> None:
    sender = start()
    body = canonical(envelope(event("a")))
    sent = sender.signed(body, request_id="req_1")
    assert await sender.post(body, sent) == ok(1)
    before = dump(settings.db_path)
    assert await sender.post(body, sent) == no(409, "replayed_request")
    assert await sender.send(event("a"), request_id="req_1", now=NOW + 5) == no(409, "replayed_request")
    assert dump(settings.db_path) == before
    assert await sender.send(event("b"), request_id="req_1") == no(400, "reused_request_id")


async def test_a_replay_is_known_until_its_timestamp_is_stale(start: Callable[..., Sender]) -> None:
    sender = start()
    body = canonical(envelope(event("a")))
    sent = sender.signed(body, now=NOW + 299)
    assert await sender.post(body, sent) == ok(1)
    for later, expected in ((598, no(409, "replayed_request")), (600, no(401, "stale_timestamp"))):
        sender.now = NOW + later
        assert await sender.post(body, sent) == expected


async def test_restart_keeps_what_was_seen(start: Callable[..., Sender]) -> None:
    first = start()
    body = canonical(envelope(event("a")))
    sent = first.signed(body)
    assert await first.post(body, sent) == ok(1)
    second = start()
    assert await second.post(body, sent) == no(409, "replayed_request")
    assert (await second.send(event("a")))[1]["error"] == "duplicate_batch"


async def test_all_duplicates_are_409_a_mix_is_207(start: Callable[..., Sender]) -> None:
    sender = start()
    await sender.send(event("a"), event("b"))
    status, answer = await sender.send(event("a"), event("b", emitted_at="2026-02-22T13:00:00Z"))
    assert status == 409
    assert answer == {
        "ok": False,
        "accepted": 0,
        "rejected": 2,
        "errors": [{"index": 0, "error": "duplicate_event"}, {"index": 1, "error": "duplicate_event"}],
        "error": "duplicate_batch",
    }
    status, answer = await sender.send(event("c"), {"event_id": "d"}, event("a"), event("c"), event("e"))
    assert (status, answer["ok"], answer["accepted"], answer["rejected"]) == (207, False, 2, 3)
    words = ["invalid_schema", "duplicate_event", "duplicate_event"]
    assert answer["errors"] == [{"index": i, "error": w} for i, w in zip((1, 2, 3), words, strict=True)]


async def test_the_ledger_tells_every_delivery(start: Callable[..., Sender], settings: ReceiverSettings) -> None:
    sender = start()
    await sender.send(event("a", emitted_at="2026-02-22T12:00:01Z"))
    await sender.send(event("a", emitted_at="2026-02-22T12:00:21Z"), None)
    lines = ledger_of(settings)
    assert [line["verdict"] for line in lines] == ["accepted", "duplicate", "invalid"]
    assert lines[0]["body_sha256"] == lines[1]["body_sha256"]
    assert lines[0]["emitted_at"] != lines[1]["emitted_at"]
    token = {"Authorization": f"Bearer {settings.secret}"}
    assert (await sender.http.get("/stats", headers=token)).json() == {"accepted": 1, "deliveries": 2, "invalid": 1}


async def test_two_identical_batches_at_once_are_accepted_once(start: Callable[..., Sender]) -> None:
    sender = start()
    answers = await asyncio.gather(*(sender.send(event("a"), event("b")) for _ in range(8)))
    assert sorted(status for status, _ in answers) == [200] + [409] * 7
    assert sum(answer["accepted"] for _, answer in answers) == 2


async def test_one_request_twice_at_once_is_handled_once(start: Callable[..., Sender]) -> None:
    sender = start()
    body = canonical(envelope(event("a")))
    sent = sender.signed(body)
    answers = await asyncio.gather(*(sender.post(body, sent) for _ in range(8)))
    assert answers.count(ok(1)) == 1
    assert answers.count(no(409, "replayed_request")) == 7


async def test_too_long_by_its_length(start: Callable[..., Sender]) -> None:
    sender = start(max_body_bytes=1000)
    body = canonical(envelope(event("a"), pad="x" * 1000))
    assert await sender.post(body, sender.signed(body)) == no(413, "body_too_large")


async def test_too_long_while_streaming(start: Callable[..., Sender]) -> None:
    sender = start(max_body_bytes=1000)
    pulled = 0

    async def drip() -> AsyncIterator[bytes]:
        nonlocal pulled
        for _ in range(1000):
            pulled += 100
            yield b"x" * 100

    response = await sender.http.post(INGEST_PATH, content=drip(), headers=sender.signed(b"x"))
    assert (response.status_code, response.json()) == no(413, "body_too_large")
    assert pulled <= 3000


async def test_an_unsigned_stream_is_never_collected(start: Callable[..., Sender]) -> None:
    async def drip() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x" * 100

    response = await start().http.post(INGEST_PATH, content=drip())
    assert (response.status_code, response.json()) == no(401, "missing_header")
    assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_a_slow_body_is_408(start: Callable[..., Sender]) -> None:
    sender = start(body_timeout_seconds=0.02)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    response = await sender.http.post(INGEST_PATH, content=never(), headers=sender.signed(b"{"))
    assert (response.status_code, response.json()) == no(408, "body_timeout")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", no(400, "invalid_json")),
        (b"[" * 50_000, no(400, "invalid_json")),
        (b'{"n":NaN}', no(400, "invalid_json")),
        (b"[]", no(400, "invalid_envelope")),
        (canonical(envelope(batch_id=1)), no(400, "invalid_envelope")),
        (canonical(envelope(*[EVENT] * 101)), no(413, "too_many_events")),
    ],
)
async def test_signed_nonsense_is_refused_and_not_remembered(
    start: Callable[..., Sender], settings: ReceiverSettings, body: bytes, expected: Answer
) -> None:
    sender = start()
    before = dump(settings.db_path)
    sent = sender.signed(body)
    assert await sender.post(body, sent) == expected
    assert await sender.post(body, sent) == expected
    assert dump(settings.db_path) == before


async def test_only_allowed_instances(start: Callable[..., Sender]) -> None:
    assert await start(allowed_instances=frozenset({"other"})).send(event("a")) == no(403, "instance_not_allowed")
    assert await start(allowed_instances=frozenset({"csi-vps-01"})).send(event("a")) == ok(1)


async def test_big_numbers_and_odd_text_are_kept(start: Callable[..., Sender], settings: ReceiverSettings) -> None:
    subject = {"n": 10**30, "t": "NUL \x00 RTL \u202e lone \ud800 \u2028", "deep": [[[{}]]]}
    assert await start().send(event("a", subject=subject)) == ok(1)
    with sqlite3.connect(settings.db_path) as db:
        ((text,),) = db.execute("SELECT event_json FROM signals").fetchall()
    db.close()
    assert json.loads(text)["subject"] == subject


async def test_switched_off_is_503_for_everybody(start: Callable[..., Sender]) -> None:
    sender = start(enabled=False)
    response = await sender.http.post(INGEST_PATH, content=b"x")
    assert response.status_code == 503
    assert response.json() == {"ok": False, "error": "ingest_disabled", "retry_after_seconds": 60}
    assert response.headers["Retry-After"] == "60"
    assert (await sender.http.get("/readyz")).status_code == 503
    assert (await sender.http.get("/healthz")).status_code == 200


async def test_too_many_at_once_is_503_and_passes(start: Callable[..., Sender]) -> None:
    sender = start(max_in_flight=1)
    release = asyncio.Event()
    body = canonical(envelope(event("a")))

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        started.set()
        await release.wait()
        yield body[10:]

    started = asyncio.Event()
    first = asyncio.create_task(sender.http.post(INGEST_PATH, content=slowly(), headers=sender.signed(body)))
    await started.wait()
    status, answer = await sender.send(event("b"))
    assert (status, answer) == (503, {"ok": False, "error": "ua_overloaded", "retry_after_seconds": 5})
    release.set()
    assert (await first).json()["accepted"] == 1
    assert await sender.send(event("b")) == ok(1)


async def test_a_locked_database_is_503_and_the_same_events_may_come_again(
    start: Callable[..., Sender], settings: ReceiverSettings
) -> None:
    sender = start(busy_timeout_seconds=0.05)
    blocker = sqlite3.connect(settings.db_path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    status, answer = await sender.send(event("a"))
    assert (status, answer) == (503, {"ok": False, "error": "storage_busy", "retry_after_seconds": 5})
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await sender.send(event("a")) == ok(1)


async def test_anything_unforeseen_is_a_bare_500(
    start: Callable[..., Sender], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError(f"holding {SECRET}")

    sender = start()
    monkeypatch.setattr(app_module, "read_batch", explode)
    assert await sender.send(event("a")) == no(500, "internal_error")
    assert any("request failed" in line and "explode" in line for line in said)
    assert SECRET not in "".join(said)


async def test_other_doors_are_small_json(start: Callable[..., Sender]) -> None:
    sender = start()
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
        response = await sender.http.request(method, INGEST_PATH)
        assert response.status_code == 405
        assert response.headers["Allow"] == "POST"
    assert (await sender.http.post(f"{INGEST_PATH}/")).json() == {"ok": False, "error": "not_found"}
    assert (await sender.http.get("/")).status_code == 404
    assert (await sender.http.get("/readyz")).json() == {"ok": True}


async def test_stats_are_numbers_for_the_senders_token(
    start: Callable[..., Sender], settings: ReceiverSettings
) -> None:
    """A client on this machine may be a proxy that forwards for everybody, and does not show it."""
    sender = start()
    token = {"Authorization": f"Bearer {settings.secret}"}
    assert (await sender.http.get("/stats", headers=token)).json() == {"accepted": 0, "deliveries": 0, "invalid": 0}
    for other in ({}, {"Authorization": "Bearer wrong"}, {"X-Forwarded-For": "127.0.0.1"}):
        assert (await sender.http.get("/stats", headers=other)).status_code == 404


async def test_no_secret_and_no_input_in_logs_or_answers(start: Callable[..., Sender], said: list[str]) -> None:
    sender = start(previous_secret="previous-canary-1", bearer_token="bearer-canary-1")
    hostile = "hostile-canary-\x1b[2J-{extra}"
    body = canonical(envelope(event("a", subject={"title": hostile}), {"event_id": hostile}))
    sent = sender.signed(body) | {"Authorization": "Bearer bearer-canary-1"}
    answers = [
        await sender.post(body, sent),
        await sender.post(body, sent),
        await sender.post(body + b" ", sent | {"X-CSI-Request-ID": "hostile-canary"}),
        await sender.post(body, sent | {"Authorization": f"Bearer {SECRET} hostile-canary"}),
        await sender.post(body, sender.signed(b"{", secret="bearer-canary-1")),
    ]
    assert [status for status, _ in answers] == [207, 409, 401, 401, 401]
    everything = "".join(said) + json.dumps(answers)
    for canary in (SECRET, "previous-canary-1", "bearer-canary-1", "hostile-canary"):
        assert canary not in everything


async def test_a_thousand_knocks_are_one_log_line(start: Callable[..., Sender], said: list[str]) -> None:
    sender = start()
    for _ in range(100):
        await sender.post(b"{}", {"Authorization": "Bearer wrong"})
    assert len(said) == 1
    sender.now += 11
    await sender.post(b"{}", {"Authorization": "Bearer wrong"})
    assert len(said) == 2


async def test_request_ids_from_the_ingester_are_accepted(start: Callable[..., Sender]) -> None:
    assert await start().send(event("a"), request_id=new_request_id()) == ok(1)
