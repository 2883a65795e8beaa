"""Auto-redrive: dead letters are sent again when the receiver recovers, or some time after a crash."""

import math
from collections.abc import Sequence

from csi.dlq import dead_letters, replay
from csi.dlq.dead_letters import StoredDeadLetter
from csi.emitter.destination import LANES
from csi.emitter.failure_cause import REFUSES_ALL
from csi.logs import log
from csi.pipeline import destination_state
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, destinations, outbox
from csi.store.batches import TriedProbes

AT_ONCE = 500
"""Letters when the receiver recovers: more than one batch, which is what an outage kills. The ramp limits requests."""

AT_A_TIME = 50
CRASH_REST = 120.0
"""Seconds before an event is sent again whose sending ended the process three times."""


def redrive(rt: Runtime) -> list[Wake]:
    """Send what may be sent again, to every destination; probe a receiver where no pending event does."""
    wakes: list[Wake] = []
    for name in rt.destinations if rt.settings.features.delivery else ():
        if rt.destinations[name].quiet_until(rt.now()) is not None:
            continue
        match destination_state.current(destinations.get(name), rt.now()):
            case "accepting":
                wakes += _send(rt, name, AT_A_TIME)
            case "half_open":
                # Where events are due, the flush of their lane sends the probe; without them redrive has to.
                due_times = (outbox.oldest_due(name, tier) or math.inf for tier in LANES)
                if comes_first(rt, name) or (_may_probe_empty(rt, name) and min(due_times) > rt.now()):
                    wakes.append(Wake("probe", name))
    return wakes


def send_first(rt: Runtime, name: str) -> list[Wake]:
    """The circuit closes. In the same transaction, the events that died meanwhile become pending before everything that
    waits, so that an outage ends in order. Every lane is woken."""
    _send(rt, name, AT_ONCE)
    return _every_lane(name)


def comes_first(rt: Runtime, name: str) -> bool:
    """Dead letters wait for this receiver, so no younger event may be the probe.

    Unless one of them was the last probe and a receiver that answers did not accept it: that may be the event's own
    fault, and the next probe is another event. Then it is a dead letter's turn again.
    """
    return _candidate(rt, name) is not None and not tried_probes(name).last_was_dead_letter


def tried_probes(name: str) -> TriedProbes:
    return batches.tried_probes(name, destinations.get(name).opened_at or 0.0)


def probe_with_first(rt: Runtime, name: str) -> list[Wake]:
    """The receiver answered an empty batch. Before the circuit closes, one dead letter tests whether it accepts events.

    If it does not, the letter is open again (see `settle`): such a receiver must not use up the letter's rounds.
    """
    letter, now = _candidate(rt, name), rt.now()
    # Part of the caller's transaction: the letter is `replaying` and in a batch in one commit, or neither.
    if letter is None or not _requeue(rt, [letter]):
        return []
    found = outbox.pending_entry(letter.event_id, name)
    if found is None:
        return []
    entry, tier = found
    return [
        Wake("deliver", batches.create([entry], destination=name, tier=tier, now=now, probe=True, letter_id=letter.id))
    ]


def _may_probe_empty(rt: Runtime, name: str) -> bool:
    """Where the receiver refuses every event, an empty batch proves nothing: a dead letter must be there, which is
    sent after it, or instead of it where the receiver does not know empty batches."""
    is_refused = (destinations.get(name).reason or "").startswith(REFUSES_ALL)
    knows = rt.destinations[name].profile.takes_empty_batch
    return (knows and not is_refused) or _candidate(rt, name) is not None


def _candidate(rt: Runtime, name: str) -> StoredDeadLetter | None:
    """The dead letter that is the next probe: the oldest one, and after each that was refused the next one."""
    found = dead_letters.probe_candidates(name, rt.settings.dlq.max_redrive_rounds) if is_on(rt) else []
    return found[tried_probes(name).dead_letters_refused % len(found)] if found else None


def is_on(rt: Runtime) -> bool:
    return rt.settings.dlq.auto_redrive and rt.settings.features.delivery


def _send(rt: Runtime, name: str, limit: int) -> list[Wake]:
    if not is_on(rt):
        return []
    now, rounds = rt.now(), rt.settings.dlq.max_redrive_rounds
    # A letter that died after the last success waits: the receiver has not accepted anything since.
    success_at = destinations.get(name).last_success_at or 0.0
    letters = dead_letters.redrivable(name, rounds, success_at=success_at, crash_before=now - CRASH_REST, limit=limit)
    if not letters:
        return []
    # Every lane is woken: the letters may be of any, and a flush of an empty lane costs one query.
    log.info("dead letters are sent again", destination=name, events=_requeue(rt, letters))
    return _every_lane(name)


def _every_lane(name: str) -> list[Wake]:
    return [Wake("flush", f"{name}/{tier}", urgent=tier == "urgent") for tier in LANES]


def _requeue(rt: Runtime, letters: Sequence[StoredDeadLetter]) -> int:
    """How many of them are pending now, each before everything that is younger."""
    results = replay.replay(letters, rt.now(), streaming=rt.streaming_sources(), in_front=True)
    return sum(result.is_sent for result in results)
