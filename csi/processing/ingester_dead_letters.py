"""Fetch the ingester's dead letters from its admin API. Its answer is untrusted: cut, cleaned and validated."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from csi import clock
from csi.errors import NetError
from csi.logs import redact
from csi.net import HttpLimits, HttpResponse, Net

LIMITS = HttpLimits(total=3.0, connect=1.0, max_body=512 * 1024, max_redirects=0)
MOST = 200
CACHE_SECONDS = 5.0
"""Seconds for which a list is reused: reloading the page must not load the ingester."""

_PROBLEMS = {
    401: "it rejected the token",
    403: "its admin API is disabled; set CSI_ADMIN_READ_TOKEN there",
    404: "it has no admin API: check ingester_url, and features.admin_api there",
    421: "it does not serve this host name; add the name to web.allowed_hosts there",
}


def _plain(value: Any) -> str:
    """One short line without secrets and control characters; empty for anything that is not text."""
    text = value if isinstance(value, str) else ""
    return redact(" ".join("".join(letter if letter.isprintable() else " " for letter in text[:2000]).split()))[:300]


def _moment(value: Any) -> float | None:
    """None for a text that is no time, or a time that cannot be formatted again."""
    try:
        moment = clock.parse(value) if isinstance(value, str) and len(value) < 40 else None
        return moment if moment is not None and clock.iso(moment) else None
    except (ValueError, OverflowError, OSError):
        return None


Line = Annotated[str, BeforeValidator(_plain)]


class EventDeadLetter(BaseModel):
    """One dead letter of the ingester."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)]
    event_id: Line = ""
    source: Line = ""
    destination: Line = ""
    cause: Line = ""
    error: Line = ""
    state: Line = ""
    retry_count: Annotated[int, Field(strict=True, ge=0, le=2**31)] = 0
    died_at: Annotated[float | None, BeforeValidator(_moment)] = None


@dataclass(frozen=True)
class IngesterDeadLetters:
    """The ingester's dead letters. `problem` says why the list is missing or incomplete; empty when it is whole."""

    letters: tuple[EventDeadLetter, ...] = ()
    total: int = 0
    problem: str = ""


@dataclass
class IngesterClient:
    """The client of the ingester's admin API, with a short cache."""

    net: Net
    url: str | None
    token: str | None = field(repr=False)
    now: Callable[[], float] = clock.now
    variable: str = "CSI_ADMIN_READ_TOKEN"
    _cache: dict[str, tuple[float, IngesterDeadLetters]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def letters(self, state: str) -> IngesterDeadLetters:
        """Never raises. `state` is `open` or `all`."""
        if self.url is None:
            return IngesterDeadLetters(problem="ingester_url is not set in processing.yaml")
        if self.token is None:
            return IngesterDeadLetters(problem=f"{self.variable} is not set: set it to the ingester's read-only token")
        # The lock spans the request: threads that arrive meanwhile wait for it and use its result.
        with self._lock:
            at, found = self._cache.get(state, (float("-inf"), IngesterDeadLetters()))
            if 0 <= self.now() - at < CACHE_SECONDS:
                return found
            headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
            url = f"{self.url}/admin/dlq?state={state}&limit={MOST}"
            try:
                found = read_dead_letters(self.net.get(url, headers=headers, limits=LIMITS))
            except NetError as error:
                found = IngesterDeadLetters(problem=f"the request failed: {_plain(str(error))}")
            self._cache[state] = (self.now(), found)
            return found


def read_dead_letters(answer: HttpResponse) -> IngesterDeadLetters:
    if answer.status != 200:
        return IngesterDeadLetters(problem=_PROBLEMS.get(answer.status, f"it answered {answer.status}"))
    data = answer.json_object() or {}
    rows = data.get("letters")
    if not isinstance(rows, list):
        return IngesterDeadLetters(problem="its answer is not a list of dead letters")
    letters = []
    for row in rows[:MOST]:
        with suppress(ValidationError, RecursionError):
            letters.append(EventDeadLetter.model_validate(row))
    invalid = len(rows[:MOST]) - len(letters)
    total = data["total"] if isinstance(data.get("total"), int) else len(letters)
    problem = f"{invalid} of its rows are invalid" if invalid else ""
    return IngesterDeadLetters(tuple(letters), min(max(total, len(letters)), 10**9), problem)
