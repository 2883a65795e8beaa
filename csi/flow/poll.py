"""Step two: read one watch. Raw items, validators and the next due time commit in one transaction."""

import hashlib
import json
import time
from dataclasses import dataclass

from csi import clock
from csi.adapters.base import Position, RawEvent, Reading, SourceAdapter
from csi.errors import CsiError, SourceError
from csi.flow.wake import Wake
from csi.ingester.text import clean
from csi.logs import log
from csi.runtime import Runtime
from csi.scheduling import cadence
from csi.store import budget, counters, dedupe, inbox, watches
from csi.store.db import writing
from csi.store.models import Watch

LEASE_SECONDS = 55.0
KEY_CHARS = 512


@dataclass(frozen=True)
class Keyed:
    """An item with its key and its place in time."""

    key: str
    occurred: float
    raw: RawEvent


def poll(rt: Runtime, watch_id: int, *, early: bool = False) -> list[Wake]:
    """Read a watch that is due (`early`: also one that is not). A failed read changes nothing but its next time."""
    watch = watches.claim(watch_id, rt.now(), LEASE_SECONDS, early=early)
    if watch is None:
        return []
    started = time.monotonic()
    try:
        reading = rt.adapter(watch.source).read(Position(watch.ref, watch.etag, watch.last_modified))
    except SourceError as error:
        return _record_failure(rt, watch, error, time.monotonic() - started)
    except Exception as error:  # noqa: BLE001 an adapter's bug must not stop the other watches
        log.exception("adapter failed", source=watch.source, watch=watch.ref)
        failure = SourceError(f"the adapter failed: {type(error).__name__}", kind="bug")
        return _record_failure(rt, watch, failure, time.monotonic() - started)
    return _record_success(rt, watch, reading, time.monotonic() - started)


def _record_success(rt: Runtime, watch: Watch, reading: Reading, elapsed: float) -> list[Wake]:
    now = rt.now()
    items = _keyed(rt.adapter(watch.source), reading)
    with writing():
        if not watches.still_held(watch):
            return []
        stored = _store_items(rt, watch, items, reading, now)
        watches.finish(
            watch,
            now,
            _next_poll(rt, watch, bool(stored), now),
            woken=False,
            **_found(watch, reading, stored, now),
        )
        _count_poll(watch.source, "ok", elapsed)
    if stored:
        log.info("new items", source=watch.source, watch=watch.ref, items=len(stored))
    return [Wake("ingest", item_id, urgent=watch.tier == "urgent") for item_id in stored]


def _record_failure(rt: Runtime, watch: Watch, error: SourceError, elapsed: float) -> list[Wake]:
    now, errors = rt.now(), watch.errors + 1
    at = cadence.after_failure(now, watch.interval_seconds, errors, rt.rng, error.retry_after)
    with writing():
        watches.finish(watch, now, at, woken=False, errors=errors, last_error=str(error)[: watches.ERROR_TEXT])
        _count_poll(watch.source, "error", elapsed)
    log.warning("poll failed", source=watch.source, watch=watch.ref, error=str(error), kind=error.kind, errors=errors)
    return []


def _store_items(rt: Runtime, watch: Watch, items: list[Keyed], reading: Reading, now: float) -> list[int]:
    """Put what is new into the inbox; remember or refresh the rest."""
    days = rt.settings.retention.dedupe_days
    keys = [item.key for item in items]
    known = dedupe.known(keys)
    new = [item for item in items if item.key not in known]
    if watch.first_read_at is None and not reading.unchanged:
        new, old = _split_first(new, json.loads(watch.first_poll))
        dedupe.remember([item.key for item in old], "first_poll", now, days)
    dedupe.refresh([key for key in keys if key in known], now, days)
    counters.add("items", len(known), source=watch.source, label="known")
    counters.add("items", len(new), source=watch.source, label="new")
    return inbox.put(watch, [_new_item(item) for item in new], now)


def _split_first(items: list[Keyed], policy: object) -> tuple[list[Keyed], list[Keyed]]:
    """What the first successful read emits, and what it only remembers (DECISIONS 19)."""
    if policy == "all":
        return items, []
    newest = policy["last"] if isinstance(policy, dict) else 0
    cut = max(len(items) - newest, 0)
    return items[cut:], items[:cut]


def _keyed(adapter: SourceAdapter, reading: Reading) -> list[Keyed]:
    """Items in order of time, each key once: the same video may be in a list twice."""
    found: dict[str, Keyed] = {}
    for raw in reading.items:
        item = Keyed(_key(adapter, raw), _occurred(raw), raw)
        if item.key not in found or item.occurred < found[item.key].occurred:
            found[item.key] = item
    return sorted(found.values(), key=lambda item: item.occurred)


def _key(adapter: SourceAdapter, raw: RawEvent) -> str:
    """An item without a key of its own still gets one: it is a dead letter once, not at every poll."""
    try:
        return clean(adapter.item_key(raw), KEY_CHARS)
    except (CsiError, KeyError, TypeError, ValueError, AttributeError):
        digest = hashlib.sha256(json.dumps(raw.payload, sort_keys=True, default=str).encode("utf-8", "replace"))
        return f"malformed:{raw.source}:{digest.hexdigest()[:32]}"


def _occurred(raw: RawEvent) -> float:
    try:
        return clock.parse(raw.occurred_at)
    except (ValueError, OverflowError, AttributeError, TypeError):
        return float("inf")


def _new_item(item: Keyed) -> inbox.NewItem:
    raw = item.raw
    return inbox.NewItem(item.key, clean(raw.event_type), clean(str(raw.occurred_at or ""), KEY_CHARS), raw.payload)


def _found(watch: Watch, reading: Reading, stored: list[int], now: float) -> dict[str, object]:
    changes: dict[str, object] = {
        "etag": reading.etag,
        "last_modified": reading.last_modified,
        "last_success_at": now,
        "errors": 0,
        "last_error": None,
    }
    if watch.first_read_at is None and not reading.unchanged:
        changes["first_read_at"] = now
    if stored:
        changes["last_new_at"] = now
    return changes


def _next_poll(rt: Runtime, watch: Watch, found_new: bool, now: float) -> float:
    last_activity = now if found_new else max(watch.last_new_at or 0, watch.first_read_at or now)
    seconds = cadence.interval(watch.interval_seconds, _adaptive(rt, watch, now), last_activity=last_activity, now=now)
    return cadence.after_success(now, seconds, rt.rng)


def _adaptive(rt: Runtime, watch: Watch, now: float) -> cadence.Adaptive | None:
    settings = rt.settings.sources[watch.source]
    rule, limit = settings.adaptive, settings.budget_units
    if rule is None or not rule.enabled or limit is None:
        return None
    return cadence.Adaptive(
        active=rule.active_interval_seconds or watch.interval_seconds,
        idle=rule.idle_interval_seconds,
        threshold=rule.activity_threshold_minutes * 60,
        watches=len(settings.watches),
        units_limit=limit,
        units_left=limit - budget.used(now),
        buffer=rule.min_quota_buffer,
    )


def _count_poll(source: str, result: str, elapsed: float) -> None:
    counters.add("polls", source=source, label=result)
    counters.observe("poll_seconds", [elapsed], counters.POLL_BUCKETS, source=source)
