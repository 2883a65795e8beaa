"""Where the processor time of an event goes: each step of the walk by itself, in one thread, without a queue.

`python -m ops.bench.steps [--count 2000]`: milliseconds per event. What the worker uses beyond the sum is its start,
Huey's part, and the threads' way of sharing one interpreter.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from csi import clock
from csi.pipeline import deliver, flush, ingest, poll, schedule
from csi.pipeline.settle import AttemptResult, ClaimedBatch
from csi.pipeline.wake import Wake
from csi.runtime import Runtime, open_runtime
from csi.store import db, inbox
from ops.bench import stage

FAR_SECONDS = 86_400.0
"""Later than any wake time of an item: all of them are overdue then."""

STEPS = ("poll", "ingest", "open", "send", "settle")


class Meter:
    """Processor time by step."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()

    def run(self, step: str, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return work(*args, **options)
        finally:
            self.spent[step] += time.process_time() - began  # type: ignore[assignment]


def measure(tier: str, count: int) -> dict[str, float]:
    """Milliseconds of an event, by step."""
    with (
        tempfile.TemporaryDirectory(prefix="csi-bench-") as home,
        stage.receiver() as to,
        stage.source(count) as origin,
        db.connection(),
    ):
        config = stage.configure(Path(home), origin, tier)
        rt, meter = open_runtime(config, stage.environment(config, to)), Meter()
        schedule.sync_watches(rt)
        _take_in(rt, meter)
        rt.now = lambda: clock.now() + 1.0  # the last ones, too few for a batch, have waited long enough
        _send_out(rt, meter, f"default/{tier}")
        assert to.counts()["events"] == count
    return {step: 1000 * meter.spent[step] / count for step in STEPS}


def _take_in(rt: Runtime, meter: Meter) -> None:
    """Every item becomes an event, the later ones of a flood before their time."""
    due = schedule.plan(rt, horizon=0)
    waiting = [
        wake
        for watch in due
        for wakes in meter.run("poll", list, poll.poll(rt, int(watch.key)))
        for wake in wakes
        if wake.step == "ingest"
    ]
    while waiting:
        for wake in waiting:
            meter.run("ingest", ingest.ingest, rt, int(wake.key))
        waiting = [Wake("ingest", number) for number in inbox.overdue(rt.now() + FAR_SECONDS)]


def _send_out(rt: Runtime, meter: Meter, lane: str) -> None:
    """As a sending thread does it: the commit that settles a batch claims the next one."""
    send = deliver._send_in_form

    def metered(rt: Runtime, claimed: ClaimedBatch) -> AttemptResult:
        return meter.run("send", send, rt, claimed)  # type: ignore[no-any-return]

    deliver._send_in_form = metered
    try:
        while opened := meter.run("open", flush.flush, rt, lane):
            meter.run("settle", list, deliver.deliver(rt, int(opened[0].key)))
    finally:
        deliver._send_in_form = send
    meter.spent["settle"] -= meter.spent["send"]  # it is inside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {tier: measure(tier, options.count) for tier in ("standard", "urgent")}
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'CPU ms per event':18}" + "".join(f"{step:>9}" for step in (*STEPS, "sum")))
    for tier, steps in found.items():
        print(f"{tier:18}" + "".join(f"{value:9.3f}" for value in (*steps.values(), sum(steps.values()))))


if __name__ == "__main__":
    main()
