"""Step two: read one watch. Raw items, validators and the next due time commit in one transaction."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.adapters.base import Position, RawEvent, ReadResult, SourceAdapter
from csi.errors import SourceError
from csi.exclusive import READING
from csi.ingester.text import clean
from csi.logs import log
from csi.pipeline import clock_check, host_health, poll_gap, poll_slots, quota_schedule
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.scheduling import filters, watch_health
from csi.scheduling.watch_health import Verdict
from csi.store import counters, db, dedupe, inbox, retention, watch_admin, watches
from csi.store.counters import Count
from csi.store.db import at, writing
from csi.store.models import Watch

KEY_CHARS = 512
LASTING = ("id", "yt_videoid", "link", "title", "published")
"""What an item without a key is known by: not its views, nor when it was last touched."""
FIRST_SPREAD = 60.0
IN_A_ROW_SECONDS = 5.0
"""So long a thread goes on with those in line; then it comes to an end, which is a sign of life."""

QUOTA_LOOK_SECONDS = 3600.0


@dataclass(frozen=True)
class Keyed:
    """An item with its key and its place in time."""

    key: str
    occurred: float
    raw: RawEvent


@dataclass(frozen=True)
class Try:
    """One read of one watch that we hold."""

    watch: Watch
    host: str
    before: float | None
    """When it was tried before."""
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started


@dataclass(frozen=True)
class Found:
    """What a read gave: items in order of time, which of their keys are known, and what a gap changes on the watch."""

    reading: ReadResult
    items: list[Keyed]
    known: set[str]
    changes: dict[str, Any]


@dataclass(frozen=True)
class Sorted:
    """New items by what becomes of them."""

    emit: list[Keyed]
    old: list[Keyed] = field(default_factory=list)
    """Counted as seen without an event: listed at the first read, or published before an absence in which keys were
    forgotten."""
    unwanted: list[Keyed] = field(default_factory=list)


def poll_in_turn(rt: Runtime, watch_id: int) -> Iterator[list[Wake]]:
    """Read this watch and then, in the place that it leaves, who is next in line: the way through the queue costs more
    than the work. Gives the wake-ups of each read; after a while the last of them is for the next in line."""
    end = rt.now() + IN_A_ROW_SECONDS
    while True:
        wakes = poll(rt, watch_id)
        following = next((wake for wake in wakes if wake.step == "poll"), None)
        if following is None or rt.stopping() or rt.now() >= end:
            yield wakes
            return
        yield [wake for wake in wakes if wake is not following]
        watch_id = int(following.key)


def poll(rt: Runtime, watch_id: int, *, early: bool = False) -> list[Wake]:
    """Read a watch that is due (`early`: also one that is not, but neither a paused one nor one whose host asked for
    a pause). A failed read changes nothing but its next time and what is known of its health."""
    if clock_check.is_held(rt):  # the row stays due, and the maintenance loop finds it after the hold
        return poll_slots.call_next(rt)
    with at(READING):
        now, watch = rt.now(), watches.glance(watch_id)
    if watch is None or watch.source not in rt.settings.sources:
        return poll_slots.call_next(rt)
    if watch.next_poll_at > now and not early:
        watches.wake_again(watch_id, watch.next_poll_at)  # a wake-up that came too early must not use up the right one
        return poll_slots.call_next(rt)
    host = host_health.host_of(rt, watch)
    if early:
        return _poll(rt, watch, host, early=True)
    if not poll_slots.take(rt, watch, host, now):  # slow sources must leave threads for delivery
        return []
    try:
        wakes = _poll(rt, watch, host, early=False)
    finally:
        poll_slots.leave(rt, host)
    return [*wakes, *poll_slots.call_next(rt)]


def _poll(rt: Runtime, watch: watches.Glance, host: str, *, early: bool) -> list[Wake]:
    held = _take(rt, watch, host, early=early)
    if held is None:
        return []
    try:
        found = _read(rt, held.watch)
    except SourceError as error:
        return _record_failure(rt, held, error)
    except db.DatabaseError:
        raise  # not the adapter's fault; the lease brings the watch back
    except Exception as error:  # noqa: BLE001 an adapter's bug must not stop the other watches
        log.exception("adapter failed", source=held.watch.source, watch=held.watch.ref)
        return _record_failure(rt, held, SourceError(f"the adapter failed: {type(error).__name__}", kind="bug"))
    return _record_success(rt, held, found)


def _take(rt: Runtime, watch: watches.Glance, host: str, *, early: bool) -> Try | None:
    now = rt.now()
    with at(READING):
        if host_health.is_held_back(rt, watch, host, now):
            return None
        with writing():  # by the writer's connection: at SQLite's own lock two of this process would sleep
            held = watches.claim(watch.id, now, watches.LEASE_SECONDS, early=early)
    return Try(held, host, watch.last_poll_at) if held is not None else None


def _read(rt: Runtime, watch: Watch) -> Found:
    adapter, position = rt.adapter(watch.source), _position(watch)
    with watches.reading(watch):
        reading = adapter.read(position)
        with at(READING):
            items = _keyed(adapter, reading.items)
            known = dedupe.known([item.key for item in items])
        filled = poll_gap.fill(rt, watch, position, reading, rt.now(), is_new=bool(items) and not known)
    if filled.items:
        items = _keyed(adapter, (*reading.items, *filled.items))
        known = dedupe.known([item.key for item in items])
    return Found(reading, items, known, filled.changes)


def _position(watch: Watch) -> Position:
    via: Any = watch.via
    return Position(
        ref=watch.ref,
        etag=watch.etag,
        last_modified=watch.last_modified,
        via=via,
        last_success_at=watch.last_success_at,
        known=lambda keys: dedupe.known(list(keys)),
        emits=_newest(json.loads(watch.first_poll)) if watch.first_read_at is None else None,
    )


# ── it succeeded ────────────────────────────────────────────────────────────────────────────────────────


def _record_success(rt: Runtime, held: Try, found: Found) -> list[Wake]:
    now, watch = rt.now(), held.watch
    with at(READING), writing():
        if not watches.still_held(watch):
            return _say_lost(held)
        known = _known(watch, found)
        new = _sort(rt, watch, [item for item in found.items if item.key not in known], found.reading, now)
        stored = _store(rt, watch, new, known, now)
        next_at = _next_poll(rt, watch, found.reading, bool(stored), now)
        changes = _success(watch, found.reading, bool(stored), now) | _newest_item(watch, found) | found.changes
        watches.finish(watch, next_at, host=held.host, **changes)
        host_health.note_answer(rt, watch, found.reading.host or held.host, now)
        counters.add_all([*_item_counts(watch.source, new, known), *_poll_counts(watch.source, "ok", held.elapsed)])
    _say_success(watch, len(stored), len(new.old), now)
    return [Wake("ingest", item_id, urgent=watch.tier == "urgent") for item_id in stored[: inbox.AT_ONCE]]


def _store(rt: Runtime, watch: Watch, new: Sorted, known: set[str], now: float) -> list[int]:
    """Put what is new into the inbox; remember or refresh the rest."""
    days = rt.settings.retention.dedupe_days
    dedupe.remember([item.key for item in new.old], "first_poll", now, days)
    dedupe.remember([item.key for item in new.unwanted], "filtered", now, days)
    dedupe.refresh(sorted(known), now, days)
    return inbox.put(watch, [_new_item(item) for item in new.emit], now)


def _item_counts(source: str, new: Sorted, known: set[str]) -> list[Count]:
    seen = {"filtered": len(new.unwanted), "known": len(known), "new": len(new.emit)}
    return [Count("items", amount, source, label) for label, amount in seen.items()]


def _known(watch: Watch, found: Found) -> set[str]:
    """After a reset by command, what was only marked as seen is emitted now."""
    if watch.first_read_at is None and watch.last_success_at is not None and watch.first_poll == '"all"':
        watch_admin.forget_unemitted(sorted(found.known))
        return dedupe.known(sorted(found.known))
    return found.known


def _sort(rt: Runtime, watch: Watch, new: list[Keyed], reading: ReadResult, now: float) -> Sorted:
    wanted, unwanted = _filter(rt, watch, new)
    if watch.first_read_at is None and not reading.unchanged:
        cut = _cut(wanted, _newest(json.loads(watch.first_poll)))
        return Sorted(wanted[cut:], wanted[:cut], unwanted)
    seen = watch.last_success_at
    if seen is not None and retention.has_forgotten_keys(seen, now, rt.settings.retention.dedupe_days):
        # Items that were listed at the last read were handled then, but their keys may be gone. What is newer than the
        # newest item ever listed is new all the same: a source may list an item long after its publication.
        since = min(seen, watch.last_video_published_at or seen)
        return Sorted(
            [item for item in wanted if item.occurred > since],
            [item for item in wanted if item.occurred <= since],
            unwanted,
        )
    return Sorted(wanted, unwanted=unwanted)


def _filter(rt: Runtime, watch: Watch, items: list[Keyed]) -> tuple[list[Keyed], list[Keyed]]:
    """Wanted and unwanted; what may become wanted later is in neither, and is looked at again."""
    if watch.filters_json == "{}":
        return items, []
    rule = filters.load(watch.filters_json)
    verdicts = [(item, filters.wanted(rule, _facts(rt, item))) for item in items]
    wanted = [item for item, verdict in verdicts if isinstance(verdict, filters.Wanted)]
    return wanted, [item for item, verdict in verdicts if isinstance(verdict, filters.Unwanted)]


def _facts(rt: Runtime, item: Keyed) -> filters.Facts:
    """An item that cannot be read is not filtered: it goes on, and becomes a dead letter with its reason."""
    try:
        return filters.facts_of(rt.adapter(item.raw.source).normalize(item.raw).subject)
    except Exception:  # noqa: BLE001 a payload may break an adapter in any way; ingest meets it again and says so
        return filters.Facts()


def _newest(policy: Any) -> int | None:
    """How many of the newest items a first read emits (decision 0042, 19). None: all."""
    if policy == "all":
        return None
    return int(policy["last"]) if isinstance(policy, dict) else 0


def _cut(items: list[Keyed], newest: int | None) -> int:
    return 0 if newest is None else max(len(items) - newest, 0)


def _keyed(adapter: SourceAdapter, raws: Iterable[RawEvent]) -> list[Keyed]:
    """Items in order of time, those of one second as the source lists them, each key once: the same video may be in a
    list twice."""
    found: dict[str, Keyed] = {}
    for raw in raws:
        item = Keyed(_key(adapter, raw), _occurred(raw), raw)
        if item.key not in found or item.occurred < found[item.key].occurred:
            found[item.key] = item
    items = list(found.values())
    return sorted(reversed(items) if adapter.newest_first else items, key=lambda item: item.occurred)


def _key(adapter: SourceAdapter, raw: RawEvent) -> str:
    """An item without a key of its own still gets one: it is a dead letter once, not at every poll."""
    try:
        return clean(adapter.item_key(raw), KEY_CHARS)
    except Exception:  # noqa: BLE001 one odd item must not stop the others of its watch
        stable = {name: raw.payload[name] for name in LASTING if name in raw.payload} or raw.payload
        digest = hashlib.sha256(json.dumps(stable, sort_keys=True, default=str).encode("utf-8", "replace"))
        return f"malformed:{raw.source}:{digest.hexdigest()[:32]}"


def _occurred(raw: RawEvent) -> float:
    try:
        return clock.parse(raw.occurred_at)
    except (ValueError, OverflowError, AttributeError, TypeError):
        return float("inf")


def _new_item(item: Keyed) -> inbox.NewItem:
    raw = item.raw
    return inbox.NewItem(item.key, clean(raw.event_type), clean(str(raw.occurred_at or ""), KEY_CHARS), raw.payload)


def _success(watch: Watch, reading: ReadResult, is_news: bool, now: float) -> dict[str, object]:
    changes: dict[str, object] = {
        "etag": reading.etag,
        "last_modified": reading.last_modified,
        "fresh_until": reading.fresh_until,
        "last_success_at": now,
        "errors": 0,
        "last_error": None,
        "error_kind": None,
        "missing_since": None,
    }
    if not reading.unchanged:
        changes |= {"walked_at": now, "pages": reading.pages, "first_read_at": watch.first_read_at or now}
    if is_news:
        changes["last_new_at"] = now
    if watch.health != "healthy":
        changes |= {"health": "healthy", "health_since": now}
    return changes


def _newest_item(watch: Watch, found: Found) -> dict[str, object]:
    """When the newest item that was ever seen here came out."""
    times = [item.occurred for item in found.items if item.occurred != float("inf")]
    newest = max([*times, watch.last_video_published_at or 0.0])
    return {"last_video_published_at": newest} if newest > (watch.last_video_published_at or 0.0) else {}


def _next_poll(rt: Runtime, watch: Watch, reading: ReadResult, found_new: bool, now: float) -> float:
    respects = rt.settings.sources[watch.source].waits_for_caches
    at = quota_schedule.next_poll(rt, watch, found_new, now, reading.fresh_until if respects else None)
    if watch.first_read_at is None and not respects and at - now >= FIRST_SPREAD:
        return now + (at - now) * rt.rng.uniform(0.1, 1.0)  # watches that came together do not stay together
    return at


def _say_success(watch: Watch, new: int, old: int, now: float) -> None:
    if watch.health not in ("healthy", "outage"):
        away = round(now - (watch.health_since or now))
        log.info("watch is read again", source=watch.source, watch=watch.ref, was=watch.health, seconds=away)
    if new:
        log.info("new items", source=watch.source, watch=watch.ref, items=new)
    if old:
        why = "first_poll" if watch.first_read_at is None else "absence"
        log.info("items are counted as seen, without events", source=watch.source, watch=watch.ref, items=old, why=why)


# ── it failed ───────────────────────────────────────────────────────────────────────────────────────────


def _record_failure(rt: Runtime, held: Try, error: SourceError) -> list[Wake]:
    now, watch = rt.now(), held.watch
    if error.kind == "paused":
        return [] if watches.finish(watch, now + rt.rng.uniform(2.0, 10.0)) else _say_lost(held)
    judged = host_health.judge(rt, watch, held.host, error, held.before, now)
    verdict = _confirm(rt, held, judged.verdict)
    with writing():
        if not watches.still_held(watch):
            return _say_lost(held)
        host_health.note_failure(rt, watch, error, judged, now)
        next_at = _next_try(rt, watch, error, verdict, now)
        watches.finish(watch, next_at, host=held.host, **_failure(watch, error, verdict, now))
        counters.add_all(_poll_counts(watch.source, "error", held.elapsed))
    _say_failure(watch, error, verdict)
    return []


def _say_lost(held: Try) -> list[Wake]:
    """It took longer than its lease, or was removed meanwhile: whoever holds the watch now reads it anew."""
    watch, seconds = held.watch, round(held.elapsed, 1)
    log.warning("lease was lost; what was read is not stored", source=watch.source, watch=watch.ref, seconds=seconds)
    return []


def _confirm(rt: Runtime, held: Try, verdict: Verdict) -> Verdict:
    """Only the API may call something dead."""
    if not verdict.confirm:
        return verdict
    with watches.reading(held.watch):
        watches.keep_lease(rt.now(), watches.LEASE_SECONDS)
        answer = rt.adapter(held.watch.source).confirm(held.watch.ref)
    return watch_health.confirmed(verdict, answer, rt.now(), rt.rng)


def _next_try(rt: Runtime, watch: Watch, error: SourceError, verdict: Verdict, now: float) -> float:
    if error.kind in ("quota", "budget"):
        # After midnight, but the limit may have been raised: that costs no unit to see.
        return min(quota_schedule.after_refusal(rt, watch, now), now + QUOTA_LOOK_SECONDS * rt.rng.uniform(0.5, 1.0))
    return quota_schedule.at_least(rt, watch, verdict.next_at, now)


def _failure(watch: Watch, error: SourceError, verdict: Verdict, now: float) -> dict[str, object]:
    return {
        "errors": watch.errors + 1,
        "last_error": str(error)[: watches.ERROR_TEXT],
        "error_kind": error.kind,
        "health": verdict.state,
        "health_since": verdict.since,
        "missing_since": (watch.missing_since or now) if verdict.state == "dead" else None,
    }


def _say_failure(watch: Watch, error: SourceError, verdict: Verdict) -> None:
    """One line when it begins or changes; in an outage the host has said it for all."""
    facts: dict[str, object] = {"source": watch.source, "watch": watch.ref, "error": str(error), "kind": error.kind}
    facts |= {"errors": watch.errors + 1, "health": verdict.state}
    if verdict.state != "outage" and (watch.errors == 0 or verdict.state != watch.health):
        log.warning("poll failed", **facts)
    else:
        log.debug("poll failed", **facts)


def _poll_counts(source: str, result: str, elapsed: float) -> list[Count]:
    spent = counters.observed("poll_seconds", [elapsed], counters.POLL_BUCKETS, source=source)
    return [Count("polls", source=source, label=result), *spent]
