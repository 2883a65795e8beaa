"""What a problem is: one shape for the ingester and processing, and for everything that shows problems."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

Severity = Literal["notice", "degraded", "down"]
"""`notice`: worth knowing; the verdict stays `ok`."""
Check = Literal["ready", "live", "alert"]


@dataclass(frozen=True)
class ProblemKind:
    """The same for every problem of this id."""

    check: str
    """The check of `csi doctor` that reports it."""
    runbook: str
    """The anchor of its section in ops/runbook.md."""
    page: str = "/"
    """The dashboard page that shows what is affected, `#` and the part of it: everything links to this one."""
    notifies: bool = True
    explains: tuple[str, ...] = ()
    """Ids of problems that follow from this one. While it exists, operators are not notified of those."""
    explains_own: tuple[str, ...] = ()
    """The same for problems of the same subject only: what one destination or provider has says nothing of others."""


def affected_words(events: int, is_word: str = "is", are_word: str = "are") -> str:
    """`1 event is affected`, `12 events were affected`."""
    return f"1 event {is_word} affected" if events == 1 else f"{events:,} events {are_word} affected"


PASSING_SECONDS = 180.0
"""How long a problem that may pass without an operator lasts before operators are notified."""


@dataclass(frozen=True)
class ProblemReport(ABC):
    """One thing that is wrong now. Id and subject together identify it over time.

    Health pages are open to everyone who can reach them, and notifications leave this machine. `what`, `cause` and
    `effect` therefore name sources, destinations and numbers, never a title, an id, a URL or the receiver's own words.
    A problem of single watches, which fails no health page, names them as they are configured.
    """

    id: str
    subject: str
    severity: Severity
    what: str
    effect: str
    remedy: str
    """What the operator does. Text in backticks is a command or a setting that can be copied."""
    since: float | None = None
    """When the first failure was seen; None: when the problem was first judged."""
    fails: tuple[Check, ...] = ()
    """The checks that this problem fails: `/readyz`, `/livez`, and `alert` where operators are notified."""
    cause: str | None = None
    """Why, in words: `connection refused`, `API key not valid`. None: `what` says it, or it is not known."""
    is_proven: bool = False
    """One answer proves it (401, a refused reload): operators are notified at once, not after PASSING_SECONDS."""
    events: int | None = None
    """How many events are affected; None: not known, or none."""
    incident: int | None = None
    """The number of the incident that the operator acknowledges; None: the problem ends when its cause does."""
    revision: int = 0
    """Rises when there is something new to report although the problem is the same: another watch is gone, or the
    certificate has two days left. Operators are then notified again."""
    explained_by: str | None = None
    """The id of the problem that this one follows from; None: it has a cause of its own, or that was not judged yet."""
    section: str | None = None
    """The anchor of a section in ops/runbook.md that fits this cause better than the one of its kind."""

    @property
    def runbook(self) -> str:
        return self.section or self.kind.runbook

    @property
    @abstractmethod
    def kind(self) -> ProblemKind: ...

    def explains(self, name: str, subject: str) -> bool:
        """Whether the problem of this id and subject follows from this one."""
        return name in self.kind.explains or (name in self.kind.explains_own and subject == self.subject)

    @property
    def what_and_why(self) -> str:
        return f"{self.what}: {self.cause}" if self.cause else self.what

    @property
    def affected(self) -> str | None:
        return affected_words(self.events) if self.events else None

    @property
    def where_to_read(self) -> str:
        """For a terminal: the section of the runbook, and the dashboard page that shows what is affected."""
        return f"more: csi docs runbook {self.runbook}; dashboard page {self.kind.page}"

    @property
    def commands(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.remedy)


Report = TypeVar("Report", bound=ProblemReport)


def explained_by(problem: ProblemReport, found: Iterable[ProblemReport]) -> str | None:
    """The id of the problem that this one follows from; None: it has a cause of its own."""
    return next((one.id for one in found if one.explains(problem.id, problem.subject)), None)


def to_notify(problems: Iterable[Report]) -> list[Report]:
    """The problems that operators are notified of: none that another one explains, so that one cause is one
    notification."""
    found = list(problems)
    return [one for one in found if "alert" in one.fails and explained_by(one, found) is None]
