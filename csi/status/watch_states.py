"""The state of each watch as every surface shows it, and how many watches are in each."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from csi.runtime import Runtime
from csi.scheduling.watch_health import QUIET_GAPS, ReadWatch, shown_state
from csi.status.worker import worker_status
from csi.store import watches
from csi.store.queries import watch_survey
from csi.store.queries.watch_survey import WatchSurvey

STATES = ("healthy", "new", "quiet", "backing_off", "throttled", "outage", "suspect", "dead", "unknown", "paused")
FAILING_STATES = ("backing_off", "throttled", "outage", "suspect", "dead")

FAILURES = 3
"""Failures in a row after which a watch counts as failing."""
FAILING_SECONDS = 60.0
"""Three quick retries of one short fault do not count as failing before this time."""


class PolledWatch(Protocol):
    """The columns of a watch that tell whether it fails."""

    @property
    def errors(self) -> int: ...
    @property
    def health(self) -> str: ...
    @property
    def health_since(self) -> float | None: ...


@dataclass(frozen=True)
class WatchCount:
    """The number of watches of a source in one state. A paused one has no other health."""

    source: str
    state: str
    watches: int


def is_failing(watch: PolledWatch, now: float) -> bool:
    """It failed several times in a row, and not for a moment only. A watch that waits for its host does not fail."""
    if watch.errors < FAILURES or watch.health_since is None or watch.health == "throttled":
        return False
    return now - watch.health_since >= FAILING_SECONDS


def last_poll_failed(watch: PolledWatch) -> bool:
    """Its last poll failed, perhaps for a moment only."""
    return watch.errors > 0


def states_of(rt: Runtime, rows: Iterable[ReadWatch]) -> list[str]:
    """In the order of the rows."""
    is_alive = worker_status(rt).is_alive
    return [shown_state(row, worker_is_alive=is_alive) for row in rows]


def states_by_id(rt: Runtime, ids: Sequence[int]) -> dict[int, str]:
    rows = watches.times_of(ids)
    return {row.id: state for row, state in zip(rows, states_of(rt, rows), strict=True)}


def watch_counts(rt: Runtime, found: WatchSurvey | None = None) -> list[WatchCount]:
    """Of watches that are not removed, in the configured sources. `found`: where the caller has looked at all of them,
    which takes long where they are many."""
    found = found or watch_survey.survey(rt.now(), QUIET_GAPS, paused=True)
    counted = Counter((row.source, state) for row, state in zip(found.others, states_of(rt, found.others), strict=True))
    read = "healthy" if worker_status(rt).is_alive else "unknown"
    for one in found.ordinary:
        counted[one.source, read] += one.number
    sources = rt.settings.sources
    return [WatchCount(name, state, number) for (name, state), number in sorted(counted.items()) if name in sources]
