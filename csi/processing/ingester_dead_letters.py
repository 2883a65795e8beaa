"""The sender's dead letters, asked for over its admin API: briefly, little, and nothing of the answer is believed."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from csi import clock
from csi.errors import NetError
from csi.logs import redact
from csi.net import HttpLimits, HttpResponse, Net

LIMITS = HttpLimits(total=3.0, connect=1.0, max_body=512 * 1024, max_redirects=0)
MOST = 200
REMEMBERED = 5.0
"""Seconds in which a second look asks nobody: a page that is loaded again and again must not be felt by the sender."""

_REFUSALS = {
    401: "it refused the token",
    403: "its admin API is closed; set CSI_ADMIN_READ_TOKEN there",
    404: "it has no admin API: is ingester_url right, and features.admin_api on?",
    421: "it does not serve this host name; add it to web.allowed_hosts there",
}


def _plain(value: Any) -> str:
    """One short line without secrets or control characters, whatever came."""
    text = value if isinstance(value, str) else ""
    return redact(" ".join("".join(letter if letter.isprintable() else " " for letter in text[:2000]).split()))[:300]


def _moment(value: Any) -> float | None:
    """None for whatever cannot also be written as a time again."""
    try:
        moment = clock.parse(value) if isinstance(value, str) and len(value) < 40 else None
        return moment if moment is not None and clock.iso(moment) else None
    except (ValueError, OverflowError, OSError):
        return None


Line = Annotated[str, BeforeValidator(_plain)]


class EventLetter(BaseModel):
    """One dead letter as the sender tells it."""

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
class Told:
    """What the sender said. `trouble` is a sentence where it said nothing of use."""

    letters: tuple[EventLetter, ...] = ()
    total: int = 0
    trouble: str = ""


@dataclass
class Sender:
    """The other side's list of dead letters, and the last one that was seen of it."""

    net: Net
    url: str | None
    token: str | None = field(repr=False)
    now: Callable[[], float] = clock.now
    variable: str = "CSI_ADMIN_READ_TOKEN"
    _seen: dict[str, tuple[float, Told]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def letters(self, state: str) -> Told:
        """Never raises. `state` is `open` or `all`."""
        if self.url is None:
            return Told(trouble="ingester_url is not set in processing.yaml")
        if self.token is None:
            return Told(trouble=f"{self.variable} is not set: it needs the sender's token that may only read")
        with self._lock:  # whoever comes meanwhile takes what the first one gets
            at, told = self._seen.get(state, (float("-inf"), Told()))
            if not 0 <= self.now() - at < REMEMBERED:
                told = self._ask(state)
                self._seen[state] = (self.now(), told)
            return told

    def _ask(self, state: str) -> Told:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        try:
            answer = self.net.get(f"{self.url}/admin/dlq?state={state}&limit={MOST}", headers=headers, limits=LIMITS)
        except NetError as error:
            return Told(trouble=f"it cannot be asked: {_plain(str(error))}")
        return read_letters(answer)


def read_letters(answer: HttpResponse) -> Told:
    if answer.status != 200:
        return Told(trouble=_REFUSALS.get(answer.status, f"it answered {answer.status}"))
    try:
        data = json.loads(answer.body)
    except (ValueError, RecursionError):
        data = None
    rows = data.get("letters") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        return Told(trouble="its answer is no list of dead letters")
    found = [letter for row in rows[:MOST] if (letter := _letter(row)) is not None]
    bad = len(rows[:MOST]) - len(found)
    total = data["total"] if isinstance(data.get("total"), int) else len(found)
    return Told(tuple(found), min(max(total, len(found)), 10**9), f"{bad} of its rows cannot be read" if bad else "")


def _letter(row: Any) -> EventLetter | None:
    try:
        return EventLetter.model_validate(row)
    except (ValidationError, RecursionError):
        return None
