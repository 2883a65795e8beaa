"""Which items of a watch are wanted. Pure (decision 0042, 20)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from csi.config.source_settings import KINDS
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
    fields: tuple["FieldRule", ...] = ()


@dataclass(frozen=True)
class FieldRule:
    """A rule about one field of the subject. Texts compare without case."""

    name: str
    only: frozenset[Any] = frozenset()
    never: frozenset[Any] = frozenset()
    least: float | None = None
    """Less is not wanted yet: a score grows."""

    def verdict(self, value: Any) -> "Verdict":
        """What is not known (None) never keeps an item out."""
        value = value.lower() if isinstance(value, str) else value
        if value is None:
            return "wanted"
        if (self.only and value not in self.only) or value in self.never:
            return "unwanted"
        return (
            "not_yet" if self.least is not None and isinstance(value, int | float) and value < self.least else "wanted"
        )


@dataclass(frozen=True)
class Facts:
    """What is known of an item. None: not known, and what is not known never keeps an item out."""

    kind: str | None = None
    title: str | None = None
    duration_seconds: float | None = None
    subject: Mapping[str, Any] = field(default_factory=dict, compare=False)


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
    if too_short or too_long:
        return "unwanted"
    verdicts = {rule.verdict(facts.subject.get(rule.name)) for rule in filters.fields}
    return "unwanted" if "unwanted" in verdicts else "not_yet" if "not_yet" in verdicts else "wanted"


def facts_of(subject: dict[str, Any]) -> Facts:
    """The facts in an event's subject. A stream that runs or is announced has no final duration: it is ignored."""
    kind, title, seconds = subject.get("kind"), subject.get("title"), subject.get("duration_seconds")
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and kind not in _BECOMES
    return Facts(
        kind=kind if isinstance(kind, str) else None,
        title=title if isinstance(title, str) else None,
        duration_seconds=float(seconds) if known and seconds is not None else None,
        subject=subject,
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
        fields=tuple(
            FieldRule(name, frozenset(rule.get("only", ())), frozenset(rule.get("never", ())), rule.get("least"))
            for name, rule in sorted((stored.get("fields") or {}).items())
        ),
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
