"""Step two: read one watch. Raw items, validators and the next due time commit in one transaction."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from csi import clock
from csi.adapters.base import Member, Position, RawEvent, ReadResult, SourceAdapter
from csi.errors import SourceError
from csi.exclusive_section import POLL_SECTION
from csi.ingester.text import TITLE_CHARS, clean, icon_address
from csi.logs import log
from csi.pipeline import (
    backpressure,
    clock_check,
    poll_gap,
    polled_host_health,
    push_tracking,
    quiet_feed,
    quota_schedule,
    schedule,
)
from csi.pipeline.ingest import AHEAD
from csi.pipeline.poll_gap import GapResult
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.scheduling import filters, watch_health
from csi.scheduling.watch_health import Verdict
from csi.store import counters, db, dedupe, inbox, poll_history, retention, subscriptions, watch_admin, watches
from csi.store.counters import Count
from csi.store.db import exclusive_on_sqlite, writing
from csi.store.models import Watch
from csi.store.poll_history import PastRead, ReadResultName

KEY_CHARS = 512
LASTING = ("id", "yt_videoid", "link", "title", "published")
"""What an item without a key is known by: not its views, nor when it was last touched."""
FIRST_SPREAD = 60.0
MAX_TASK_SECONDS = 5.0
"""A thread continues with the watches in line for this long. Then its task ends, which shows that it is alive."""

QUOTA_RECHECK_SECONDS = 3600.0


@dataclass(frozen=True)
class KeyedItem:
    """An item with its dedupe key and the time at which it was published."""

    key: str
    occurred: float
    raw: RawEvent


@dataclass(frozen=True)
class PollAttempt:
    """One read of a watch under our lease."""

    watch: Watch
    host: str
    before: float | None
    """When this watch was polled before."""
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started


@dataclass(frozen=True)
class ReadOutcome:
    """The result of a read: items in order of time, the keys of those that are known, what is known of a gap, and the
    columns that the read changes on the watch."""

    reading: ReadResult
    items: list[KeyedItem]
    known: set[str]
    gap: GapResult
    changes: dict[str, Any]


@dataclass(frozen=True)
class ItemSelection:
    """New items, divided into those that become events and those that do not."""

    emit: list[KeyedItem]
    old: list[KeyedItem] = field(default_factory=list)
    """Counted as seen without an event: listed at the first read, or published before an absence in which keys were
    forgotten."""
    unwanted: list[KeyedItem] = field(default_factory=list)


def poll(rt: Runtime, watch_id: int) -> Iterator[list[Wake]]:
    """Read this watch if it is due and then, in the slot that it leaves, those that wait in line: a task in the queue
    costs more than the read. Yields the wake-ups of each read.

    The wake-ups include the next poll of the watch at its time. A second wake-up for the same poll, or one
    that comes before the row is due, returns none, so that each watch has one scheduled poll.
    """
    end = rt.now() + MAX_TASK_SECONDS
    next_id: int | None = watch_id
    while next_id is not None:
        wakes = _poll_in_slot(rt, next_id)
        next_id = rt.process.poll_slots.call_next(rt.share.polls)
        if next_id is not None and (rt.stopping() or rt.now() >= end):
            yield [*wakes, Wake("poll", next_id)]
            return
        yield wakes


def poll_early(rt: Runtime, watch_id: int) -> list[Wake]:
    """By command: read a watch that need not be due, but neither a paused one nor one whose host is paused."""
    if clock_check.is_held(rt):
        return []
    with exclusive_on_sqlite(POLL_SECTION):
        watch = watches.poll_candidate(watch_id)
    if watch is None or watch.source not in rt.settings.sources:
        return []
    return _claim_and_read(rt, watch, polled_host_health.host_of(rt, watch), early=True)


def _poll_in_slot(rt: Runtime, watch_id: int) -> list[Wake]:
    if not schedule.may_poll(rt):  # the row stays due, and the maintenance loop wakes it when polling resumes
        return []
    with exclusive_on_sqlite(POLL_SECTION):
        now, watch = rt.now(), watches.poll_candidate(watch_id)
    # Not active any more, or not due: another poll has moved `next_poll_at` and scheduled its successor.
    if watch is None or watch.source not in rt.settings.sources or watch.next_poll_at > now:
        return []
    if watch.wake_at < now - watches.MISSED_SECONDS:
        return []  # no worker looked for a while: `schedule.plan` spreads what was missed, Huey has it all at once
    host, slots = polled_host_health.host_of(rt, watch), rt.process.poll_slots
    pace, urgent = rt.pacer.pace(host), watch.tier == "urgent"
    # A limit is of the registrable domain: its hosts share it. Sources that are slow must leave threads for delivery.
    counted_as, limit = (pace.name if pace.max_concurrent else host), pace.max_concurrent
    if not slots.acquire(watch.id, counted_as, rt.share.polls, urgent=urgent, due_at=watch.next_poll_at, limit=limit):
        if watch.wake_at < now + watches.REWAKE_SECONDS / 2:  # one write for many wake-ups of a waiting watch
            watches.wake_again(watch.id, now + watches.REWAKE_SECONDS)
        return []
    try:
        return _claim_and_read(rt, watch, host, early=False)
    finally:
        rt.process.poll_ended_at = time.monotonic()
        slots.release(counted_as)


def _claim_and_read(rt: Runtime, watch: watches.PollCandidate, host: str, *, early: bool) -> list[Wake]:
    if rt.adapter(watch.source).reads_groups:
        return _claim_and_read_group(rt, watch, host, early=early)
    now = rt.now()
    with exclusive_on_sqlite(POLL_SECTION):
        until = polled_host_health.postpone_if_paused(rt, watch, host, now)
        if until is None:
            until = polled_host_health.postpone_until_slot(rt, watch, now)
        if until is not None:
            return [Wake("poll", watch.id, at=until)]
        # Committed before the request: after a crash the lease expires, and the maintenance loop wakes the watch again.
        with writing():  # without it, two threads would poll SQLite's lock with sleeps
            claimed = watches.claim(watch.id, now, watches.LEASE_SECONDS, early=early)
    # None: another thread or another worker claimed the watch first, and schedules the next poll.
    return [] if claimed is None else _read_and_record(rt, PollAttempt(claimed, host, watch.last_poll_at))


def _claim_and_read_group(rt: Runtime, watch: watches.PollCandidate, host: str, *, early: bool) -> list[Wake]:
    """Read this watch together with its group in one request. Each member has its own row, lease and transaction: what
    a crash leaves unrecorded is read again when the lease of the member expires."""
    now, adapter = rt.now(), rt.adapter(watch.source)
    with exclusive_on_sqlite(POLL_SECTION):
        rows = watches.of_source(watch.source)
        members = [_member(row) for row in rows]
        names = set(adapter.group_of(watch.ref, members))
        group = [row for row in rows if row.ref in names]
        others = [row for row in group if row.id != watch.id]
        # Since this watch was found due, another member may have reserved a slot for all of them.
        if not early and any(row.id == watch.id and row.next_poll_at > now for row in group):
            return []
        until = polled_host_health.postpone_if_paused(rt, watch, host, now)
        if until is None and (until := polled_host_health.postpone_until_slot(rt, watch, now)) is not None:
            watches.postpone_all([row.id for row in others], until + polled_host_health.SLOT_SECONDS)
        if until is not None:
            return [Wake("poll", watch.id, at=until)]
        with writing():
            first = watches.claim(watch.id, now, watches.LEASE_SECONDS, early=early)
            # Members that are not due yet are read along: that costs no request.
            taken = [watches.claim(row.id, now, watches.LEASE_SECONDS, early=True) for row in others] if first else []
    if first is None:
        return []
    before = {row.id: row.last_poll_at for row in rows}
    attempts = [PollAttempt(row, host, before.get(row.id)) for row in (first, *taken) if row is not None]
    return [wake for done in _read_group(rt, attempts, members) for wake in done]


def _member(row: Watch) -> Member:
    state = json.loads(row.adapter_state or "{}")
    return Member(row.ref, row.interval_seconds, state, row.error_kind if row.errors else None)


def _read_group(rt: Runtime, attempts: list[PollAttempt], members: list[Member]) -> Iterator[list[Wake]]:
    source = attempts[0].watch.source
    adapter = rt.adapter(source)
    positions = {attempt.watch.ref: _position(rt, attempt.watch) for attempt in attempts}
    results: Mapping[str, ReadResult | SourceError]
    try:
        with rt.pacer.permitted(adapter.paced_as(attempts[0].watch.ref, attempts[0].watch.via)):
            results = adapter.read_group(list(positions.values()), members)
    except SourceError as error:
        results = dict.fromkeys(positions, error)
    except db.DatabaseError:
        raise
    except Exception as error:  # noqa: BLE001 an adapter's bug must not stop the other sources
        log.exception("adapter failed", source=source, watches=len(attempts))
        results = dict.fromkeys(positions, SourceError(f"the adapter failed: {type(error).__name__}", kind="bug"))
    for attempt in attempts:
        result = results[attempt.watch.ref]
        if isinstance(result, SourceError):
            yield _record_failure(rt, attempt, result)
        else:
            found = _outcome(rt, attempt.watch, positions[attempt.watch.ref], result)
            yield _record_success(rt, attempt, found)


def _read_and_record(rt: Runtime, attempt: PollAttempt) -> list[Wake]:
    watch = attempt.watch
    paced_as = rt.adapter(watch.source).paced_as(watch.ref, watch.via)
    try:
        with rt.pacer.permitted(paced_as):
            found = _read(rt, watch)
    except SourceError as error:
        return _record_failure(rt, attempt, error)
    except db.DatabaseError:
        raise  # not the adapter's fault; the lease brings the watch back
    except Exception as error:  # noqa: BLE001 an adapter's bug must not stop the other watches
        log.exception("adapter failed", source=watch.source, watch=watch.ref)
        return _record_failure(rt, attempt, SourceError(f"the adapter failed: {type(error).__name__}", kind="bug"))
    return _record_success(rt, attempt, found)


def _read(rt: Runtime, watch: Watch) -> ReadOutcome:
    position = _position(rt, watch)
    return _outcome(rt, watch, position, rt.adapter(watch.source).read(position))


def _outcome(rt: Runtime, watch: Watch, position: Position, reading: ReadResult) -> ReadOutcome:
    adapter = rt.adapter(watch.source)
    # The watch listed items before, and lists none: neither readable nor unreadable ones.
    listed = bool(reading.items) or reading.unchanged or reading.unreadable > 0
    is_empty = adapter.lists_the_past and watch.last_video_published_at is not None and not listed
    if is_empty:
        # At the third empty read in a row, and at each one after it.
        if watch.empty_reads + 1 >= watch_health.EMPTY_READS:
            respects = rt.settings.sources[watch.source].waits_for_caches
            text = "the feed lists no items any more, although it did before"
            raise SourceError(text, kind="empty", retry_after=watch.interval_seconds if respects else None)
        # Without validators the next read is complete: the same empty response must not count as unchanged.
        reading = replace(reading, etag=None, last_modified=None)
    with exclusive_on_sqlite(POLL_SECTION):
        items = _with_keys(adapter, reading.items)
        known = dedupe.known([item.key for item in items])
    times = [item.occurred for item in items if item.occurred != float("inf")]
    gap = poll_gap.fill(rt, watch, position, reading, rt.now(), is_new=bool(items) and not known)
    compared = quiet_feed.compare(rt, watch, position, max(times, default=None), rt.now())
    if gap.items or compared.items:
        items = _with_keys(adapter, (*reading.items, *gap.items, *compared.items))
        known = dedupe.known([item.key for item in items])
    changes = gap.changes | compared.changes | _rhythm(times)
    if not reading.unchanged:
        changes["empty_reads"] = watch.empty_reads + 1 if is_empty else 0
    return ReadOutcome(reading, items, known, gap, changes)


def _rhythm(times: list[float]) -> dict[str, Any]:
    """The usual time between two publications, where this read shows enough of them."""
    gap = watch_health.usual_gap(times)
    return {} if gap is None else {"usual_gap": gap}


class WatchLease:
    """The lease of a watch that is being read. A long read extends it page by page."""

    def __init__(self, rt: Runtime, watch: Watch) -> None:
        self._rt, self._watch, self._until = rt, watch, watch.lease_until or 0.0

    def extend(self) -> None:
        """Writes only when half of the lease is used. SourceError: what is read would not be stored."""
        self._rt.process.note_progress()
        now = self._rt.now()
        if now < self._until - watches.LEASE_SECONDS / 2:
            return
        self._until = now + watches.LEASE_SECONDS
        if not watches.extend_lease(self._watch, self._until):
            raise SourceError("the watch was paused, or another thread reads it", kind="paused")


def _position(rt: Runtime, watch: Watch) -> Position:
    via: Any = watch.via
    return Position(
        ref=watch.ref,
        etag=watch.etag,
        last_modified=watch.last_modified,
        via=via,
        last_success_at=watch.last_success_at,
        known=lambda keys: dedupe.known(list(keys)),
        emits=_newest(json.loads(watch.first_poll)) if watch.first_read_at is None else None,
        state=json.loads(watch.adapter_state or "{}"),
        wants_title=watch.name is None,
        is_announced=rt.settings.sources[watch.source].websub is not None and subscriptions.is_awaited(watch.id),
        progress=WatchLease(rt, watch).extend,
    )


# ── recording a success ────────────────────────────────────────────────────────────────────────────────────────


def _record_success(rt: Runtime, attempt: PollAttempt, found: ReadOutcome) -> list[Wake]:
    now, watch = rt.now(), attempt.watch
    # One commit for items, validators and due time: a stored ETag without its items would hide them behind a 304.
    with exclusive_on_sqlite(POLL_SECTION), writing():
        # Checked in the transaction: after a lost lease another thread may have stored these items already.
        if not watches.lease_is_held(watch):
            return _log_lost(attempt)
        known = _known(watch, found)
        new = _select(rt, watch, [item for item in found.items if item.key not in known], found.reading, now)
        stored = _store(rt, watch, new, known, now)
        push_tracking.after_read(
            rt, watch, [item.key for item in found.items], {item.key: item.occurred for item in new.emit}, now
        )
        # In the transaction: the plan depends on units and watches that other polls change.
        next_at = backpressure.later(rt, watch, _next_poll(rt, watch, found, bool(stored), now), now)
        # The publication time of the newest item that this watch ever listed, if this read raised it
        times = [item.occurred for item in found.items if item.occurred != float("inf")]
        newest = max([*times, watch.last_video_published_at or 0.0])
        newest_item = {"last_video_published_at": newest} if newest > (watch.last_video_published_at or 0.0) else {}
        changes = _success(watch, found.reading, bool(stored), now) | newest_item | found.changes
        changes |= poll_history.add(watch, _past_read(attempt, found.reading, len(stored), now))
        watches.finish(watch, next_at, host=attempt.host, **changes)
        poll_gap.report(watch, found.gap, now)
        polled_host_health.note_answer(rt, watch, found.reading.host or attempt.host, now)
        counters.add_all([*_item_counts(watch.source, new, known), *_poll_counts(watch.source, "ok", attempt.elapsed)])
    backpressure.note_added(rt, len(stored))
    _log_success(watch, len(stored), len(new.old), now)
    # A crash from here on loses only wake-ups: `wake_at` of the watch and of the items is when they are repeated.
    return [*_wake_items(stored, now, urgent=watch.tier == "urgent"), Wake("poll", watch.id, at=next_at)]


def _past_read(attempt: PollAttempt, reading: ReadResult, stored: int, now: float) -> PastRead:
    result: ReadResultName = "new" if stored else "unchanged" if reading.unchanged else "nothing_new"
    return PastRead(now, round(attempt.elapsed, 3), result, stored, None)


def _wake_items(ids: list[int], now: float, *, urgent: bool) -> list[Wake]:
    """Of a flood, AT_ONCE items a second, so that it does not hold up other watches, and more while nothing else waits.
    Each item has a wake-up of its own in the first second; later one for every TOGETHER items, which is what a task
    handles."""
    later = ids[inbox.AT_ONCE :: inbox.TOGETHER]
    return [
        *(Wake("ingest", item_id, urgent=urgent) for item_id in ids[: inbox.AT_ONCE]),
        *(
            Wake("ingest", item_id, at=now + 1 + place * inbox.TOGETHER // inbox.AT_ONCE)
            for place, item_id in enumerate(later)
        ),
        *([Wake("ahead", AHEAD)] if later else []),
    ]


def _store(rt: Runtime, watch: Watch, new: ItemSelection, known: set[str], now: float) -> list[int]:
    """Put what is new into the inbox; remember or refresh the rest."""
    days = rt.settings.retention.dedupe_days
    dedupe.remember([item.key for item in new.old], "first_poll", now, days)
    dedupe.remember([item.key for item in new.unwanted], "filtered", now, days)
    dedupe.refresh(sorted(known), now, days)
    # Keys that items share with other watches live as long as the items are listed. Those of items that were
    # emitted before `dedupe_across` was set are added.
    days, adapter = rt.settings.retention.dedupe_days, rt.adapter(watch.source)
    shared = {key: name for key in sorted(known) if (name := adapter.shared_key(key))}
    there = dedupe.known(list(shared.values())) if shared else set()
    dedupe.refresh(sorted(there), now, days)
    reasons = dedupe.reasons([key for key, name in shared.items() if name not in there])
    dedupe.remember([shared[key] for key, reason in reasons.items() if reason == "emitted"], "emitted", now, days)
    return inbox.put(watch, [_new_item(item) for item in new.emit], now)


def put_pushed(rt: Runtime, watch: Watch, raws: Iterable[RawEvent], now: float) -> tuple[list[int], set[str]]:
    """Store items that were pushed complete, as a read of the watch would. Returns the ids of the stored items and the
    keys that were known. Part of the caller's transaction."""
    items = _with_keys(rt.adapter(watch.source), raws)
    known = dedupe.known([item.key for item in items])
    wanted, unwanted = _filter(rt, watch, [item for item in items if item.key not in known])
    selection = ItemSelection(wanted, unwanted=unwanted)
    counters.add_all(_item_counts(watch.source, selection, known))
    return _store(rt, watch, selection, known, now), known


def _item_counts(source: str, new: ItemSelection, known: set[str]) -> list[Count]:
    seen = {"filtered": len(new.unwanted), "known": len(known), "new": len(new.emit)}
    return [Count("items", amount, source, label) for label, amount in seen.items()]


def _known(watch: Watch, found: ReadOutcome) -> set[str]:
    """After a reset by command, what was only marked as seen is emitted now."""
    if watch.first_read_at is None and watch.last_success_at is not None and watch.first_poll == '"all"':
        watch_admin.forget_unemitted(sorted(found.known))
        return dedupe.known(sorted(found.known))
    return found.known


def _select(rt: Runtime, watch: Watch, new: list[KeyedItem], reading: ReadResult, now: float) -> ItemSelection:
    wanted, unwanted = _filter(rt, watch, new)
    # The first read: only the newest items that `first_poll` allows become events.
    if watch.first_read_at is None and not reading.unchanged:
        newest = _newest(json.loads(watch.first_poll))
        cut = 0 if newest is None else max(len(wanted) - newest, 0)
        return ItemSelection(wanted[cut:], wanted[:cut], unwanted)
    seen = watch.last_success_at
    if seen is not None and retention.has_forgotten_keys(seen, now, rt.settings.retention.dedupe_days):
        # Items that were listed at the last read were handled then, but their keys may be gone. What is newer than the
        # newest item ever listed is new all the same: a source may list an item long after its publication.
        since = min(seen, watch.last_video_published_at or seen)
        return ItemSelection(
            [item for item in wanted if item.occurred > since],
            [item for item in wanted if item.occurred <= since],
            unwanted,
        )
    return ItemSelection(wanted, unwanted=unwanted)


def _filter(rt: Runtime, watch: Watch, items: list[KeyedItem]) -> tuple[list[KeyedItem], list[KeyedItem]]:
    """Wanted and unwanted; what may become wanted later is in neither, and is filtered again at the next poll."""
    if watch.filters_json == "{}":
        return items, []
    rule = filters.load(watch.filters_json)
    verdicts = [(item, filters.wanted(rule, _facts(rt, item))) for item in items]
    wanted = [item for item, verdict in verdicts if verdict == "wanted"]
    return wanted, [item for item, verdict in verdicts if verdict == "unwanted"]


def _facts(rt: Runtime, item: KeyedItem) -> filters.Facts:
    """An item that cannot be normalized is not filtered: ingest makes it a dead letter with its reason."""
    try:
        return filters.facts_of(rt.adapter(item.raw.source).normalize(item.raw).subject)
    except Exception:  # noqa: BLE001 a payload may break an adapter in any way; ingest normalizes it again and logs the error
        return filters.Facts()


def _newest(policy: Any) -> int | None:
    """How many of the newest items a first read emits (decision 0042, 19). None: all."""
    if policy == "all":
        return None
    return int(policy["last"]) if isinstance(policy, dict) else 0


def _with_keys(adapter: SourceAdapter, raws: Iterable[RawEvent]) -> list[KeyedItem]:
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


def _new_item(item: KeyedItem) -> inbox.NewItem:
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
        "gone_at": None,
    }
    if reading.title and (title := clean(reading.title, TITLE_CHARS).strip()) and title != watch.title:
        changes["title"] = title
        if watch.name in (None, watch.title):
            changes["name"] = title
    if (icon := icon_address(reading.icon)) is not None and icon != watch.icon_url:
        changes["icon_url"] = icon
    if reading.state is not None:
        changes["adapter_state"] = json.dumps(dict(reading.state))
    if not reading.unchanged:
        changes |= {"walked_at": now, "pages": reading.pages, "first_read_at": watch.first_read_at or now}
    if is_news:
        changes["last_new_at"] = now
    if watch.health != "healthy":
        changes |= {"health": "healthy", "health_since": now}
    return changes


def _next_poll(rt: Runtime, watch: Watch, found: ReadOutcome, found_new: bool, now: float) -> float:
    if (again := found.reading.again_after) is not None:
        quota_schedule.set_planned_interval(watch, max(again, watch.interval_seconds))
        return now + again * rt.rng.uniform(0.97, 1.0)
    respects = rt.settings.sources[watch.source].waits_for_caches
    at = quota_schedule.next_poll(rt, watch, found_new, now, found.reading.fresh_until if respects else None)
    at = push_tracking.next_poll(rt, watch, at, now)
    if found.changes.get("empty_reads") and not (respects and found.reading.fresh_until):
        return min(at, now + watch_health.EMPTY_RETRY * rt.rng.uniform(0.8, 1.0))
    if watch.first_read_at is None and not respects and at - now >= FIRST_SPREAD:
        return now + (at - now) * rt.rng.uniform(0.1, 1.0)  # spreads watches that were added together
    return at


def _log_success(watch: Watch, new: int, old: int, now: float) -> None:
    if watch.health not in ("healthy", "outage"):
        away = round(now - (watch.health_since or now))
        log.info("watch recovered", source=watch.source, watch=watch.ref, was=watch.health, seconds=away)
    if new:
        log.info("new items", source=watch.source, watch=watch.ref, items=new)
    if old:
        why = "first_poll" if watch.first_read_at is None else "absence"
        log.info("items are counted as seen, without events", source=watch.source, watch=watch.ref, items=old, why=why)


# ── recording a failure ───────────────────────────────────────────────────────────────────────────────────────────


def _record_failure(rt: Runtime, attempt: PollAttempt, error: SourceError) -> list[Wake]:
    now, watch = rt.now(), attempt.watch
    if error.kind == "paused":  # not a failure of the source: the watch keeps its health and its error count
        next_at = now + max(rt.rng.uniform(2.0, 10.0), error.retry_after or 0.0)
        return [Wake("poll", watch.id, at=next_at)] if watches.finish(watch, next_at) else _log_lost(attempt)
    assessment = polled_host_health.judge(rt, watch, attempt.host, error, attempt.before, now)
    verdict = _confirm(rt, attempt, assessment.verdict)  # may call the API, so it runs before the write lock is taken
    with writing():
        if not watches.lease_is_held(watch):
            return _log_lost(attempt)
        polled_host_health.note_failure(rt, watch, error, assessment, now)
        if error.kind in ("quota", "budget"):
            # After midnight, or within the hour: the operator may have raised the limit; checking that costs no unit.
            next_at = min(
                quota_schedule.after_refusal(rt, watch, now), now + QUOTA_RECHECK_SECONDS * rt.rng.uniform(0.5, 1.0)
            )
        else:
            next_at = quota_schedule.at_least(rt, watch, verdict.next_at, now)
        changes = _failure(watch, error, verdict, now)
        failed = PastRead(now, round(attempt.elapsed, 3), "failed", 0, str(error)[: watches.ERROR_TEXT])
        changes |= poll_history.add(watch, failed)
        watches.finish(watch, next_at, host=attempt.host, **changes)
        counters.add_all(_poll_counts(watch.source, "error", attempt.elapsed))
    _log_failure(watch, error, verdict)
    return [Wake("poll", watch.id, at=next_at)]


def _log_lost(attempt: PollAttempt) -> list[Wake]:
    """The read took longer than its lease, or the watch was removed meanwhile. The next holder reads it again."""
    watch, seconds = attempt.watch, round(attempt.elapsed, 1)
    log.warning("lease was lost; what was read is not stored", source=watch.source, watch=watch.ref, seconds=seconds)
    return []


def _confirm(rt: Runtime, attempt: PollAttempt, verdict: Verdict) -> Verdict:
    """Ask the API whether the watch still exists: a watch is `dead` only when the API says so."""
    if not verdict.confirm:
        return verdict
    # The read may have used most of the lease, and the API call needs time of its own.
    watches.extend_lease(attempt.watch, rt.now() + watches.LEASE_SECONDS)
    answer = rt.adapter(attempt.watch.source).confirm(attempt.watch.ref)
    return watch_health.confirmed(verdict, answer, rt.now(), rt.rng)


def _failure(watch: Watch, error: SourceError, verdict: Verdict, now: float) -> dict[str, object]:
    return {
        "errors": watch.errors + 1,
        "last_error": str(error)[: watches.ERROR_TEXT],
        "error_kind": error.kind,
        "health": verdict.state,
        "health_since": verdict.since,
        "missing_since": (watch.missing_since or now) if verdict.state == "dead" else None,
        "gone_at": (watch.gone_at or now) if verdict.state in watch_health.OWN_FAULT else None,
    }


def _log_failure(watch: Watch, error: SourceError, verdict: Verdict) -> None:
    """One warning when a watch begins to fail or its health changes. In an outage the line about the host is enough."""
    facts: dict[str, object] = {"source": watch.source, "watch": watch.ref, "error": str(error), "kind": error.kind}
    facts |= {"errors": watch.errors + 1, "health": verdict.state}
    if verdict.state != "outage" and (watch.errors == 0 or verdict.state != watch.health):
        log.warning("poll failed", **facts)
    else:
        log.debug("poll failed", **facts)


def _poll_counts(source: str, result: str, elapsed: float) -> list[Count]:
    spent = counters.observed("poll_seconds", [elapsed], counters.POLL_BUCKETS, source=source)
    return [Count("polls", source=source, label=result), *spent]
