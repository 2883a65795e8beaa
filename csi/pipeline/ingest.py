"""Step three: one raw item becomes one event, or a dead letter with its raw payload."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.adapters.base import RawEvent
from csi.config.delivery_settings import STREAM
from csi.dlq import dead_letters
from csi.emitter.destination import Destination
from csi.errors import MalformedItem
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.routing import route
from csi.ingester.text import clean_tree
from csi.logs import log
from csi.pipeline import catalog_entry, live_start
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import counters, dedupe, events, inbox, outbox, watches
from csi.store.counters import Count
from csi.store.db import writing
from csi.store.events import NewEvent
from csi.store.inbox import ClaimedItem
from csi.store.outbox import NewEntry
from csi.store.watches import WatchRouting

NO_SOURCE_WAIT = 60.0
AHEAD = "inbox"
"""The key of the one wake-up for all items whose turn has not come."""

AHEAD_WAIT = 0.5
_AHEAD = threading.Lock()


@dataclass(frozen=True)
class NormalizedItem:
    """An item and the event it became."""

    item: ClaimedItem
    event: CreatorSignalEvent
    key: str


def ingest(rt: Runtime, item_id: int, *, ahead: bool = False) -> list[Wake]:
    """Normalize, route, dedupe and store an item, and those that were woken with it. Their inbox rows are
    deleted in the transaction that stores the events."""
    # Committed before any item is handled: an item that ends the process leaves a lease, which its next claim counts.
    items = inbox.claim(item_id, rt.now(), ahead=ahead)
    if not items:
        return []
    wakes = _handle(rt, items)
    # Items of a process that died are handled one at a time; meanwhile wake-ups of the other items were ignored.
    if items[0].claims and (suspect := inbox.next_suspect(rt.now())) is not None:
        return [*wakes, Wake("ingest", suspect)]
    return wakes


def ingest_ahead(rt: Runtime) -> list[Wake]:
    """Handle the next items of a flood before their turn. One task at a time in this process: it has the lowest
    priority and wakes itself again after each claim, so it uses what no other watch needs. If it is lost, the items are
    handled at their turn."""
    if rt.process.poll_slots.has_line():
        return [Wake("ahead", AHEAD, at=rt.now() + AHEAD_WAIT)]
    if not _AHEAD.acquire(blocking=False):
        return []
    try:
        # Items of a source that is not configured wait for it, and would be found again and again.
        item_id = inbox.next_ahead(rt.now(), list(rt.settings.sources))
        return [] if item_id is None else [*ingest(rt, item_id, ahead=True), Wake("ahead", AHEAD)]
    finally:
        _AHEAD.release()


def _handle(rt: Runtime, items: Sequence[ClaimedItem]) -> list[Wake]:
    watch = watches.routing_of(items[0].watch_id)
    if watch.source not in rt.settings.sources:
        for item in items:  # they wait until their source is configured again
            inbox.release(item, rt.now() + NO_SOURCE_WAIT)
        return []
    # An item whose lease expired is always claimed alone, so `items[0]` is the one that ended the process.
    if items[0].claims >= inbox.MAX_CLAIMS:
        return _quarantine(rt, watch, items[0])
    normalized = [_normalize_item(rt, watch, item) for item in items]
    return _store(rt, watch, [one for one in normalized if one is not None])


def _normalize_item(rt: Runtime, watch: WatchRouting, item: ClaimedItem) -> NormalizedItem | None:
    """None: the item could not be normalized and is a dead letter now, in a transaction of its own."""
    try:
        event = _normalize(rt, watch, item)
        return NormalizedItem(item, event, rt.adapter(watch.source).get_dedupe_key(event))
    except MalformedItem as error:
        _reject_malformed(rt, watch, item, str(error))
    except Exception as error:  # noqa: BLE001 a payload may break an adapter in any way; the item becomes a dead letter
        log.exception("item could not be normalized", source=watch.source, item=item.item_key)
        _reject_malformed(rt, watch, item, f"{type(error).__name__} while normalizing")
    return None


def _normalize(rt: Runtime, watch: WatchRouting, item: ClaimedItem) -> CreatorSignalEvent:
    raw = RawEvent(watch.source, item.event_type, json.loads(item.payload_json), item.occurred_at)
    event = rt.adapter(watch.source).normalize(raw)
    profile = rt.settings.route_profiles.get(watch.route_profile) if watch.route_profile else None
    return event.model_copy(
        update={
            "received_at": clock.iso(item.seen_at),
            "subject": clean_tree(event.subject),
            "metadata": clean_tree(event.metadata),
            "routing": route(profile, watch.tier, json.loads(watch.tags_json)),
        }
    )


def _store(rt: Runtime, watch: WatchRouting, normalized: Sequence[NormalizedItem]) -> list[Wake]:
    """In one transaction: delete the items, and store keys, events and an outbox entry for each destination."""
    now = rt.now()
    destinations = {one.item.id: _destinations_for(rt, one.event, watch.ref, watch.tier) for one in normalized}
    # A crash before this commit leaves the items in the inbox and no event; a crash after it has nothing to repeat.
    with writing():
        ours = inbox.remove([one.item for one in normalized])  # a lost lease: its new holder stores the item
        kept = [one for one in normalized if one.item.id in ours]
        stored = _add_new(rt, watch, [one for one in kept if destinations[one.item.id]], now)
        unwanted = [one for one in kept if not destinations[one.item.id]]
        fresh = dedupe.remember([one.key for one in unwanted], "unwanted", now, _days(rt))
        unwanted = [one for one in unwanted if one.key in fresh]
        catalog_entry.enter([one.event for one in [*(one for one, _ in stored), *unwanted]], now)
        for one, _ in stored:
            live_start.remember(rt.adapter(watch.source), watch.id, one.event, now)
        outbox.put_many(
            [entry for one, pk in stored for entry in _entries(rt, watch, one, pk, destinations[one.item.id])]
        )
        known = len(kept) - len(stored)
        counters.add_all(
            [Count("events", len(stored), watch.source, "stored"), Count("events", known, watch.source, "duplicate")]
        )
        stored_ids = {one.item.id for one, _ in stored}
        for one in kept:
            result = f"became {one.event.event_id}" if one.item.id in stored_ids else "known already"
            _close_dead_letter(one.item, result, now)
    rt.process.ingested.add(ours)
    for one, _ in stored:
        event = one.event
        log.info("event stored", source=event.source, event_type=event.event_type, event_id=event.event_id)
    # After the commit: if a flush is not enqueued, rescue finds the lane, because its outbox entries are due.
    reached = dict.fromkeys(
        (it.name, it.lane(_lane(rt, watch))) for one, _ in stored for it in destinations[one.item.id]
    )
    return [Wake("flush", f"{name}/{lane}", urgent=lane == "urgent") for name, lane in reached]


def store_ready(
    rt: Runtime, ready: Sequence[CreatorSignalEvent], lane_watch: int, seq: int, seen_at: float
) -> tuple[list[Wake], int]:
    """Store events that arrived complete, and how many of them are new. They are ordered among themselves like those of
    the watch `lane_watch`, which need not exist. Part of the caller's transaction."""
    now, reached, stored = rt.now(), dict[tuple[str, str], None](), 0
    for place, event in enumerate(ready):
        tier = str(event.routing["priority"])
        destinations = _destinations_for(rt, event, "", tier)
        reason = "emitted" if destinations else "unwanted"
        if not dedupe.remember([event.dedupe_key], reason, now, _days(rt)) or not destinations:
            continue
        order = seq * len(ready) + place
        row = events.add(event, watch_id=None, seq=order, tier=tier, first_seen_at=seen_at)
        if row is None:
            continue
        lanes = [(to, to.lane(tier)) for to in destinations]
        due = [(to.name, lane, seen_at + to.tiers.of(lane).max_delay_seconds) for to, lane in lanes]
        outbox.put_many([NewEntry(row, name, lane, lane_watch, order, at) for name, lane, at in due])
        reached |= dict.fromkeys((name, lane) for name, lane, _ in due)
        stored += 1
        log.info("event stored", source=event.source, event_type=event.event_type, event_id=event.event_id)
    return [Wake("flush", f"{name}/{lane}", urgent=lane == "urgent") for name, lane in reached], stored


def _destinations_for(rt: Runtime, event: CreatorSignalEvent, watch_ref: str, tier: str) -> list[Destination]:
    tags = event.routing["tags"]
    return [
        it
        for it in rt.destinations.values()
        if it.wanted.accepts(event.source, event.event_type, tags, watch=watch_ref, tier=tier)
    ]


def _add_new(
    rt: Runtime, watch: WatchRouting, normalized: Sequence[NormalizedItem], now: float
) -> list[tuple[NormalizedItem, int]]:
    """Those that are new, each with its row. Of two with the same key the first counts."""
    fresh = dedupe.remember([one.key for one in normalized], "emitted", now, _days(rt))
    first = {one.key: one for one in reversed(normalized) if one.key in fresh}
    new = _without_sent(rt, watch, [one for one in normalized if first.get(one.key) is one], now)
    # The key decides what is new; the unique `event_id` guards where retention deleted the key.
    rows = events.add_many([NewEvent(one.event, watch.id, one.item.id, watch.tier, one.item.seen_at) for one in new])
    return [(one, rows[one.event.event_id]) for one in new if one.event.event_id in rows]


def _without_sent(
    rt: Runtime, watch: WatchRouting, new: Sequence[NormalizedItem], now: float
) -> Sequence[NormalizedItem]:
    """Without those that another watch emitted, where the source has `dedupe_across`. The row of the shared key
    remembers what was emitted; it commits with the event, so a crash leaves both or neither."""
    shared = {one.key: name for one in new if (name := rt.adapter(watch.source).shared_key(one.key))}
    ours = dedupe.remember(list(shared.values()), "emitted", now, _days(rt))
    others = [one for one in new if one.key in shared and shared[one.key] not in ours]
    dedupe.change_reason([one.key for one in others], "other_watch")
    for one in others:
        log.info("item was emitted for another watch", source=watch.source, watch=watch.ref, item=one.key)
    return [one for one in new if one not in others]


def _days(rt: Runtime) -> float:
    return rt.settings.retention.dedupe_days


def _lane(rt: Runtime, watch: WatchRouting) -> str:
    return STREAM if watch.source in rt.streaming_sources() else watch.tier


def _entries(
    rt: Runtime, watch: WatchRouting, one: NormalizedItem, event_pk: int, destinations: Sequence[Destination]
) -> list[NewEntry]:
    item, lanes = one.item, [(to, to.lane(_lane(rt, watch))) for to in destinations]
    entries = []
    for to, lane in lanes:
        # The delay of the tier counts since the poll saw the item, also while it waited in the inbox. In lanes without
        # order the due time decides what is sent first: there the events of a flood that were handled ahead of their
        # turn take their turn, or those of other watches would wait behind all of them.
        since = max(item.seen_at, item.turn_at) if lane in outbox.UNORDERED else item.seen_at
        due_at = since + to.tiers.of(lane).max_delay_seconds
        entries.append(NewEntry(event_pk, to.name, lane, item.watch_id, item.id, due_at))
    return entries


def _reject_malformed(rt: Runtime, watch: WatchRouting, item: ClaimedItem, reason: str) -> None:
    now = rt.now()
    with writing():
        if inbox.remove([item]):
            # Without its key every poll would find the item new, and make another dead letter of it.
            dedupe.remember([item.item_key], "malformed", now, rt.settings.retention.dedupe_days)
            _close_dead_letter(item, "died again", now)
            _dead_item(watch, item, "malformed", reason, now)
    log.warning("item is malformed", source=watch.source, item=item.item_key, error=reason)


def _quarantine(rt: Runtime, watch: WatchRouting, item: ClaimedItem) -> list[Wake]:
    now = rt.now()
    with writing():
        inbox.quarantine(item)
        _close_dead_letter(item, "died again", now)
        _dead_item(watch, item, "crash", f"handling it ended the process {inbox.MAX_CLAIMS} times", now)
    log.error("item is quarantined", source=watch.source, item=item.item_key)
    return []


def _close_dead_letter(item: ClaimedItem, result: str, now: float) -> None:
    """The item was a dead letter before: close that one with the result."""
    if item.letter_id is not None:
        dead_letters.close_item(item.letter_id, result=result, now=now)


def _dead_item(watch: WatchRouting, item: ClaimedItem, cause: Any, reason: str, now: float) -> None:
    raw = {
        "event_type": item.event_type,
        "occurred_at": item.occurred_at,
        "payload": json.loads(item.payload_json),
        "watch": watch.ref,
    }
    dead_letters.add_item(item.item_key, watch.source, raw, cause=cause, reason=reason, seen_at=item.seen_at, now=now)
