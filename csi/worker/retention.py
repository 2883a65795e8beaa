"""Retention: delete rows that are older than their configured time, in small chunks."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from csi.logs import log
from csi.pipeline import clock_check
from csi.runtime import Runtime
from csi.store import heartbeats, inbound_messages, retention
from csi.store.retention import RetentionLimits

DAY = 86_400.0
CHUNKS_PER_RUN = 1_000
"""For the hourly task: about twenty seconds of one worker thread, half of them paused."""

NAME = retention.HEARTBEAT
SHORTEST_REST, LONGEST_REST = 0.01, 0.25
MAX_STEP = DAY
KEY_MARGIN = DAY
"""Keys are kept for so long beyond `dedupe_days`."""

TABLES = ("events", "batch_events", "batches", "delivery_attempts", "dead_letter", "dedupe_keys", "poll_history")


@dataclass(frozen=True)
class Pruned:
    """Deleted rows by table. `complete` False: there are more, and the next run continues."""

    removed: dict[str, int] = field(default_factory=dict)
    complete: bool = True
    open_dead_letters: int = 0
    """Open dead letters older than `dlq_days`. They are kept until the operator replays or discards them."""

    @property
    def total(self) -> int:
        return sum(self.removed.values())


def limits(rt: Runtime, moment: float) -> RetentionLimits:
    days = rt.settings.retention
    return RetentionLimits(
        events=moment - days.events_days * DAY, dead_letters=moment - days.dlq_days * DAY, keys=moment - KEY_MARGIN
    )


def prune_hourly(rt: Runtime) -> Pruned:
    """One bounded run; none while the clock is not trusted."""
    if clock_check.is_held(rt):
        return Pruned(complete=False)
    moment = trusted_moment(rt, NAME)
    inbound_messages.delete_old(moment - rt.settings.inbound.keep_days * DAY)
    done = prune(rt, moment=moment, max_chunks=CHUNKS_PER_RUN)
    if done.total:
        log.info("old rows were removed", complete=done.complete, **done.removed)
    if done.open_dead_letters:
        log.warning("open dead letters are older than dlq_days; replay or discard them", letters=done.open_dead_letters)
    return done


def trusted_moment(rt: Runtime, name: str) -> float:
    """The time that retention uses. It advances by at most a day from one run of this name to the next, so that a clock
    that jumps ahead does not delete everything."""
    now, last = rt.now(), heartbeats.last_beat(name)
    moment = now if last is None else min(now, last + MAX_STEP)
    if moment < now:
        log.warning("clock moved more than a day; retention advances by one day", days=round((now - moment) / DAY, 1))
    return moment


def prune(
    rt: Runtime,
    *,
    moment: float | None = None,
    max_chunks: int | None = None,
    rest: Callable[[float], None] = time.sleep,
    notice: Callable[[int], None] = lambda rows: None,
) -> Pruned:
    """Delete what is old by the clock `moment`, with a pause between two chunks so that other writers get the
    lock. Without `moment` the wall clock is used, if the worker trusts it."""
    if moment is None:
        clock_check.require_no_hold(rt)
        moment = rt.now()
    bounds = limits(rt, moment)
    heartbeats.write(NAME, moment, moment)  # before the first key is deleted: `has_forgotten_keys` reads it
    removed, chunks = Counter(dict.fromkeys(TABLES, 0)), 0
    for step in retention.STEPS:
        after: object = 0
        while after is not None:
            if max_chunks is not None and chunks >= max_chunks:
                return Pruned(dict(removed), False, retention.old_open_dead_letters(bounds.dead_letters))
            started = time.monotonic()
            chunk = step(bounds, after)
            removed.update(chunk.removed)
            after, chunks = chunk.after, chunks + bool(chunk.total)
            notice(chunk.total)
            if chunk.total:
                # As long as the chunk took: other writers get half of the time.
                rest(min(max(time.monotonic() - started, SHORTEST_REST), LONGEST_REST))
    return Pruned(dict(removed), True, retention.old_open_dead_letters(bounds.dead_letters))


def survey(rt: Runtime) -> Pruned:
    """What `prune` would remove now."""
    bounds = limits(rt, rt.now())
    return Pruned(retention.survey(bounds), True, retention.old_open_dead_letters(bounds.dead_letters))
