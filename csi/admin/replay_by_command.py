"""Replay dead letters by command: make them pending, and wait for the results if asked. The worker sends them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from csi.dlq import dead_letters, replay
from csi.dlq.replay import RequeueResult
from csi.pipeline import destination_state
from csi.runtime import Runtime
from csi.store import destinations, heartbeats
from csi.store.db import chunks

CHUNK = 50
LOOK_SECONDS = 0.25
GOOD_RESULTS = ("delivered", "became ")
ALIVE_SECONDS = 30.0


@dataclass(frozen=True)
class ReplayResult:
    """How a replay ended. `result` is None while it has not ended."""

    letter_id: int
    result: str | None

    @property
    def is_good(self) -> bool:
        return self.result is not None and (self.result.startswith(GOOD_RESULTS) or self.result == "known already")


def replay_all(
    rt: Runtime, ids: Sequence[int], notice: Callable[[int], None] = lambda done: None
) -> list[RequeueResult]:
    """Make these pending again in the given order, one transaction per chunk: an interruption loses no chunk."""
    outcomes: list[RequeueResult] = []
    for chunk in chunks(ids, CHUNK):
        letters = dead_letters.by_ids(chunk)
        done = {outcome.letter_id: outcome for outcome in replay.replay(letters, rt.now(), known=rt.destinations)}
        absent = "this dead letter does not exist"
        outcomes += [done.get(number) or RequeueResult(number, "", is_sent=False, note=absent) for number in chunk]
        notice(len(chunk))
    return outcomes


def wait_for_results(
    ids: Sequence[int],
    seconds: float,
    notice: Callable[[int], None] = lambda done: None,
    rest: Callable[[float], None] = time.sleep,
) -> list[ReplayResult]:
    """Poll until every replay has ended, or the time is up."""
    deadline, ended = time.monotonic() + seconds, 0
    while True:
        # A dead letter that is open again was reopened: its event was not sent.
        results = [
            ReplayResult(letter.id, None if letter.state == "replaying" else letter.result or f"is {letter.state}")
            for letter in dead_letters.by_ids(ids)
        ]
        now_ended = sum(one.result is not None for one in results)
        notice(now_ended - ended)
        ended = now_ended
        if ended == len(results) or time.monotonic() >= deadline:
            return results
        rest(LOOK_SECONDS)


def obstacles(rt: Runtime, names: Sequence[str]) -> list[str]:
    """Reasons why pending events will not be sent soon."""
    now, beat = rt.now(), heartbeats.last_beat("worker")
    found = [] if beat is not None and abs(now - beat) < ALIVE_SECONDS else ["no worker is running; start one"]
    if not rt.settings.features.delivery:
        return [*found, "delivery is disabled (features.delivery)"]
    for name in dict.fromkeys(names):
        endpoint = destinations.get(name)
        match destination_state.current(endpoint, now):
            case "paused":
                found.append(f"delivery to {name} is paused by the operator: {endpoint.held}; csi delivery resume")
            case "throttled":
                found.append(f"{name} is throttled by its receiver: {endpoint.last_error}")
            case "circuit_open" | "half_open":
                found.append(f"the circuit of {name} is open: {endpoint.reason}")
    return found
