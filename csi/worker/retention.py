"""Keeping the database small: what is older than its time goes, a little at a time."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from csi.logs import log
from csi.pipeline import clock_check
from csi.runtime import Runtime
from csi.store import heartbeats, retention
from csi.store.retention import RetentionLimits

DAY = 86_400.0
CHUNKS_PER_RUN = 1_000
"""For the hourly task: about twenty seconds of one worker's thread, half of them at rest."""

NAME = retention.HEARTBEAT
SHORTEST_REST, LONGEST_REST = 0.01, 0.25
MAX_STEP = DAY
KEY_MARGIN = DAY
"""Keys are kept for so long beyond `dedupe_days`."""

TABLES = ("events", "batch_events", "batches", "delivery_attempts", "dead_letter", "dedupe_keys")


@dataclass(frozen=True)
class Pruned:
    """What went, by table. `complete` False: there is more, and the next run goes on."""

    removed: dict[str, int] = field(default_factory=dict)
    complete: bool = True
    open_letters: int = 0
    """Open dead letters older than their time. They stay: somebody has to decide."""

    @property
    def total(self) -> int:
        return sum(self.removed.values())


def limits(rt: Runtime, moment: float) -> RetentionLimits:
    days = rt.settings.retention
    return RetentionLimits(
        events=moment - days.events_days * DAY, letters=moment - days.dlq_days * DAY, keys=moment - KEY_MARGIN
    )


def prune_hourly(rt: Runtime) -> Pruned:
    """One bounded run; none while the clock is not trusted."""
    if clock_check.is_held(rt):
        return Pruned(complete=False)
    done = prune(rt, moment=trusted_moment(rt, NAME), max_chunks=CHUNKS_PER_RUN)
    _say(done)
    return done


def trusted_moment(rt: Runtime, name: str) -> float:
    """Now, by a clock that no jump can carry away: it moves by a day at most from one run of this name to the next."""
    now, last = rt.now(), heartbeats.last_beat(name)
    moment = now if last is None else min(now, last + MAX_STEP)
    if moment < now:
        log.warning("retention does not trust a clock that moved this far", days=round((now - moment) / DAY, 1))
    return moment


def prune(
    rt: Runtime,
    *,
    moment: float | None = None,
    max_chunks: int | None = None,
    rest: Callable[[float], None] = time.sleep,
    notice: Callable[[int], None] = lambda rows: None,
) -> Pruned:
    """Delete what is old by the clock `moment`, resting between two chunks so that other writers get the lock. Without
    a moment the wall clock counts, if the worker trusts it."""
    if moment is None:
        clock_check.require_no_hold(rt)
        moment = rt.now()
    bounds = limits(rt, moment)
    heartbeats.beat(NAME, moment, moment)  # before the first key is deleted: `has_forgotten_keys` reads it
    removed, chunks = Counter(dict.fromkeys(TABLES, 0)), 0
    for step in retention.STEPS:
        after: object = 0
        while after is not None:
            if max_chunks is not None and chunks >= max_chunks:
                return Pruned(dict(removed), False, retention.old_open_letters(bounds.letters))
            started = time.monotonic()
            chunk = step(bounds, after)
            removed.update(chunk.removed)
            after, chunks = chunk.after, chunks + bool(chunk.total)
            notice(chunk.total)
            if chunk.total:
                rest(_rest(time.monotonic() - started))
    return Pruned(dict(removed), True, retention.old_open_letters(bounds.letters))


def survey(rt: Runtime) -> Pruned:
    """What `prune` would remove now."""
    bounds = limits(rt, rt.now())
    return Pruned(retention.survey(bounds), True, retention.old_open_letters(bounds.letters))


def _rest(elapsed: float) -> float:
    """As long as the work took: half of the time belongs to others."""
    return min(max(elapsed, SHORTEST_REST), LONGEST_REST)


def _say(done: Pruned) -> None:
    if done.total:
        log.info("old rows were removed", complete=done.complete, **done.removed)
    if done.open_letters:
        log.warning("open dead letters are older than dlq_days; replay or discard them", letters=done.open_letters)
