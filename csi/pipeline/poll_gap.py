"""Gaps: a feed lists only items that are new to us, so older ones may be missing. Read them from the API, or log it."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from csi import clock
from csi.adapters.base import Position, RawEvent, ReadResult
from csi.errors import SourceError
from csi.logs import log
from csi.runtime import Runtime
from csi.scheduling.watch_health import watch_name, without_address
from csi.store import counters, dedupe, incidents, watches
from csi.store.models import Watch

RETRY_SECONDS = 600.0
GIVE_UP_SECONDS = 7 * 86_400.0
"""A gap that cannot be filled (no key, no budget, the API is unreachable) is retried for a week; its note stays."""

REPORT_SECONDS = 3600.0
"""A gap that the API may still fill is reported after this time; one that it cannot fill, at once."""

NO_KEY = "no key for the API is set, or the API refused it"
NO_BUDGET = "the API units of the day are used up"
TOO_MANY = "there were more items than the API was asked for"
ITEMS_MISSED = "items_missed"
_REMEDIES = {
    NO_KEY: "set `YOUTUBE_API_KEY`, so that such a gap is filled, or `via: both` for this watch",
    NO_BUDGET: "`csi quota` shows what uses the units; the gap is filled when units are left",
    TOO_MANY: "poll this watch more often: set its `poll_interval_seconds`; for Reddit, set OAuth credentials",
}


@dataclass(frozen=True)
class Gap:
    """Items may exist that were published between the last good read and the window that was seen."""

    since: float
    until: float
    tried_at: float | None = None
    reported: bool = False
    """An incident tells the operator of it."""


@dataclass(frozen=True)
class MissedItems:
    """Items of this window that became no events."""

    gap: Gap
    cause: str


@dataclass(frozen=True)
class GapResult:
    """The items that were found in the gap, and the columns to change on the watch."""

    items: tuple[RawEvent, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    missed: MissedItems | None = None
    """To report to the operator now."""
    is_closed: bool = False
    """The API listed every item of the gap: nothing was missed."""


def fill(rt: Runtime, watch: Watch, position: Position, reading: ReadResult, now: float, *, is_new: bool) -> GapResult:
    """Look for a gap, and read its items from the API if there is one. `is_new`: none of the listed items is known."""
    if reading.missed_since is not None:
        counters.add("gaps", source=watch.source, label="open")
        missed = Gap(reading.missed_since, now)
        return GapResult(changes={"note": _note(missed, TOO_MANY)}, missed=MissedItems(missed, TOO_MANY))
    if watch.last_success_at is None or watch.first_read_at is None:
        return GapResult()
    gap = Gap(**json.loads(watch.gap_json)) if watch.gap_json else None
    if is_new and reading.window_full:
        gap = Gap(gap.since if gap else watch.last_success_at, now)
    elif gap is None or (gap.tried_at is not None and 0 <= now - gap.tried_at < RETRY_SECONDS):
        return GapResult()
    asked = replace(position, known=lambda keys: dedupe.known_before(list(keys), gap.until), emits=None)
    try:
        found, why = rt.adapter(watch.source).fill_gap(asked, gap.since), NO_KEY
    except SourceError as error:
        found, why = None, NO_BUDGET if error.kind in ("quota", "budget") else str(error)
    if found is None:
        return _keep_open(watch, gap, why, now)
    log.info("gap is filled", source=watch.source, watch=watch.ref, seen=len(found.items), whole=not found.window_full)
    counters.add("gaps", source=watch.source, label="filled")
    if found.window_full:
        changes = {"gap_json": None, "note": _note(gap, TOO_MANY)}
        return GapResult(found.items, changes, MissedItems(gap, TOO_MANY))
    return GapResult(found.items, {"gap_json": None, "note": None}, is_closed=True)


def report(watch: Watch, result: GapResult, now: float) -> None:
    """Record what was missed as an incident, which stays until the operator acknowledges it. An incident whose items
    the API listed later is over. Part of the caller's transaction."""
    name = watch_name(watch.name, watch.ref)
    if result.is_closed:
        incidents.close(ITEMS_MISSED, name, "filled through the API", now)
    if (missed := result.missed) is None:
        return
    since, until = clock.iso(missed.gap.since), clock.iso(missed.gap.until)
    incidents.report(
        ITEMS_MISSED,
        name,
        what=f"{watch.source}: items of {name} from {since} to {until} may have been missed",
        cause=without_address(missed.cause),
        effect="its source lists only the newest items; older ones of this time were not seen and are not delivered",
        remedy=_REMEDIES.get(missed.cause, "`csi sources list` shows the error of the watch"),
        now=now,
    )


def _keep_open(watch: Watch, gap: Gap, why: str, now: float) -> GapResult:
    if gap.tried_at is None:
        since = clock.iso(gap.since)
        log.warning("items may have been missed", source=watch.source, watch=watch.ref, since=since, error=why)
        counters.add("gaps", source=watch.source, label="open")
    kept = now - gap.until < GIVE_UP_SECONDS
    is_certain = why == NO_KEY or now - gap.until >= REPORT_SECONDS
    missed = MissedItems(gap, why) if is_certain and not gap.reported else None
    again = replace(gap, tried_at=now, reported=gap.reported or missed is not None)
    changes = {"gap_json": json.dumps(asdict(again)) if kept else None, "note": _note(gap, why)}
    return GapResult(changes=changes, missed=missed)


def _note(gap: Gap, why: str) -> str:
    text = f"items may have been missed between {clock.iso(gap.since)} and {clock.iso(gap.until)}: {why}"
    return text[: watches.ERROR_TEXT]
