"""What an examination finds: one check, how it went, and how to mend it."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Finding:
    """A fault has a remedy. What stands in backticks in a remedy can be typed."""

    check: str
    level: Level
    text: str
    remedy: str | None = None
