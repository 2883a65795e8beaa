"""The result of one check, and its remedy."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Finding:
    """Every warning and failure has a remedy; text in backticks is a command."""

    check: str
    level: Level
    text: str
    remedy: str | None = None
    problem: str | None = None
    """The id of the problem of `csi status` that it reports."""
    runbook: str | None = None
    """The anchor of the section of the runbook for that problem."""
