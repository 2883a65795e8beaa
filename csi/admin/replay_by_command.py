"""Replay dead letters by command: make them pending, and wait for the results if asked. The worker sends them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from csi.dlq import dead_letters, replay
from csi.dlq.replay import RequeueResult
from csi.runtime import Runtime
from csi.status.backlog import why_not_soon
from csi.store.db import chunks

CHUNK = 50
RESULT_CHECK_SECONDS = 0.25
GOOD_RESULTS = ("delivered", "became ")


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
        results = replay.replay(letters, rt.now(), known=rt.destinations, streaming=rt.streaming_sources())
        done = {result.letter_id: result for result in results}
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
        rest(RESULT_CHECK_SECONDS)


def obstacles(rt: Runtime, outcomes: Sequence[RequeueResult]) -> list[str]:
    """Reasons why the events that are pending again will not be sent soon."""
    sent = [one.letter_id for one in outcomes if one.is_sent]
    return why_not_soon(rt, dict.fromkeys(one.destination for one in dead_letters.by_ids(sent) if one.destination))
