"""A Net that answers from a function or a list, and records the requests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from csi.adapters.base import Tools
from csi.errors import SourceError
from csi.net import HttpHeaders, HttpResponse


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class StubNet:
    """`answer` is called for each request; a list of responses is used up in order."""

    answer: Callable[[Asked], HttpResponse] | list[HttpResponse]
    asked: list[Asked] = field(default_factory=list)

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, **_: Any) -> HttpResponse:
        return self._reply(url, dict(headers or {}))

    def post(self, url: str, *, body: bytes, headers: Mapping[str, str], **_: Any) -> HttpResponse:
        return self._reply(url, dict(headers), body)

    def _reply(self, url: str, headers: dict[str, str], body: bytes = b"") -> HttpResponse:
        parts = urlsplit(url)
        asked = Asked(parts.path, dict(parse_qsl(parts.query)), headers, body)
        self.asked.append(asked)
        return self.answer.pop(0) if isinstance(self.answer, list) else self.answer(asked)

    def count(self, end: str) -> int:
        return sum(asked.path.endswith(end) for asked in self.asked)


def reply(document: Any = None, status: int = 200, **headers: str) -> HttpResponse:
    """A response; bytes as they are, any other value as JSON."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return HttpResponse(
        status, HttpHeaders({name.replace("_", "-"): value for name, value in headers.items()}), body, "http://x/"
    )


def refusal(reason: str, status: int = 403, **more: Any) -> HttpResponse:
    """An error response of the Data API; its messages contain HTML, as the real ones do."""
    message = f'The <a href="/x">{reason}</a> <code>failed</code>.'
    entry = {"message": message, "domain": "youtube", "reason": reason}
    return reply({"error": {"code": status, "message": message, "errors": [entry], **more}}, status)


class Ledger:
    """Counts booked units; `charge` raises when `left` is used up, as the real budget does."""

    def __init__(self, left: int = 10_000) -> None:
        self.left, self.used, self.exhausted = left, 0, 0

    def charge(self, units: int) -> None:
        if units > self.left:
            raise SourceError("the budget is spent", kind="budget")
        self.left -= units
        self.used += units

    def exhaust(self) -> None:
        self.exhausted += 1


def tools(net: Any, *, now: float = 1_771_761_600.0, key: str | None = "the-key", **more: Any) -> Tools:
    """Tools with this net, and an API key unless it is None."""
    secrets = more.pop("secrets", {"YOUTUBE_API_KEY": key} if key else {})
    return Tools(net=net, now=more.pop("clock", lambda: now), secret=secrets.get, **more)
