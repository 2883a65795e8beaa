"""Find rows whose wake-up was lost or whose worker died, and wake them again.

Huey's schedule starts polls, flushes and retries at their time; rescue only repeats wake-ups that are overdue.
"""

from csi.emitter.destination import LANES
from csi.pipeline import destination_state, disk_guard, flush, push_tracking
from csi.pipeline.schedule import plan
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, destinations, inbound_messages, inbox

CROWDED = 2_000
"""With this many tasks in the queue a row waits behind them; its wake-up was not lost."""

FLUSH_GRACE_SECONDS = 1.0
"""How late the scheduled flush of a lane may be before it is repeated. Events that a command put into the outbox have
no scheduled flush, so this is also what `csi dlq replay` waits."""


def rescue(rt: Runtime, queue_depth: int = 0) -> list[Wake]:
    """Wake-ups for every row that is overdue. Cheap when there is none."""
    rt.process.queue_depth = queue_depth
    disk_guard.keep_log_short(rt)
    wakes, now = plan(rt, horizon=0), rt.now()
    for destination in rt.destinations.values() if rt.settings.features.delivery else ():
        name = destination.name
        if destination_state.current(destinations.get(name), now) in ("accepting", "half_open"):
            late = [tier for tier in LANES if flush.is_due(destination, tier, now - FLUSH_GRACE_SECONDS)]
            wakes += [Wake("flush", f"{name}/{tier}", urgent=tier == "urgent") for tier in late]
    if queue_depth >= CROWDED:
        return wakes
    return [
        *wakes,
        *(Wake("inbound", message_id) for message_id in inbound_messages.overdue(now)),
        *push_tracking.due_checks(rt),
        *(Wake("ingest", item_id) for item_id in inbox.overdue(now)),
        *(Wake("deliver", batch_id) for batch_id in batches.overdue(now)),
    ]
