"""Step two: read one watch. Raw items, validators and the next due time commit in one transaction."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from csi.adapters.base import Member, Position, ReadResult
from csi.errors import SourceError
from csi.exclusive_section import POLL_SECTION
from csi.ingester.text import TITLE_CHARS, clean, icon_address
from csi.logs import log
from csi.pipeline import (
    backpressure,
    clock_check,
    new_items,
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
from csi.scheduling import watch_health
from csi.store import counters, db, dedupe, inbox, poll_history, subscriptions, watches
from csi.store.counters import Count
from csi.store.db import exclusive_on_sqlite, writing
from csi.store.models import Watch
from csi.store.poll_history import PastRead, ReadResultName

FIRST_SPREAD = 60.0
MAX_TASK_SECONDS = 5.0
"""A thread continues with the watches in line for this long. Then its task ends, which shows that it is alive."""

QUOTA_RECHECK_SECONDS = 3600.0


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
    items: list[new_items.KeyedItem]
    known: set[str]
    gap: GapResult
    changes: dict[str, Any]


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
        members = [
            Member(
                row.ref,
                row.interval_seconds,
                json.loads(row.adapter_state or "{}"),
                row.error_kind if row.errors else None,
            )
            for row in rows
        ]
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
            position = _position(rt, watch)
            found = _outcome(rt, watch, position, rt.adapter(watch.source).read(position))
    except SourceError as error:
        return _record_failure(rt, attempt, error)
    except db.DatabaseError:
        raise  # not the adapter's fault; the lease brings the watch back
    except Exception as error:  # noqa: BLE001 an adapter's bug must not stop the other watches
        log.exception("adapter failed", source=watch.source, watch=watch.ref)
        return _record_failure(rt, attempt, SourceError(f"the adapter failed: {type(error).__name__}", kind="bug"))
    return _record_success(rt, attempt, found)


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
        items = new_items.with_keys(adapter, reading.items)
        known = dedupe.known([item.key for item in items])
    times = [item.occurred for item in items if item.occurred != float("inf")]
    gap = poll_gap.fill(rt, watch, position, reading, rt.now(), is_new=bool(items) and not known)
    compared = quiet_feed.compare(rt, watch, position, max(times, default=None), rt.now())
    if gap.items or compared.items:
        items = new_items.with_keys(adapter, (*reading.items, *gap.items, *compared.items))
        known = dedupe.known([item.key for item in items])
    changes = gap.changes | compared.changes
    if (usual_gap := watch_health.usual_gap(times)) is not None:
        changes["usual_gap"] = usual_gap
    if not reading.unchanged:
        changes["empty_reads"] = watch.empty_reads + 1 if is_empty else 0
    return ReadOutcome(reading, items, known, gap, changes)


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
        emits=new_items.first_items(json.loads(watch.first_poll)) if watch.first_read_at is None else None,
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
        new = new_items.select(rt, watch, found.items, found.known, found.reading, now)
        stored = new_items.store(rt, watch, new, now)
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
        result: ReadResultName = "new" if stored else "unchanged" if found.reading.unchanged else "nothing_new"
        changes |= poll_history.add(watch, PastRead(now, round(attempt.elapsed, 3), result, len(stored), None))
        watches.finish(watch, next_at, host=attempt.host, **changes)
        poll_gap.report(watch, found.gap, now)
        polled_host_health.note_answer(rt, watch, found.reading.host or attempt.host, now)
        counters.add_all([*new_items.counts_of(watch.source, new), *_poll_counts(watch.source, "ok", attempt.elapsed)])
    backpressure.note_added(rt, len(stored))
    _log_success(watch, len(stored), len(new.old), now)
    # A crash from here on loses only wake-ups: `wake_at` of the watch and of the items is when they are repeated.
    return [*_wake_items(stored, now, urgent=watch.tier == "urgent"), Wake("poll", watch.id, at=next_at)]


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
    verdict = assessment.verdict
    if verdict.confirm:
        # A watch is `dead` only when the API says that it does not exist. The read may have used most of the lease, and
        # the API call, before the write lock is taken, needs time of its own.
        watches.extend_lease(watch, rt.now() + watches.LEASE_SECONDS)
        answer = rt.adapter(watch.source).confirm(watch.ref)
        verdict = watch_health.confirmed(verdict, answer, rt.now(), rt.rng)
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
        text = str(error)[: watches.ERROR_TEXT]
        changes: dict[str, object] = {
            "errors": watch.errors + 1,
            "last_error": text,
            "error_kind": error.kind,
            "health": verdict.state,
            "health_since": verdict.since,
            "missing_since": (watch.missing_since or now) if verdict.state == "dead" else None,
            "gone_at": (watch.gone_at or now) if verdict.state in watch_health.OWN_FAULT else None,
        }
        changes |= poll_history.add(watch, PastRead(now, round(attempt.elapsed, 3), "failed", 0, text))
        watches.finish(watch, next_at, host=attempt.host, **changes)
        counters.add_all(_poll_counts(watch.source, "error", attempt.elapsed))
    # One warning when a watch begins to fail or its health changes. In an outage the line about the host is enough.
    facts: dict[str, object] = {"source": watch.source, "watch": watch.ref, "error": str(error), "kind": error.kind}
    facts |= {"errors": watch.errors + 1, "health": verdict.state}
    if verdict.state != "outage" and (watch.errors == 0 or verdict.state != watch.health):
        log.warning("poll failed", **facts)
    else:
        log.debug("poll failed", **facts)
    return [Wake("poll", watch.id, at=next_at)]


def _log_lost(attempt: PollAttempt) -> list[Wake]:
    """The read took longer than its lease, or the watch was removed meanwhile. The next holder reads it again."""
    watch, seconds = attempt.watch, round(attempt.elapsed, 1)
    log.warning("lease was lost; what was read is not stored", source=watch.source, watch=watch.ref, seconds=seconds)
    return []


def _poll_counts(source: str, result: str, elapsed: float) -> list[Count]:
    spent = counters.observed("poll_seconds", [elapsed], counters.POLL_BUCKETS, source=source)
    return [Count("polls", source=source, label=result), *spent]
