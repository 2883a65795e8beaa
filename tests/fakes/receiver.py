"""A receiver with scripted responses that records every request: `with ScriptedReceiver(503, 503) as ua:`."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

SECRET = "csi-test-secret"

ScriptedReply = tuple[int, dict[str, Any] | bytes, dict[str, str]]
Script = int | ScriptedReply | Callable[["ReceivedRequest"], ScriptedReply]


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived."""

    headers: dict[str, str]
    body: bytes
    envelope: dict[str, Any] = field(default_factory=dict)

    @property
    def event_ids(self) -> list[str]:
        return [event["event_id"] for event in self.envelope["events"]]


def accept(request: ReceivedRequest) -> ScriptedReply:
    return 200, {"ok": True, "accepted": len(request.event_ids), "rejected": 0, "errors": []}, {}


class ScriptedReceiver:
    """Each request takes the next answer of the script; after its end every request is accepted."""

    def __init__(self, *script: Script, then: Script = accept) -> None:
        self.script = list(script)
        self.then = then
        self.requests: list[ReceivedRequest] = []
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, answer, extra = receiver._answer(ReceivedRequest(headers, body, json.loads(body)))
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response_only(status)  # no Date: a test moves its clock by hand
                for name, value in {"Content-Length": str(len(data)), **extra}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/api/v1/signals/ingest"

    def _answer(self, request: ReceivedRequest) -> ScriptedReply:
        with self._lock:
            self.requests.append(request)
            step = self.script.pop(0) if self.script else self.then
        if isinstance(step, int):
            return step, {"ok": 200 <= step < 300}, {}
        return step(request) if callable(step) else step

    @property
    def delivered(self) -> list[str]:
        """Event ids of all requests, in order of arrival."""
        return [event_id for request in self.requests for event_id in request.event_ids]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
