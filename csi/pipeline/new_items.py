"""New items of a read: their keys, which of them become events, and how they are stored."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.adapters.base import RawEvent, ReadResult, SourceAdapter
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.scheduling import filters
from csi.store import counters, dedupe, inbox, retention, watch_admin
from csi.store.counters import Count
from csi.store.models import Watch

KEY_CHARS = 512
LASTING = ("id", "yt_videoid", "link", "title", "published")
"""What an item without a key is known by: not its views, nor when it was last touched."""


@dataclass(frozen=True)
class KeyedItem:
    """An item with its dedupe key and the time at which it was published."""

    key: str
    occurred: float
    raw: RawEvent


@dataclass(frozen=True)
class ItemSelection:
    """Items of a read, divided into those that become events and those that do not."""

    known: set[str]
    """Keys of items that were stored before."""
    emit: list[KeyedItem]
    old: list[KeyedItem] = field(default_factory=list)
    """Counted as seen without an event: listed at the first read, or published before an absence in which keys were
    forgotten."""
    unwanted: list[KeyedItem] = field(default_factory=list)


def put_pushed(rt: Runtime, watch: Watch, raws: Iterable[RawEvent], now: float) -> tuple[list[int], set[str]]:
    """Store items that were pushed complete, as a read of the watch would. Returns the ids of the stored items and the
    keys that were known. Part of the caller's transaction."""
    items = with_keys(rt.adapter(watch.source), raws)
    known = dedupe.known([item.key for item in items])
    wanted, unwanted = _filter(rt, watch, [item for item in items if item.key not in known])
    selection = ItemSelection(known, wanted, unwanted=unwanted)
    counters.add_all(counts_of(watch.source, selection))
    return store(rt, watch, selection, now), known


def counts_of(source: str, found: ItemSelection) -> list[Count]:
    seen = {"filtered": len(found.unwanted), "known": len(found.known), "new": len(found.emit)}
    return [Count("items", amount, source, label) for label, amount in seen.items()]


def select(
    rt: Runtime, watch: Watch, items: list[KeyedItem], known: set[str], reading: ReadResult, now: float
) -> ItemSelection:
    # After a reset by command, what was only marked as seen is emitted now.
    if watch.first_read_at is None and watch.last_success_at is not None and watch.first_poll == '"all"':
        watch_admin.forget_unemitted(sorted(known))
        known = dedupe.known(sorted(known))
    wanted, unwanted = _filter(rt, watch, [item for item in items if item.key not in known])
    # The first read: only the newest items that `first_poll` allows become events.
    if watch.first_read_at is None and not reading.unchanged:
        newest = first_items(json.loads(watch.first_poll))
        cut = 0 if newest is None else max(len(wanted) - newest, 0)
        return ItemSelection(known, wanted[cut:], wanted[:cut], unwanted)
    seen = watch.last_success_at
    if seen is not None and retention.has_forgotten_keys(seen, now, rt.settings.retention.dedupe_days):
        # Items that were listed at the last read were handled then, but their keys may be gone. What is newer than the
        # newest item ever listed is new all the same: a source may list an item long after its publication.
        since = min(seen, watch.last_video_published_at or seen)
        return ItemSelection(
            known,
            [item for item in wanted if item.occurred > since],
            [item for item in wanted if item.occurred <= since],
            unwanted,
        )
    return ItemSelection(known, wanted, unwanted=unwanted)


def _filter(rt: Runtime, watch: Watch, items: list[KeyedItem]) -> tuple[list[KeyedItem], list[KeyedItem]]:
    """Wanted and unwanted; what may become wanted later is in neither, and is filtered again at the next poll."""
    if watch.filters_json == "{}":
        return items, []
    rule = filters.load(watch.filters_json)
    found: dict[str, list[KeyedItem]] = {"wanted": [], "unwanted": []}
    for item in items:
        try:
            facts = filters.facts_of(rt.adapter(item.raw.source).normalize(item.raw).subject)
        except Exception:  # noqa: BLE001 a payload may break an adapter in any way; ingest normalizes it again and logs the error
            facts = filters.Facts()  # it is not filtered: ingest makes it a dead letter with its reason
        found.setdefault(filters.wanted(rule, facts), []).append(item)
    return found["wanted"], found["unwanted"]


def first_items(policy: Any) -> int | None:
    """How many of the newest items a first read emits (decision 0042, 19). None: all."""
    if policy == "all":
        return None
    return int(policy["last"]) if isinstance(policy, dict) else 0


def with_keys(adapter: SourceAdapter, raws: Iterable[RawEvent]) -> list[KeyedItem]:
    """Items in order of time, those of one second as the source lists them, each key once: the same video may be in a
    list twice."""
    found: dict[str, KeyedItem] = {}
    for raw in raws:
        try:
            occurred = clock.parse(raw.occurred_at)
        except (ValueError, OverflowError, AttributeError, TypeError):
            occurred = float("inf")
        item = KeyedItem(_key(adapter, raw), occurred, raw)
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


def store(rt: Runtime, watch: Watch, found: ItemSelection, now: float) -> list[int]:
    """Put what is new into the inbox; remember or refresh the rest."""
    days = rt.settings.retention.dedupe_days
    dedupe.remember([item.key for item in found.old], "first_poll", now, days)
    dedupe.remember([item.key for item in found.unwanted], "filtered", now, days)
    dedupe.refresh(sorted(found.known), now, days)
    # Keys that items share with other watches live as long as the items are listed. Those of items that were
    # emitted before `dedupe_across` was set are added.
    adapter = rt.adapter(watch.source)
    shared = {key: name for key in sorted(found.known) if (name := adapter.shared_key(key))}
    there = dedupe.known(list(shared.values())) if shared else set()
    dedupe.refresh(sorted(there), now, days)
    reasons = dedupe.reasons([key for key, name in shared.items() if name not in there])
    dedupe.remember([shared[key] for key, reason in reasons.items() if reason == "emitted"], "emitted", now, days)
    items = [
        inbox.NewItem(
            one.key, clean(one.raw.event_type), clean(str(one.raw.occurred_at or ""), KEY_CHARS), one.raw.payload
        )
        for one in found.emit
    ]
    return inbox.put(watch, items, now)
