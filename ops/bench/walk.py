"""The walk in one thread, without a queue: what each step costs by itself."""

import sys
import time
from collections.abc import Callable

from csi.pipeline import deliver, flush, ingest, poll, rescue, schedule
from csi.pipeline.wake import Wake
from csi.runtime import Runtime

DEADLINE = 120.0


def walk(rt: Runtime, until: Callable[[], bool]) -> None:
    """Do what is due, again and again, until it is enough."""
    end = time.monotonic() + DEADLINE
    while not until():
        if time.monotonic() > end:
            sys.exit(f"the walk was not over after {DEADLINE:g} s")
        todo = [*schedule.plan(rt, horizon=0), *rescue.rescue(rt)]
        if not todo:
            time.sleep(0.05)
        while todo:
            todo += [wake for wake in step(rt, todo.pop(0)) if wake.at is None]


def step(rt: Runtime, wake: Wake) -> list[Wake]:
    match wake.step:
        case "poll":
            return [wake for wakes in poll.poll(rt, int(wake.key)) for wake in wakes]
        case "ingest":
            return ingest.ingest(rt, int(wake.key))
        case "ahead":
            return ingest.ingest_ahead(rt, int(wake.key))
        case "flush":
            return flush.flush(rt, str(wake.key))
        case "deliver":
            return [wake for wakes in deliver.deliver(rt, int(wake.key)) for wake in wakes]
        case "probe":
            return deliver.probe(rt, str(wake.key))
    return []
