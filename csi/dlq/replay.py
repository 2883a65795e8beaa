"""Dead letters on their way back: the same event, the same id, once more through the line."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from csi import clock
from csi.dlq import dead_letters
from csi.dlq.dead_letters import StoredDeadLetter
from csi.errors import CsiError
from csi.ingester.event import CreatorSignalEvent
from csi.store import dedupe, events, inbox, outbox, watches
from csi.store.db import writing

REBUILT_TIER = "standard"
"""The tier of an event whose row is gone: whatever it was, it is not urgent any more."""


class ReplayRefused(CsiError):
    """This letter cannot go out again; the text says why."""


@dataclass(frozen=True)
class RequeueResult:
    """What came of one letter."""

    letter_id: int
    event_id: str
    is_sent: bool
    note: str


def replay(
    letters: Sequence[StoredDeadLetter], now: float, *, known: Collection[str] | None = None, in_front: bool = False
) -> list[RequeueResult]:
    """Make these pending again, in one transaction; a letter that cannot go stays as it is and says why.

    `known` are the destinations that exist; None: do not ask. `in_front`: each at the place that its age gives it,
    before what has come since. Nothing is sent here: the worker does that.
    """
    with writing():
        return [_replay_one(letter, _due_at(letter, now, in_front=in_front), known) for letter in letters]


def _due_at(letter: StoredDeadLetter, now: float, *, in_front: bool) -> float:
    return min(letter.first_seen_at or now, now) if in_front else now


def _replay_one(letter: StoredDeadLetter, due_at: float, known: Collection[str] | None) -> RequeueResult:
    try:
        note = _send_again(letter, due_at, known)
    except ReplayRefused as error:
        return RequeueResult(letter.id, letter.event_id, is_sent=False, note=str(error))
    return RequeueResult(letter.id, letter.event_id, is_sent=True, note=note)


def _send_again(letter: StoredDeadLetter, due_at: float, known: Collection[str] | None) -> str:
    if letter.kind == "event" and known is not None and letter.destination not in known:
        raise ReplayRefused(f"its destination {letter.destination!r} is not configured any more")
    if not dead_letters.begin_replay(letter.id):
        raise ReplayRefused(_why_not_open(dead_letters.find(letter.id)))
    try:
        return _item_again(letter, due_at) if letter.kind == "item" else _event_again(letter, due_at)
    except ReplayRefused:
        dead_letters.reopen(letter.id)
        raise


def _event_again(letter: StoredDeadLetter, due_at: float) -> str:
    """The letter closes when the event arrives or dies again, whichever way it got onto the line."""
    if outbox.put_again(letter.event_id, letter.destination, due_at=due_at, alone=letter.rounds > 0):
        return "pending"
    if events.is_stored(letter.event_id):
        return "is on its way already; the letter closes with it"
    event_pk = events.add(
        _rebuilt(letter), watch_id=None, seq=0, tier=REBUILT_TIER, first_seen_at=letter.first_seen_at or letter.died_at
    )
    if event_pk is None:
        raise ReplayRefused("its event cannot be stored again")
    outbox.put(event_pk, [letter.destination], tier=REBUILT_TIER, watch_id=None, seq=0, due_at=due_at)
    return "pending; its event was made anew from the letter"


def _rebuilt(letter: StoredDeadLetter) -> CreatorSignalEvent:
    try:
        event = CreatorSignalEvent.model_validate(letter.payload)
    except ValidationError as error:
        raise ReplayRefused("its payload is not a valid event, and the event itself is not stored any more") from error
    if event.event_id != letter.event_id:
        raise ReplayRefused("its payload is that of another event")
    return event


def _item_again(letter: StoredDeadLetter, now: float) -> str:
    """The raw item goes back to where it came from, and is normalized anew: the adapter may have been mended."""
    raw = letter.payload.get("raw")
    if not isinstance(raw, dict) or not isinstance(raw.get("payload"), dict):
        raise ReplayRefused("its raw payload cannot be read")
    watch_id = watches.find_id(letter.source, str(raw.get("watch")))
    if watch_id is None:
        raise ReplayRefused(f"its watch {str(raw.get('watch'))[:80]!r} is not known any more")
    seen_at = letter.first_seen_at or letter.died_at
    if not inbox.put_again(watch_id, _item(letter, raw), letter_id=letter.id, seen_at=seen_at, now=now):
        raise ReplayRefused("it waits in the inbox already")
    dedupe.forget(letter.event_id, "malformed")
    return "back in the inbox; it is normalized again"


def _item(letter: StoredDeadLetter, raw: dict[str, Any]) -> inbox.NewItem:
    return inbox.NewItem(
        letter.event_id, str(raw.get("event_type") or ""), str(raw.get("occurred_at") or ""), raw["payload"]
    )


def _why_not_open(letter: StoredDeadLetter | None) -> str:
    if letter is None:
        return "there is no such letter any more"
    if letter.state == "replaying":
        return "it is being replayed already"
    when = clock.iso(letter.closed_at) if letter.closed_at is not None else "some time ago"
    return f"it was {letter.state} at {when} ({letter.result or 'no result'})"
