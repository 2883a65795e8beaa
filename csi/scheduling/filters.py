"""Which items of a watch are wanted. Pure (decision 0042, 20)."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from csi.config.settings import KINDS
from csi.patterns import PatternRefused, TitlePattern, compile_pattern, judge

_BECOMES = {"upcoming": frozenset({"live", "video", "short"}), "live": frozenset({"video"})}
"""Temporary kinds: a premiere that is filtered out becomes a video, which may be wanted."""


@dataclass(frozen=True)
class Filters:
    """What a watch lets through. The default lets everything through."""

    include: tuple[str, ...] = KINDS
    title_match: str | None = None
    title_not: str | None = None
    min_seconds: float | None = None
    max_seconds: float | None = None


@dataclass(frozen=True)
class Facts:
    """What is known of an item. None: not known, and what is not known never keeps an item out."""

    kind: str | None = None
    title: str | None = None
    duration_seconds: float | None = None


Verdict = Literal["wanted", "unwanted", "not_yet"]
"""`unwanted`: the item becomes no event, and its key is remembered. `not_yet`: the key is not remembered, because the
kind of the item may change."""


def wanted(filters: Filters, facts: Facts) -> Verdict:
    kind, seconds, include = facts.kind, facts.duration_seconds, filters.include
    if kind in KINDS and kind not in include:
        return "unwanted" if _BECOMES.get(kind, frozenset()).isdisjoint(include) else "not_yet"
    if facts.title is not None:
        match, excluded = _pattern(filters.title_match), _pattern(filters.title_not)
        if (match and not match.matches(facts.title)) or (excluded and excluded.matches(facts.title)):
            return "unwanted"
    too_short = seconds is not None and filters.min_seconds is not None and seconds < filters.min_seconds
    too_long = seconds is not None and filters.max_seconds is not None and seconds > filters.max_seconds
    return "unwanted" if too_short or too_long else "wanted"


def facts_of(subject: dict[str, Any]) -> Facts:
    """The facts in an event's subject. A stream that runs or is announced has no final duration: it is ignored."""
    kind, title, seconds = subject.get("kind"), subject.get("title"), subject.get("duration_seconds")
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and kind not in _BECOMES
    return Facts(
        kind=kind if isinstance(kind, str) else None,
        title=title if isinstance(title, str) else None,
        duration_seconds=float(seconds) if known and seconds is not None else None,
    )


@lru_cache(maxsize=256)
def load(text: str) -> Filters:
    """The filters as a watch stores them (`filters_json`)."""
    stored = json.loads(text)
    title = stored.get("title") or {}
    return Filters(
        include=tuple(stored.get("include", KINDS)),
        title_match=title.get("match"),
        title_not=title.get("not"),
        min_seconds=stored.get("min_duration_seconds"),
        max_seconds=stored.get("max_duration_seconds"),
    )


def refused_patterns(stored: Iterable[str]) -> dict[str, str]:
    """The stored filters (`filters_json`) with a title pattern that is refused, and why. One trial for all of them."""
    used = {text: [load(text).title_match, load(text).title_not] for text in stored}
    verdicts = judge({pattern for patterns in used.values() for pattern in patterns if pattern})
    faults = {text: [verdicts[pattern] for pattern in patterns if pattern] for text, patterns in used.items()}
    return {text: str(one) for text, found in faults.items() for one in found if isinstance(one, PatternRefused)}


def _pattern(text: str | None) -> TitlePattern | None:
    """None also for a pattern that an earlier release stored and this one refuses: it keeps no item out."""
    try:
        return compile_pattern(text) if text else None
    except PatternRefused:
        return None
