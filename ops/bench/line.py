"""The line: many items at once, and a steady rate, from the source to the receiver's answer, by the real worker."""

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from ops.bench import stage

STEADY_RATE = 20.0
STEADY_SECONDS = 20.0
SPREAD_SECONDS = 10.0
"""Polls of watches that were added together are spread by then, as they are in service (csi.scheduling.cadence)."""


def at_once(tier: str, count: int) -> dict[str, Any]:
    """All items are there when the worker starts. The clock runs from the first item seen to the last accepted."""
    with (
        tempfile.TemporaryDirectory(prefix="csi-bench-") as home,
        stage.receiver() as to,
        stage.source(count) as origin,
        stage.worker(stage.configure(Path(home), origin, tier), to) as worker,
    ):
        start = stage.cpu_of_start(worker, Path(home) / "state" / "csi.db")
        counts = to.wait_for(count, worker)
        seen, arrived = first_seen(Path(home)), to.arrived()
        return {
            **counts,
            "events_per_second": count / (max(arrived.values()) - min(seen.values())),
            "cpu_ms_per_event": 1000 * (worker.cpu() - start) / count,
            "start_cpu_seconds": start,
            "peak_mb": worker.peak_mb(),
            **stage.quantiles([at - seen[name] for name, at in arrived.items()]),
        }


def first_seen(home: Path, since: float = 0.0) -> dict[str, float]:
    with closing(sqlite3.connect(home / "state" / "csi.db")) as db:
        return dict(db.execute("SELECT event_id, first_seen_at FROM events WHERE first_seen_at >= ?", (since,)))


def steady(seconds: float = STEADY_SECONDS, tier: str = "urgent") -> dict[str, Any]:
    """New items at a steady rate; polls every second."""
    with (
        tempfile.TemporaryDirectory(prefix="csi-bench-") as home,
        stage.receiver() as to,
        stage.source(0, STEADY_RATE) as origin,
        stage.worker(stage.configure(Path(home), origin, tier, interval=1.0), to) as worker,
    ):
        to.wait_for(int(STEADY_RATE), worker)  # it runs
        time.sleep(SPREAD_SECONDS)
        since, before, began = time.time(), worker.cpu(), time.monotonic()
        time.sleep(seconds)
        share = (worker.cpu() - before) / (time.monotonic() - began)
        seen, arrived = first_seen(Path(home), since), to.arrived()
        found = [arrived[name] - at for name, at in seen.items() if name in arrived]
        return {"rate": STEADY_RATE, "events": len(found), "core_percent": 100 * share, **stage.quantiles(found)}
