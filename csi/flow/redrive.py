"""Dead letters that go out again by themselves: when the receiver works again, or long after a crash (DECISIONS 24)."""

from csi.dlq import replay
from csi.dlq import store as dlq
from csi.emitter.destination import LANES
from csi.flow import gate
from csi.flow.wake import Wake
from csi.logs import log
from csi.runtime import Runtime
from csi.store import endpoints

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
    """Dead letters wait for this receiver: none of the younger events may ask whether it is back."""
    return is_on(rt) and dlq.waits_for(name, rt.settings.dlq.max_redrive_rounds)


def is_on(rt: Runtime) -> bool:
    return rt.settings.dlq.auto_redrive and rt.settings.features.delivery


def _redrive_to(rt: Runtime, name: str) -> list[Wake]:
    match gate.look(endpoints.get(name), rt.now()):
        case "open":
            return _send(rt, name, AT_A_TIME)
        case "probe" if comes_first(rt, name):
            return [Wake("probe", name)]
    return []


def _send(rt: Runtime, name: str, limit: int) -> list[Wake]:
    now, rounds = rt.now(), rt.settings.dlq.max_redrive_rounds
    success_at = endpoints.get(name).last_success_at or 0.0
    letters = dlq.redrivable(name, rounds, success_at=success_at, crash_before=now - CRASH_REST, limit=limit)
    if not letters:
        return []
    sent = sum(outcome.is_sent for outcome in replay.replay(letters, now, in_front=True))
    log.info("dead letters go out again", destination=name, events=sent)
    return [Wake("flush", f"{name}/{tier}", urgent=tier == "urgent") for tier in LANES]
