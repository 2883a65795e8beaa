"""Dead letters that go out again by themselves: when the receiver works again, or long after a crash (DECISIONS 24)."""

from csi.dlq import dead_letters, replay
from csi.dlq.dead_letters import StoredDeadLetter
from csi.emitter.destination import LANES
from csi.logs import log
from csi.pipeline import destination_state
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, destinations, outbox

AT_ONCE = 500
"""When the receiver comes back: more than one batch, which is what an outage kills. The ramp keeps it gentle."""

AT_A_TIME = 50
CRASH_REST = 120.0
"""Seconds that an event rests after its sending ended the process three times."""


def redrive(rt: Runtime) -> list[Wake]:
    """What may go out again, to every destination; ask a receiver whether it works where nobody else will."""
    return [wake for name in rt.destinations for wake in _redrive_to(rt, name)] if is_on(rt) else []


def send_first(rt: Runtime, name: str) -> list[Wake]:
    """The receiver has just come back. In the transaction that says so, what died of its absence takes its old place
    before everything that waits: so an outage ends in order."""
    return _send(rt, name, AT_ONCE) if is_on(rt) else []


def comes_first(rt: Runtime, name: str) -> bool:
    """Dead letters wait for this receiver: none of the younger events may ask whether it is back.

    Until one of them has asked and was not taken by a receiver that answers: it may be the event's own fault, and the
    next to ask is another one.
    """
    return _first(rt, name) is not None and not batches.letter_was_tried(name, destinations.get(name).opened_at or 0.0)


def ask_with_first(rt: Runtime, name: str) -> list[Wake]:
    """The receiver answers again. Before it counts as back, one dead letter asks whether it takes events, too.

    Should it not, the letter is laid back (see `settle`): a receiver that only greets must not use up the rounds.
    """
    letter, now = _first(rt, name), rt.now()
    if letter is None or not replay.replay([letter], now, in_front=True)[0].is_sent:
        return []
    found = outbox.pending_entry(letter.event_id, name)
    if found is None:
        return []
    entry, tier = found
    return [
        Wake("deliver", batches.create([entry], destination=name, tier=tier, now=now, probe=True, letter_id=letter.id))
    ]


def _has_pending(name: str) -> bool:
    return any(outbox.oldest_due(name, tier) is not None for tier in LANES)


def _first(rt: Runtime, name: str) -> StoredDeadLetter | None:
    return dead_letters.first_waiting(name, rt.settings.dlq.max_redrive_rounds) if is_on(rt) else None


def is_on(rt: Runtime) -> bool:
    return rt.settings.dlq.auto_redrive and rt.settings.features.delivery


def _redrive_to(rt: Runtime, name: str) -> list[Wake]:
    match destination_state.look(destinations.get(name), rt.now()):
        case "open":
            return _send(rt, name, AT_A_TIME)
        case "probe" if comes_first(rt, name) or (_first(rt, name) is not None and not _has_pending(name)):
            return [Wake("probe", name)]
    return []


def _send(rt: Runtime, name: str, limit: int) -> list[Wake]:
    now, rounds = rt.now(), rt.settings.dlq.max_redrive_rounds
    success_at = destinations.get(name).last_success_at or 0.0
    letters = dead_letters.redrivable(name, rounds, success_at=success_at, crash_before=now - CRASH_REST, limit=limit)
    if not letters:
        return []
    sent = sum(outcome.is_sent for outcome in replay.replay(letters, now, in_front=True))
    log.info("dead letters go out again", destination=name, events=sent)
    return [Wake("flush", f"{name}/{tier}", urgent=tier == "urgent") for tier in LANES]
