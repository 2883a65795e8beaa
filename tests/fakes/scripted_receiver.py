"""A receiver with scripted answers that records every request and keeps ledger U: `ScriptedReceiver(503, 429)`."""

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from tests.fakes.raw_server import Close, Drip, Hang, RawRequest, RawServer, Reset, Send, Step, answer
from tests.faults.independent import objection
from tests.faults.oracle import Taken, fingerprint

SECRET = "csi-test-secret"


@dataclass(frozen=True)
class Cut:
    """Send only the first `at` bytes of the answer, then end the connection, by a reset unless `orderly`."""

    at: int = 0
    orderly: bool = False


@dataclass(frozen=True)
class Slow:
    """Wait before the answer, then send `size` bytes at a time with a pause between them."""

    seconds: float = 0.0
    size: int = 65_536
    pause: float = 0.0
    arrives: bool = True
    """The sender still waits when the last byte is sent."""


Wire = Cut | Slow


@dataclass(frozen=True)
class Reply:
    """What the receiver does with a request. `takes` None: the status decides which events it takes."""

    status: int = 200
    body: bytes = b'{"ok": true}'
    headers: tuple[tuple[str, str], ...] = ()
    takes: frozenset[int] | None = None
    wire: Wire = field(default_factory=Slow)

    def on(self, wire: Wire) -> "Reply":
        return replace(self, wire=wire)


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived."""

    at: float
    headers: dict[str, str]
    body: bytes
    envelope: dict[str, Any]
    objection: str | None

    @property
    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.envelope.get("events", [])
        return found

    @property
    def event_ids(self) -> list[str]:
        return [event["event_id"] for event in self.events]


PlainReply = tuple[int, dict[str, Any] | bytes, dict[str, str]]
"""Status, body and headers: a Reply without faults on the wire."""

Behaviour = Callable[[ReceivedRequest], Reply | PlainReply] | Reply | PlainReply | int


def json_reply(status: int, body: Any = None, **headers: str) -> Reply:
    """An answer in JSON; `retry_after="5"` becomes a header."""
    document = {"ok": 200 <= status < 300} if body is None else body
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Reply(status, data, tuple((name.replace("_", "-"), value) for name, value in headers.items()))


def accept(request: ReceivedRequest) -> Reply:
    count = len(request.events)
    return json_reply(200, {"ok": True, "accepted": count, "rejected": 0, "errors": []})


def for_events(*statuses: int) -> Callable[[ReceivedRequest], Reply]:
    """Each request with events gets the next status; empty batches, and what comes after the last, are accepted."""
    left = list(statuses)
    return lambda request: json_reply(left.pop(0)) if request.events and left else accept(request)


class ScriptedReceiver:
    """Each request uses up one behaviour of the script; after the last, `then`. `taken` is ledger U."""

    def __init__(
        self,
        *script: Behaviour,
        then: Behaviour = accept,
        now: Callable[[], float] = time.time,
        secret: str = SECRET,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script, self.then, self.now, self.secret = list(script), then, now, secret
        self.requests: list[ReceivedRequest] = []
        self.taken: list[Taken] = []
        self.in_flight = self.peak = 0
        self._lock = threading.Lock()
        self._tls = tls
        self._server = RawServer(self._serve, tls=tls)
        self.url = f"{self._server.url}/api/v1/signals/ingest"

    @property
    def event_ids(self) -> list[str]:
        """Event ids of all requests, in order of arrival, whether they were taken or not."""
        return [event_id for request in self.requests for event_id in request.event_ids]

    @property
    def objections(self) -> list[str]:
        return [request.objection for request in self.requests if request.objection]

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._server.stop()

    def start_again(self) -> None:
        """Listen again on the same port."""
        self._server = RawServer(self._serve, tls=self._tls, port=self._server.port)

    def _serve(self, asked: RawRequest) -> list[Step]:
        request = self._read(asked)
        with self._lock:
            self.requests.append(request)
            behaviour = self.script.pop(0) if self.script else self.then
        reply = self._reply(behaviour, request)
        with self._lock:
            self._note(request, reply)
        return _steps(reply)

    def _read(self, asked: RawRequest) -> ReceivedRequest:
        try:
            envelope = json.loads(asked.body)
        except ValueError:
            envelope = {}
        return ReceivedRequest(
            self.now(), asked.headers, asked.body, envelope, objection(self.secret, asked.headers, asked.body)
        )

    def _reply(self, behaviour: Behaviour, request: ReceivedRequest) -> Reply:
        with self._lock:
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        try:
            chosen = behaviour(request) if callable(behaviour) else behaviour
            match chosen:
                case int():
                    return json_reply(chosen)
                case (status, body, headers):
                    return json_reply(status, body, **headers)
            return chosen
        finally:
            with self._lock:
                self.in_flight -= 1

    def _note(self, request: ReceivedRequest, reply: Reply) -> None:
        arrives = isinstance(reply.wire, Slow) and reply.wire.arrives
        for index in sorted(_takes(request, reply)):
            event = request.events[index]
            self.taken.append(
                Taken(
                    event["event_id"],
                    request.at,
                    request.envelope.get("batch_id", ""),
                    request.headers.get("x-csi-request-id", ""),
                    fingerprint(event),
                    arrives,
                )
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _takes(request: ReceivedRequest, reply: Reply) -> frozenset[int]:
    if reply.takes is not None:
        return reply.takes
    everything = frozenset(range(len(request.events)))
    if reply.status == 207:
        errors = json.loads(reply.body).get("errors", [])
        refused = {error["index"] for error in errors if error["error"] != "duplicate_event"}
        return everything - refused
    return everything if 200 <= reply.status < 300 or reply.status == 409 else frozenset()


def _steps(reply: Reply) -> list[Step]:
    data = answer(reply.status, reply.body, reply.headers)
    match reply.wire:
        case Cut(at, orderly):
            return [Send(data[:at]), Close() if orderly else Reset()]
        case Slow(seconds, size, pause):
            wait: list[Step] = [Hang(seconds)] if seconds else []
            return [*wait, Drip(data, size, pause) if pause else Send(data)]
