"""Scripted providers on loopback: an AssemblyAI and a chat endpoint that count what they billed."""

import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.fakes.raw_server import Close, Hang, RawRequest, RawServer, Script, Send, answer

LOST = "lost"
"""The request is carried out, but its response is lost."""
HANG = "hang"
"""The request is never answered."""

Answer = tuple[int, dict[str, Any] | bytes, dict[str, str]]
Fault = int | str | Answer


class ScriptedServer:
    """A small server; `faults` maps the end of a path to the scripted results of its next requests."""

    def __init__(self) -> None:
        self.faults: dict[str, list[Fault]] = {}
        self.always: dict[str, Fault] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._lock = threading.Lock()
        self._server = RawServer(self._serve)
        self.url = self._server.url

    def _serve(self, request: RawRequest) -> Script:
        with self._lock:
            found = self._handle(request.method, request.target, request.headers, request.body)
        if found is None:
            return [Close()]
        if found == HANG:
            return [Hang()]
        status, document, headers = found
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        return [Send(answer(status, data, headers.items()))]

    def _handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer | str | None:
        self.requests.append((method, path, headers))
        place = f"{method} {path.partition('?')[0]}"
        fault = self._fault(place)
        if isinstance(fault, int):
            return fault, {"error": f"scripted {fault}"}, {}
        if isinstance(fault, tuple) or fault == HANG:
            return fault
        answer = self.answer(method, path, headers, body)
        return None if fault == LOST else answer

    def _fault(self, place: str) -> Fault | None:
        for end, script in self.faults.items():
            if place.endswith(end) and script:
                return script.pop(0)
        return next((fault for end, fault in self.always.items() if place.endswith(end)), None)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        raise NotImplementedError

    def count(self, place: str) -> int:
        return sum(f"{method} {path.partition('?')[0]}".endswith(place) for method, path, _ in self.requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()


class FakeAssembly(ScriptedServer):
    """Every submitted job is finished at once and billed at submission, unless it fails."""

    def __init__(
        self, text: str = "Hello from the audio. It is a fine day.", *, waits: int = 0, error: str = ""
    ) -> None:
        super().__init__()
        self.text, self.waits, self.error = text, waits, error
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submissions: list[dict[str, Any]] = []
        self._uploads = 0

    @property
    def billed(self) -> int:
        return 0 if self.error else len(self.jobs)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        bare = path.partition("?")[0]
        if headers.get("authorization") != "assembly-key-1":
            return 401, {"error": "Authentication error, API token missing/invalid"}, {}
        if bare == "/v2/upload":
            self._uploads += 1
            return 200, {"upload_url": f"https://cdn.example/upload/{self._uploads}"}, {}
        if bare == "/v2/transcript" and method == "POST":
            return self._submit(json.loads(body))
        if bare == "/v2/transcript":
            rows = [{"id": name, "audio_url": job["audio_url"]} for name, job in reversed(self.jobs.items())]
            return 200, {"page_details": {}, "transcripts": rows[:100]}, {}
        return self._look(bare.rpartition("/")[2])

    def _submit(self, body: dict[str, Any]) -> Answer:
        self.submissions.append(body)
        name = f"job-{len(self.jobs) + 1}"
        self.jobs[name] = {"audio_url": body["audio_url"], "left": self.waits}
        return 200, {"id": name, "status": "queued"}, {}

    def _look(self, name: str) -> Answer:
        job = self.jobs.get(name)
        if job is None:
            return 404, {"error": "Not found"}, {}
        job["left"] -= 1
        if job["left"] >= 0:
            return 200, {"id": name, "status": "processing"}, {}
        if self.error:
            return 200, {"id": name, "status": "error", "error": self.error}, {}
        told = {"text": self.text, "audio_duration": 600, "language_code": "en_us", "confidence": 0.9}
        spoken = [{"speaker": "A", "start": 0, "text": self.text}]
        return 200, {"id": name, "status": "completed", "audio_url": job["audio_url"], "utterances": spoken, **told}, {}


GOOD = {"bullets": ["One."], "key_concepts": ["model"], "executive_summary": "All of it."}


class FakeChat(ScriptedServer):
    """A chat endpoint that bills every request it carries out; with `idempotent`, every key once."""

    def __init__(self, *, idempotent: bool = False, usage: bool = True) -> None:
        super().__init__()
        self.idempotent, self.usage = idempotent, usage
        self.billed = 0
        self.script: list[Callable[[], dict[str, Any]]] = []
        self._seen: dict[str, Answer] = {}

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        key = headers.get("idempotency-key", "")
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": "test-model-1"}]}, {}
        if self.idempotent and key in self._seen:
            return self._seen[key]
        self.billed += 1
        asked = json.loads(body)
        wants = "markdown" if '{"markdown"' in asked["messages"][0]["content"] else "summary"
        made = self.script.pop(0)() if self.script else reply({"markdown": "# Made"} if wants == "markdown" else GOOD)
        if not self.usage:
            made.pop("usage")
        self._seen[key] = (200, made, {})
        return self._seen[key]


def reply(content: Any, *, finish: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "test-model-1",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, "refusal": refusal}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    }
