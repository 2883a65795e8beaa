"""Gaps: a feed lists only items that are new to us, so older ones may be missing. Read them from the API, or log it."""

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from csi import clock
from csi.adapters.base import Position, RawEvent, ReadResult
from csi.errors import SourceError
from csi.logs import log
from csi.runtime import Runtime
from csi.store import counters, dedupe, watches
from csi.store.models import Watch

RETRY_SECONDS = 600.0
GIVE_UP_SECONDS = 7 * 86_400.0
"""A gap that cannot be filled (no key, no budget, the API is unreachable) is retried for a week; its note stays."""

NOT_POSSIBLE = "the API could not be used (no key, or no budget)"


@dataclass(frozen=True)
class Gap:
    """Items may exist that were published between the last good read and the window that was seen."""

    since: float
    until: float
    tried_at: float | None = None


@dataclass(frozen=True)
class GapResult:
    """The items that were found in the gap, and the columns to change on the watch."""

    items: tuple[RawEvent, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)


def fill(rt: Runtime, watch: Watch, position: Position, reading: ReadResult, now: float, *, is_new: bool) -> GapResult:
    """Look for a gap, and read its items from the API if there is one. `is_new`: none of the listed items is known."""
    gap = _find(watch, now, unknown=is_new and reading.window_full)
    if gap is None:
        return GapResult()
    asked = replace(position, known=partial(_known_before, gap.until), emits=None)
    try:
        found, why = rt.adapter(watch.source).fill_gap(asked, gap.since), NOT_POSSIBLE
    except SourceError as error:
        found, why = None, str(error)
    return _close_gap(watch, gap, found) if found is not None else _keep_open(watch, gap, why, now)


def _find(watch: Watch, now: float, *, unknown: bool) -> Gap | None:
    old = _load(watch.gap_json)
    if watch.last_success_at is None or watch.first_read_at is None:
        return None
    if unknown:
        return Gap(old.since if old else watch.last_success_at, now)
    if old is None or (old.tried_at is not None and 0 <= now - old.tried_at < RETRY_SECONDS):
        return None
    return old


def _close_gap(watch: Watch, gap: Gap, found: ReadResult) -> GapResult:
    log.info("gap is filled", source=watch.source, watch=watch.ref, seen=len(found.items), whole=not found.window_full)
    counters.add("gaps", source=watch.source, label="filled")
    note = _note(gap, "there were more than the API was asked for") if found.window_full else None
    return GapResult(found.items, {"gap_json": None, "note": note})


def _keep_open(watch: Watch, gap: Gap, why: str, now: float) -> GapResult:
    if gap.tried_at is None:
        since = clock.iso(gap.since)
        log.warning("items may have been missed", source=watch.source, watch=watch.ref, since=since, error=why)
        counters.add("gaps", source=watch.source, label="open")
    kept = now - gap.until < GIVE_UP_SECONDS
    again = json.dumps({"since": gap.since, "until": gap.until, "tried_at": now}) if kept else None
    return GapResult(changes={"gap_json": again, "note": _note(gap, why)})


def _note(gap: Gap, why: str) -> str:
    text = f"items may have been missed between {clock.iso(gap.since)} and {clock.iso(gap.until)}: {why}"
    return text[: watches.ERROR_TEXT]


def _known_before(moment: float, keys: Any) -> set[str]:
    return dedupe.known_before(list(keys), moment)


def _load(text: str | None) -> Gap | None:
    return Gap(**json.loads(text)) if text else None
