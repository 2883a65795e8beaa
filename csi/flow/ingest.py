"""Step three: one raw item becomes one event, or a dead letter with its raw payload."""

import json
from typing import Any

from csi import clock
from csi.adapters.base import RawEvent
from csi.dlq import store as dlq
from csi.emitter.destination import Destination
from csi.errors import MalformedItem
from csi.flow import arrivals
from csi.flow.wake import Wake
from csi.ingester.config import STREAM
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.routing import route
from csi.ingester.text import clean_tree
from csi.logs import log
from csi.runtime import Runtime
from csi.store import counters, dedupe, events, inbox, outbox
from csi.store.db import writing
from csi.store.inbox import ClaimedItem
from csi.store.models import Watch

NO_SOURCE_WAIT = 60.0


def ingest(rt: Runtime, item_id: int) -> list[Wake]:
    """Normalize, route, dedupe and store one item. Its inbox row goes in the transaction that stores the event."""
    item = inbox.claim(item_id, rt.now())
    if item is None:
        return []
    watch = Watch.get_by_id(item.watch_id)
    if watch.source not in rt.settings.sources:
        inbox.give_back(
            item, rt.now() + NO_SOURCE_WAIT
        )  # its block left the config: the item waits for it to come back
        return []
    if item.claims >= inbox.MAX_CLAIMS:
        return _set_aside(rt, watch, item)
    try:
        event = _normalize(rt, watch, item)
    except MalformedItem as error:
        return _bury(rt, watch, item, str(error))
    except Exception as error:  # noqa: BLE001 a payload may break an adapter in any way; the item is kept, the line goes on
        log.exception("item could not be normalized", source=watch.source, item=item.item_key)
        return _bury(rt, watch, item, f"{type(error).__name__} while normalizing")
    return _store(rt, watch, item, event)


def _normalize(rt: Runtime, watch: Watch, item: ClaimedItem) -> CreatorSignalEvent:
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


def _store(rt: Runtime, watch: Watch, item: ClaimedItem, event: CreatorSignalEvent) -> list[Wake]:
    """One transaction: the item goes, its key and its event come, with an entry for each destination that wants it."""
    now, key = rt.now(), rt.adapter(watch.source).get_dedupe_key(event)
    wanting = [
        destination
        for destination in rt.destinations.values()
        if destination.wanted.accepts(event.source, event.event_type, event.routing["tags"])
    ]
    with writing():
        if not inbox.remove(item):
            return []  # the lease was lost: whoever holds the item now stores it
        reason = "emitted" if wanting else "unwanted"
        stored = dedupe.remember_one(key, reason, now, rt.settings.retention.dedupe_days)
        event_pk = _add(watch, item, event) if stored and wanting else None
        if stored:
            arrivals.enter(event, now)
        if event_pk is not None:
            for destination in wanting:
                _address(destination, event_pk, _lane(rt, watch), item)
        counters.add("events", source=watch.source, label="duplicate" if event_pk is None else "stored")
        _close_letter(item, f"became {event.event_id}" if event_pk is not None else "known already", now)
    lane = _lane(rt, watch)
    if event_pk is not None:
        log.info("event stored", source=event.source, event_type=event.event_type, event_id=event.event_id)
    return [] if event_pk is None else [wake for destination in wanting for wake in _at_once(destination, lane)]


def _add(watch: Watch, item: ClaimedItem, event: CreatorSignalEvent) -> int | None:
    return events.add(event, watch_id=watch.id, seq=item.id, tier=watch.tier, first_seen_at=item.seen_at)


def _lane(rt: Runtime, watch: Watch) -> str:
    """Events of a streaming source have a lane of their own."""
    source = rt.settings.sources.get(watch.source)
    return STREAM if source is not None and source.streaming_mode else watch.tier


def _address(destination: Destination, event_pk: int, lane: str, item: ClaimedItem) -> None:
    due_at = item.seen_at + destination.tiers.of(lane).max_delay_seconds
    outbox.put(event_pk, [destination.name], tier=lane, watch_id=item.watch_id, seq=item.id, due_at=due_at)


def _at_once(destination: Destination, lane: str) -> list[Wake]:
    """Lanes that do not collect are flushed now; the others are found by the pulse when they are due."""
    settings = destination.tiers.of(lane)
    if settings.batch_size > 1 and settings.max_delay_seconds > 0:
        return []
    return [Wake("flush", f"{destination.name}/{lane}", urgent=lane == "urgent")]


def _bury(rt: Runtime, watch: Watch, item: ClaimedItem, reason: str) -> list[Wake]:
    now = rt.now()
    with writing():
        if inbox.remove(item):
            dedupe.remember([item.item_key], "malformed", now, rt.settings.retention.dedupe_days)
            _close_letter(item, "died again", now)
            _dead_item(watch, item, "malformed", reason, now)
    log.warning("item is malformed", source=watch.source, item=item.item_key, error=reason)
    return []


def _set_aside(rt: Runtime, watch: Watch, item: ClaimedItem) -> list[Wake]:
    now = rt.now()
    with writing():
        inbox.quarantine(item)
        _close_letter(item, "died again", now)
        _dead_item(watch, item, "crash", f"handling it ended the process {inbox.MAX_CLAIMS} times", now)
    log.error("item is quarantined", source=watch.source, item=item.item_key)
    return []


def _close_letter(item: ClaimedItem, result: str, now: float) -> None:
    """The item came back from the dead letters: this is what became of it."""
    if item.letter_id is not None:
        dlq.close_item(item.letter_id, result=result, now=now)


def _dead_item(watch: Watch, item: ClaimedItem, cause: Any, reason: str, now: float) -> None:
    raw = {
        "event_type": item.event_type,
        "occurred_at": item.occurred_at,
        "payload": json.loads(item.payload_json),
        "watch": watch.ref,
    }
    dlq.bury_item(item.item_key, watch.source, raw, cause=cause, reason=reason, seen_at=item.seen_at, now=now)
