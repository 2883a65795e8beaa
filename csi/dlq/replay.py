"""Replay dead letters: make the same event, with the same id, pending again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from csi import clock
from csi.config.delivery_settings import STREAM
from csi.dlq import dead_letters
from csi.dlq.dead_letters import StoredDeadLetter
from csi.errors import CsiError
from csi.ingester.event import CreatorSignalEvent
from csi.store import dedupe, events, inbox, outbox, watches
from csi.store.db import writing

REBUILT_TIER = "standard"
"""The tier of an event that is rebuilt from its dead letter: its row, and with it its tier, is gone."""


class ReplayRefused(CsiError):
    """This dead letter cannot be replayed; the text says why."""


@dataclass(frozen=True)
class RequeueResult:
    """Whether one dead letter was made pending again. It is not sent yet."""

    letter_id: int
    event_id: str
    is_sent: bool
    note: str


def replay(
    letters: Sequence[StoredDeadLetter],
    now: float,
    *,
    known: Collection[str] | None = None,
    streaming: Collection[str] = (),
    in_front: bool = False,
) -> list[RequeueResult]:
    """Make these pending again in one transaction; a refused dead letter keeps its state, and its result says why.

    `known` are the configured destinations; None skips that check. Events of the sources in `streaming` are queued in
    the lane `stream`, the others in the lane of their tier. With `in_front` an event is queued by its age, before newer
    events. Nothing is sent here: the worker does that.
    """
    results = []
    with writing():
        for letter in letters:
            due_at = min(letter.first_seen_at or now, now) if in_front else now
            try:
                lane = STREAM if letter.source in streaming else None
                note, is_sent = _requeue(letter, due_at, known, lane), True
            except ReplayRefused as error:
                note, is_sent = str(error), False
            results.append(RequeueResult(letter.id, letter.event_id, is_sent, note))
    return results


def _requeue(letter: StoredDeadLetter, due_at: float, known: Collection[str] | None, lane: str | None) -> str:
    if letter.kind == "event" and known is not None and letter.destination not in known:
        raise ReplayRefused(f"its destination {letter.destination!r} is no longer configured")
    if not dead_letters.begin_replay(letter.id):
        raise ReplayRefused(_why_not_open(dead_letters.find(letter.id)))
    try:
        return _requeue_item(letter, due_at) if letter.kind == "item" else _requeue_event(letter, due_at, lane)
    except ReplayRefused:
        dead_letters.reopen(letter.id)
        raise


def _requeue_event(letter: StoredDeadLetter, due_at: float, lane: str | None) -> str:
    """Put the event into the outbox. The dead letter closes when the event is delivered or dies again."""
    # After a failed replay the event is sent alone, so that it cannot spoil a batch a second time.
    if outbox.requeue(letter.event_id, letter.destination, due_at=due_at, lane=lane, alone=letter.rounds > 0):
        return "pending"
    if events.is_stored(letter.event_id):
        return "already in the outbox; the dead letter closes with its delivery"
    # Retention deleted the event's row: rebuild it from the dead letter's payload.
    try:
        event = CreatorSignalEvent.model_validate(letter.payload)
    except ValidationError as error:
        raise ReplayRefused("its payload is not a valid event, and the event is no longer stored") from error
    if event.event_id != letter.event_id:
        raise ReplayRefused("its payload belongs to another event")
    seen_at = letter.first_seen_at or letter.died_at
    event_pk = events.add(event, watch_id=None, seq=0, tier=REBUILT_TIER, first_seen_at=seen_at)
    if event_pk is None:
        raise ReplayRefused("its event cannot be stored again")
    outbox.put(event_pk, [letter.destination], tier=lane or REBUILT_TIER, watch_id=None, seq=0, due_at=due_at)
    return "pending; its event was rebuilt from the dead letter"


def _requeue_item(letter: StoredDeadLetter, now: float) -> str:
    """Put the raw item back into the inbox, where it is normalized again: the adapter may have been fixed."""
    raw = letter.payload.get("raw")
    if not isinstance(raw, dict) or not isinstance(raw.get("payload"), dict):
        raise ReplayRefused("its raw payload cannot be read")
    watch_id = watches.find_id(letter.source, str(raw.get("watch")))
    if watch_id is None:
        raise ReplayRefused(f"its watch {str(raw.get('watch'))[:80]!r} no longer exists")
    texts = str(raw.get("event_type") or ""), str(raw.get("occurred_at") or "")
    item = inbox.NewItem(letter.event_id, *texts, raw["payload"])
    seen_at = letter.first_seen_at or letter.died_at
    if not inbox.requeue(watch_id, item, letter_id=letter.id, seen_at=seen_at, now=now):
        raise ReplayRefused("it is already in the inbox")
    dedupe.forget(letter.event_id, "malformed")
    return "back in the inbox; it is normalized again"


def _why_not_open(letter: StoredDeadLetter | None) -> str:
    if letter is None:
        return "this dead letter no longer exists"
    if letter.state == "replaying":
        return "it is already being replayed"
    when = clock.iso(letter.closed_at) if letter.closed_at is not None else "an unknown time"
    return f"it was {letter.state} at {when} ({letter.result or 'no result'})"
