"""What makes the walk safe: find rows whose wake-up was lost, whose holder died, or whose time has come."""

from csi.dlq import replay
from csi.dlq import store as dlq
from csi.flow import flush, gate
from csi.flow.plan import plan
from csi.flow.wake import Wake
from csi.ingester.config import TIERS
from csi.logs import log
from csi.runtime import Runtime
from csi.store import batches, db, endpoints, events, inbox, leases

CROWDED = 2_000
"""With this many tasks in the queue a row waits because it is not its turn, not because its wake-up was lost."""


def rescue(rt: Runtime, queue_depth: int = 0) -> list[Wake]:
    """Everything that is due now and that nobody seems to have woken. Cheap when nothing is."""
    wakes = [*plan(rt, horizon=0), *_flush_due(rt)]
    if queue_depth < CROWDED:
        wakes += _overdue(rt)
    return wakes


def recover(rt: Runtime) -> int:
    """At start: what a dead worker held is free again. Only where no other worker can be alive."""
    if db.is_postgres():
        return 0
    freed = leases.release_all(rt.now())
    if freed:
        log.info("work of a worker that died is taken up again", rows=freed)
    return freed


def redrive(rt: Runtime) -> list[Wake]:
    """Dead letters of the receiver's fault go out again when it works; ask whether it does when nobody else will."""
    rule, now, endpoint = rt.settings.dlq, rt.now(), endpoints.get()
    if not (rule.auto_redrive and rt.settings.features.delivery):
        return []
    waiting = dlq.redrivable(rule.max_redrive_rounds, 1)
    if not waiting:
        return []
    state = gate.look(endpoint, now)
    if state == "open" and (endpoint.last_success_at or 0) >= waiting[0].died_at:
        sent = replay.redrive(now, max_rounds=rule.max_redrive_rounds)
        log.info("dead letters go out again", events=sent)
        return [Wake("flush", tier) for tier in TIERS]
    if state == "probe" and not any(events.waiting(tier)[0] for tier in TIERS):
        return [Wake("probe", endpoint.destination)]
    return []


def _flush_due(rt: Runtime) -> list[Wake]:
    now = rt.now()
    if not rt.settings.features.delivery or gate.look(endpoints.get(), now) in ("paused", "away"):
        return []
    return [Wake("flush", tier, urgent=tier == "urgent") for tier in TIERS if flush.is_due(rt, tier, now)]


def _overdue(rt: Runtime) -> list[Wake]:
    now = rt.now()
    return [
        *(Wake("ingest", item_id) for item_id in inbox.overdue(now)),
        *(Wake("deliver", batch_id) for batch_id in batches.overdue(now)),
    ]
