"""Confirmations: what a preview showed, kept until an agent confirms exactly that.

They are in memory only: after a restart, or ten minutes, the agent has to ask for a new preview. Nothing is lost by it.
"""

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from csi.web.responses import HttpProblem

SECONDS = 600.0
MOST = 1_000


@dataclass(frozen=True)
class Confirmation:
    """One previewed change. `exact` names the target itself, where the arguments only described it."""

    tool: str
    arguments: Mapping[str, Any]
    exact: Mapping[str, Any]
    expires_at: float


class Confirmations:
    """The changes that were previewed and not yet confirmed. A confirmation is used once."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._lock = threading.Lock()
        self._waiting: dict[str, Confirmation] = {}

    def add(self, tool: str, arguments: Mapping[str, Any], exact: Mapping[str, Any]) -> str:
        now, token = self._steady(), secrets.token_urlsafe(18)
        with self._lock:
            fresh = {name: one for name, one in self._waiting.items() if one.expires_at > now}
            while len(fresh) >= MOST:
                del fresh[next(iter(fresh))]
            self._waiting = fresh | {token: Confirmation(tool, arguments, exact, now + SECONDS)}
        return token

    def take(self, token: str, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The exact target of the preview. HttpProblem for another target than the previewed one: nothing is changed,
        and the confirmation stays valid for its own target."""
        with self._lock:
            found = self._waiting.get(token)
            if found is None or found.expires_at <= self._steady():
                raise HttpProblem(
                    409, "this confirmation is not known: it was used, or is older than 10 minutes. Call without "
                    "confirm for a new preview",
                )  # fmt: skip
            if (found.tool, found.arguments) != (tool, arguments):
                raise HttpProblem(
                    409, "this confirmation is for another target than the previewed one; nothing was changed. "
                    "Call without confirm to preview this target",
                )  # fmt: skip
            del self._waiting[token]
        return found.exact
