"""Times, numbers and states as text, for the templates. Pure."""

import re
from collections.abc import Callable
from typing import Any

from markupsafe import Markup, escape

from csi import clock
from csi.emitter.failure_cause import without_code
from csi.logs import redact
from csi.web import svg_charts

HEALTH = {
    "healthy": "polled as planned",
    "backing_off": "the last poll failed; it is retried soon",
    "throttled": "its host rate-limited us",
    "outage": "many watches of its host fail",
    "suspect": "it fails while other watches of its host work",
    "dead": "the API reports that it is gone; polling continues",
    "paused": "paused by the operator",
    "new": "not polled yet",
    "quiet": "no news for longer than usual",
    "unknown": "the worker is not alive, so nothing is known of it",
}
CAUSES = {
    "transient": "three attempts failed",
    "destination": "the receiver or its credentials are wrong",
    "event": "the receiver refused this event",
    "malformed": "the item could not be normalized",
    "crash": "processing it ended the worker three times",
}
STATE_COLORS = {
    "good": "good", "failed": "bad",
    "delivered": "good", "healthy": "good", "accepting": "good", "replayed": "good", "met": "good", "closed": "good",
    "pending": "wait", "in_flight": "wait", "inbox": "wait", "replaying": "wait", "backing_off": "warn",
    "throttled": "warn", "outage": "warn", "suspect": "warn", "partial": "warn", "paused": "idle", "idle": "idle",
    "discarded": "idle", "removed": "idle", "new": "wait", "quiet": "idle", "unknown": "warn",
    "dead": "bad", "quarantined": "bad", "malformed": "bad", "open": "bad",
    "circuit_open": "bad", "half_open": "bad", "missed": "bad", "transient": "warn", "refused": "bad",
    "endpoint_fault": "bad", "sending": "wait", "interrupted": "warn", "other_form": "idle", "probe_failed": "bad",
    "untested": "idle", "test_ok": "good", "test_failed": "bad",
}  # fmt: skip
"""The colour of a state."""

SOURCES = {"youtube_playlist": "playlist", "youtube_channel_rss": "channel"}


def ago(moment: float | None, now: float) -> str:
    """`42 s ago`, `in 5 min`; a dash for never."""
    if moment is None:
        return "–"
    seconds = now - moment
    if abs(seconds) < 1:
        return "now"
    text = span_words(float(round(abs(seconds))) if abs(seconds) < 10 else abs(seconds)).replace(".0 s", " s")
    return f"{text} ago" if seconds > 0 else f"in {text}"


def span_words(seconds: float | None) -> str:
    """`0.4 s`, `42 s`, `12 min`, `3 h`, `4 d`: a larger unit from two of it on."""
    if seconds is None:
        return "–"
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def whole_seconds(seconds: float) -> str:
    """`30 s`, `5 min`, `1 h`: configured lengths of time."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:g} s" if seconds < 100 else f"{seconds:.0f} s"


def stamp(moment: float | None) -> str:
    """`2026-02-22 12:00:05 UTC`."""
    return "never" if moment is None else clock.iso(moment).replace("T", " ").replace("Z", " UTC")


def percent(share: float | None) -> str:
    """Rounded down, so that a missed target is never shown as met."""
    if share is None:
        return "–"
    return f"{int(share * 1000) / 10:g} %"


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def code_parts(text: str) -> list[tuple[str, bool]]:
    """The text in parts; True for what stands in backticks."""
    parts = re.split(r"`([^`]+)`", text)
    return [(part, place % 2 == 1) for place, part in enumerate(parts) if part]


def color(word: str) -> str:
    return STATE_COLORS.get(word, "idle")


def plain(word: str) -> str:
    return word.replace("_", " ")


_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def with_times(text: str | None) -> Markup:
    """A sentence as HTML, whose times the script of the pages shows as local ones. Without it they are in UTC.

    Redacted here: the templates redact plain texts only.
    """
    said, made, end = redact(text or ""), Markup(), 0
    for found in _STAMP.finditer(said):
        made += escape(said[end : found.start()])
        made += Markup('<time data-at datetime="{0}" title="{0}">{0}</time>').format(found[0])
        end = found.end()
    return made + escape(said[end:])


FILTERS: dict[str, Callable[..., Any]] = {
    "span": span_words,
    "interval": whole_seconds,
    "stamp": stamp,
    "percent": percent,
    "color": color,
    "plain": plain,
    "code_parts": code_parts,
    "without_code": without_code,
    "short": svg_charts.short,
    "with_times": with_times,
    "iso": clock.iso,
    "merged": lambda given, **more: {**given, **more},
    "kind": lambda source: SOURCES.get(source, plain(source)),
}
