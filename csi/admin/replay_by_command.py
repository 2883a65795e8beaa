"""Dead letters sent again by command: rows change here, the worker sends, and whoever wants may wait for the result."""

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
    """How a replay ended. `result` None: it has not, yet."""

    letter_id: int
    result: str | None

    @property
    def is_good(self) -> bool:
        return self.result is not None and (self.result.startswith(GOOD_RESULTS) or self.result == "known already")


def replay_all(
    rt: Runtime, ids: Sequence[int], notice: Callable[[int], None] = lambda done: None
) -> list[RequeueResult]:
    """Send these again, in the order given, some in each transaction: an interruption leaves whole ones behind."""
    outcomes: list[RequeueResult] = []
    for chunk in chunks(ids, CHUNK):
        outcomes += _replay_some(rt, chunk)
        notice(len(chunk))
    return outcomes


def _replay_some(rt: Runtime, ids: Sequence[int]) -> list[RequeueResult]:
    letters = dead_letters.by_ids(ids)
    done = {outcome.letter_id: outcome for outcome in replay.replay(letters, rt.now(), known=rt.destinations)}
    absent = "there is no such dead letter"
    return [done.get(number) or RequeueResult(number, "", is_sent=False, note=absent) for number in ids]


def wait_for_results(
    ids: Sequence[int],
    seconds: float,
    notice: Callable[[int], None] = lambda done: None,
    rest: Callable[[float], None] = time.sleep,
) -> list[ReplayResult]:
    """Look until every replay has ended, or the time is up."""
    deadline, ended = time.monotonic() + seconds, 0
    while True:
        results = [ReplayResult(letter.id, _ending(letter)) for letter in dead_letters.by_ids(ids)]
        now_ended = sum(one.result is not None for one in results)
        notice(now_ended - ended)
        ended = now_ended
        if ended == len(results) or time.monotonic() >= deadline:
            return results
        rest(LOOK_SECONDS)


def _ending(letter: dead_letters.StoredDeadLetter) -> str | None:
    """An open letter is one that was called back: it did not go out."""
    if letter.state == "replaying":
        return None
    return letter.result or f"is {letter.state}"


def obstacles(rt: Runtime, names: Sequence[str]) -> list[str]:
    """Why what is pending now will not go out soon."""
    now, beat = rt.now(), heartbeats.last_beat("worker")
    found = [] if beat is not None and abs(now - beat) < ALIVE_SECONDS else ["no worker seems to run; start one"]
    if not rt.settings.features.delivery:
        return [*found, "delivery is switched off (features.delivery)"]
    for name in dict.fromkeys(names):
        endpoint = destinations.get(name)
        match destination_state.current(endpoint, now):
            case "paused":
                found.append(f"delivery to {name} is paused by command: {endpoint.held}; csi delivery resume")
            case "throttled":
                found.append(f"{name} asked for a pause: {endpoint.last_error}")
            case "circuit_open" | "half_open":
                found.append(f"{name} is away: {endpoint.reason}")
    return found
