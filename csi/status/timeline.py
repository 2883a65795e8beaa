"""The history of one item, oldest step first, and the reason why it is where it is."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.adapters import registry
from csi.config.delivery_settings import RESEND, TierSettings
from csi.dlq import dead_letters
from csi.dlq.dead_letters import StoredDeadLetter
from csi.emitter.failure_cause import without_code
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status.backlog import PendingPlace, Reason, why_batch_waits, why_pending, with_worker
from csi.status.destinations import DestinationState, destination_state_of
from csi.status.worker import WorkerStatus, worker_status
from csi.store import outbox
from csi.store.destinations import DestinationRow
from csi.store.queries import timeline_rows

LONGEST_QUERY = 512


@dataclass(frozen=True)
class ItemRows:
    """Every stored row of one item."""

    key: str
    known: timeline_rows.KnownKey | None = None
    item: timeline_rows.InboxRow | None = None
    events: Sequence[timeline_rows.EventHistoryRow] = ()
    entries: Sequence[timeline_rows.OutboxRow] = ()
    batches: Sequence[timeline_rows.BatchRow] = ()
    attempts: Sequence[timeline_rows.AttemptRow] = ()
    letters: Sequence[StoredDeadLetter] = ()
    watch: timeline_rows.WatchName | None = None


@dataclass(frozen=True)
class Surroundings:
    """What decides whether the item moves: the worker, the destinations and the settings."""

    worker: WorkerStatus
    destinations: Mapping[str, DestinationState] = field(default_factory=dict)
    tiers: Mapping[tuple[str, str], TierSettings] = field(default_factory=dict)
    """By destination and lane."""
    earlier: Mapping[str, str] = field(default_factory=dict)
    """By destination: the item that has to be sent first, to keep the order of the watch."""
    delivery_is_on: bool = True
    events_days: int = 30


@dataclass(frozen=True)
class TimelineEntry:
    """One thing that happened."""

    at: float
    what: str
    text: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeliveryState:
    """How far the item has come to one destination, and why no further."""

    destination: str
    state: str
    reason: str


@dataclass(frozen=True)
class Timeline:
    """All that is known of one item."""

    key: str
    state: str
    reason: str
    event_id: str | None = None
    source: str | None = None
    event_type: str | None = None
    title: str | None = None
    url: str | None = None
    watch: str | None = None
    deliveries: tuple[DeliveryState, ...] = ()
    steps: tuple[TimelineEntry, ...] = ()


@dataclass(frozen=True)
class TraceResult:
    """The timelines of all items that match a query. `is_cut`: there are more."""

    query: str
    timelines: tuple[Timeline, ...]
    is_cut: bool = False


def trace(rt: Runtime, text: str) -> TraceResult:
    """By the id of a video, an event_id or a dedupe key."""
    query = clean(text, LONGEST_QUERY).strip()
    keys = timeline_rows.find_keys(query, registry.key_stems()) if query else []
    shown = keys[: timeline_rows.MOST_KEYS]
    return TraceResult(query, tuple(timeline_of(rt, key) for key in shown), len(keys) > len(shown))


def timeline_of(rt: Runtime, key: str) -> Timeline:
    """By the exact dedupe key."""
    events, item = timeline_rows.events_of(key), timeline_rows.inbox_row(key)
    pks = [event.pk for event in events]
    watch_id = events[-1].watch_id if events else item.watch_id if item else None
    found = ItemRows(
        key=key,
        known=timeline_rows.known_key(key),
        item=item,
        events=events,
        entries=timeline_rows.outbox_of(pks),
        batches=timeline_rows.batches_of(pks),
        attempts=timeline_rows.attempts_of(pks),
        letters=dead_letters.of_item(key),
        watch=timeline_rows.watch_name(watch_id),
    )
    return build(found, _surroundings(rt, found))


def _surroundings(rt: Runtime, found: ItemRows) -> Surroundings:
    configured = [
        (entry, rt.destinations[entry.destination]) for entry in found.entries if entry.destination in rt.destinations
    ]
    ordered = [entry for entry, _ in configured if entry.state == "pending" and entry.lane not in outbox.UNORDERED]
    return Surroundings(
        worker=worker_status(rt),
        destinations={entry.destination: destination_state_of(rt, entry.destination) for entry in found.entries},
        tiers={(entry.destination, entry.lane): one.tiers.of(entry.lane) for entry, one in configured},
        earlier={
            entry.destination: item for entry in ordered if (item := timeline_rows.earlier_item(entry)) is not None
        },
        delivery_is_on=rt.settings.features.delivery,
        events_days=rt.settings.retention.events_days,
    )


def build(found: ItemRows, around: Surroundings) -> Timeline:
    """Pure: rows in, timeline out."""
    event = found.events[-1] if found.events else None
    letter = found.letters[-1] if found.letters else None
    subject = json.loads(event.subject_json) if event else letter.payload.get("subject") if letter else None
    subject = subject if isinstance(subject, dict) else {}
    # Per destination: what is queued decides, then dead letters, then delivered batches
    entries = {entry.destination: entry for entry in reversed(found.entries)}
    names = [entry.destination for entry in found.entries]
    names += [letter.destination for letter in found.letters if letter.kind == "event"]
    names += [batch.destination for batch in found.batches]
    deliveries = tuple(
        _unfinished(entries[name], found, around) if name in entries else _finished(name, found)
        for name in dict.fromkeys(names)
    )
    state, reason = _state(found, deliveries, around)
    named = next((one.event_id for one in found.letters if one.kind == "event"), None)
    watch_source = found.watch.source if found.watch else None
    return Timeline(
        key=found.key,
        state=state,
        reason=reason,
        event_id=event.event_id if event else named,
        source=event.source if event else letter.source if letter else watch_source,
        event_type=event.event_type if event else found.item.event_type if found.item else None,
        title=_text(subject.get("title")),
        url=_text(subject.get("url")),
        watch=_watch_words(found.watch),
        deliveries=deliveries,
        steps=tuple(sorted(_steps(found), key=lambda step: (step.at, _ORDER.index(step.what)))),
    )


# ── where it is, and why ────────────────────────────────────────────────────────────────────────────────

_NOT_SENT = {
    "first_poll": "it was listed at the first poll of its watch: remembered, not sent (first_poll)",
    "filtered": "the filters of its watch exclude it",
    "other_watch": "another watch listed it first, and it is sent once (dedupe_across)",
    "unwanted": "no destination selects it: their filters by source, type and tag exclude it",
    "malformed": "it could not be read; its dead letter holds the raw payload",
    "discarded": "it was discarded by command",
    "taken_over": "the previous poller had sent it already (csi compare --take-over)",
}


def _state(found: ItemRows, deliveries: Sequence[DeliveryState], around: Surroundings) -> tuple[str, str]:
    if found.events:
        unfinished = [one for one in deliveries if one.state != "delivered"]
        return found.events[-1].state, "; ".join(dict.fromkeys(one.reason for one in unfinished or deliveries))
    if found.item is not None and found.item.state == "quarantined":
        return "quarantined", "processing it ended the worker three times; see its dead letter"
    if found.item is not None:
        return "inbox", with_worker(Reason("seen, and not an event yet"), around.worker).text
    if found.letters:
        letter = found.letters[-1]
        if letter.state == "open":
            return "malformed" if letter.kind == "item" else "dead", f"dead letter {letter.id}: {letter.reason}"
        return letter.state, f"dead letter {letter.id} was {letter.state}: {letter.result or 'no result'}"
    reason = found.known.reason if found.known else "unknown"
    if reason == "emitted":
        return "gone", f"it was emitted; its event was removed by retention (kept for {around.events_days} days)"
    return reason, _NOT_SENT.get(reason, f"it is known as {reason!r}")


def _unfinished(entry: timeline_rows.OutboxRow, found: ItemRows, around: Surroundings) -> DeliveryState:
    name, now = entry.destination, around.worker.now
    gone = DestinationState(name, "accepting", DestinationRow(name), is_configured=False)
    destination = around.destinations.get(name, gone)
    batch = next((one for one in found.batches if one.pk == entry.batch_pk), None)
    if entry.state == "in_flight" and batch is not None:
        state, reason = "in_flight", why_batch_waits(destination, batch, now, delivery_is_on=around.delivery_is_on)
    else:
        place = PendingPlace(entry.lane, entry.due_at, around.tiers.get((name, entry.lane)), around.earlier.get(name))
        state, reason = "pending", why_pending(destination, place, now, delivery_is_on=around.delivery_is_on)
    return DeliveryState(name, state, with_worker(reason, around.worker).timed(now))


def _finished(name: str, found: ItemRows) -> DeliveryState:
    letter = next((one for one in reversed(found.letters) if one.destination == name), None)
    if letter is not None and letter.state != "replayed":
        text = f"dead letter {letter.id} ({letter.cause}): {letter.reason}"
        return DeliveryState(name, "dead" if letter.state == "open" else letter.state, text)
    arrived = [one for one in found.batches if one.destination == name and one.state == "delivered"]
    if arrived or (letter is not None and letter.result == "delivered"):
        when = arrived[-1].settled_at if arrived else letter.closed_at if letter else None
        return DeliveryState(name, "delivered", f"accepted{'' if when is None else f' at {clock.iso(when)}'}")
    return DeliveryState(name, "unknown", "nothing is queued for it")


# ── what happened ───────────────────────────────────────────────────────────────────────────────────────


_ORDER = (
    *("occurred", "seen", "stored", "batched", "attempt", "split", "released"),
    *("dead", "replayed", "discarded", "delivered", "removed"),
)
"""The order of steps that have the same time."""

_ENDS = {
    "split": "was refused and split",
    "released": "was dissolved; its events are pending again",
    "dead": "was given up",
}


def _steps(found: ItemRows) -> Iterator[TimelineEntry]:
    yield from _first_seen(found)
    for event in found.events:
        with suppress(ValueError, OverflowError):  # a date that cannot be read has no place in the order
            yield TimelineEntry(
                clock.parse(event.occurred_at), "occurred", "published, or added to its list, at the source"
            )
        yield TimelineEntry(event.first_seen_at, "stored", f"became event {event.event_id}", {"lane": event.tier})
        if event.delivered_at is not None:
            took = event.delivered_at - event.first_seen_at
            text = f"delivered to every destination, {took:.1f} s after it was first seen"
            yield TimelineEntry(event.delivered_at, "delivered", text, {"seconds": round(took, 3)})
        if event.removed_at is not None:
            yield TimelineEntry(event.removed_at, "removed", "its video was deleted or made private, the hub says")
    for batch in found.batches:
        others = f" with {batch.size - 1} others" if batch.size > 1 else ""
        probe = ", as a probe" if batch.is_probe else ", to be sent again by command" if batch.lane == RESEND else ""
        details = {"batch_id": batch.batch_id, "destination": batch.destination, "size": batch.size}
        text = f"put into {batch.batch_id} to {batch.destination}{others}{probe}"
        yield TimelineEntry(batch.created_at, "batched", text, details | {"lane": batch.lane})
        if batch.state in _ENDS and batch.settled_at is not None:
            yield TimelineEntry(batch.settled_at, batch.state, f"{batch.batch_id} {_ENDS[batch.state]}", details)
    for attempt in found.attempts:
        yield _attempt_step(attempt, found.batches)
    for letter in found.letters:
        details = {"letter": letter.id, "destination": letter.destination or None, "cause": letter.cause}
        text = f"dead letter {letter.id} ({letter.cause}): {letter.reason}"
        yield TimelineEntry(letter.died_at, "dead", text, details)
        if letter.closed_at is not None:
            text = f"dead letter {letter.id} {letter.state}: {letter.result or 'no result'}"
            yield TimelineEntry(letter.closed_at, letter.state, text, details | {"result": letter.result})


def _first_seen(found: ItemRows) -> Iterator[TimelineEntry]:
    seen = [event.first_seen_at for event in found.events]
    seen += [letter.first_seen_at for letter in found.letters if letter.first_seen_at is not None]
    if found.item is not None:
        seen.append(found.item.seen_at)
    if not seen and found.known is not None and found.known.first_seen_at is not None:
        seen.append(found.known.first_seen_at)
    if not seen:
        return
    where = f" in {_watch_words(found.watch)}" if found.watch else ""
    reason = found.known.reason if found.known else None
    note = f"; not sent: {reason}" if reason in _NOT_SENT and not found.events else ""
    yield TimelineEntry(min(seen), "seen", f"first seen{where}{note}", {"reason": reason})


def _attempt_step(attempt: timeline_rows.AttemptRow, batches: Sequence[timeline_rows.BatchRow]) -> TimelineEntry:
    took = None if attempt.finished_at is None else round(attempt.finished_at - attempt.started_at, 3)
    details = {
        "batch_id": next((one.batch_id for one in batches if one.pk == attempt.batch_pk), None),
        "destination": attempt.destination,
        "request_id": attempt.request_id,
        "attempt": attempt.attempt,
        "form": attempt.form,
        "outcome": attempt.outcome,
        "batch_outcome": attempt.batch_outcome,
        "status": attempt.status,
        "reason": attempt.reason_for_event,
        "answer": attempt.answer,
        "seconds": took,
    }
    # `delivered (http 200)`, `refused (http 422: invalid_schema)`, `transient (timeout)`
    if attempt.outcome == "sending":
        answer_words = "no answer yet"
    else:
        status = "" if attempt.status is None else f"http {attempt.status}"
        reason = attempt.reason_for_event or ""
        said = without_code(reason) if reason.startswith(status) else f"{status}: {reason}" if reason else status
        words = f"{attempt.outcome} ({said})" if said else attempt.outcome
        answer_words = f"{words}; the batch was accepted in part" if attempt.batch_outcome == "partial" else words
    text = f"attempt {attempt.attempt} to {attempt.destination}: {answer_words}"
    return TimelineEntry(attempt.started_at, "attempt", text, details)


def _watch_words(watch: timeline_rows.WatchName | None) -> str | None:
    if watch is None:
        return None
    return f"{watch.source} {watch.ref}" + (f" ({watch.name})" if watch.name else "")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
