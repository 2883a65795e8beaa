"""The one verdict, `ok`, `degraded` or `down`, and the problems it is made of. Rules over facts; pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from csi import clock
from csi.runtime import Runtime
from csi.status import (
    backup_problems,
    delivery_problems,
    notification_problems,
    push,
    source_problems,
    storage_problems,
    worker_problems,
)
from csi.status.facts import SystemFacts, gather
from csi.status.problems import Check, Problem, explained_by
from csi.status.worker_problems import SET_CLOCK, worker_remedy
from csi.store.held_removals import names
from csi.store.queries.charts import MOST_COUNTED
from csi.store.watches import WatchTimes

OVERDUE_SECONDS = 180.0
"""The least time that a watch with a short interval gets to count as not overdue."""
DEAD_LETTERS = 100
FEW_DEAD = 5
"""Fewer dead letters in an hour are no problem, whatever their share."""
DISK_SHARE = 0.9

REPLAY_DEAD_LETTERS = "`csi dlq list --group-by error`; after the cause is fixed: `csi dlq replay --all`"
FIND_STALL = (
    "`csi tasks list` and `csi doctor` show what the worker waits for; if they show no cause, restart the worker"
)


@dataclass(frozen=True)
class StatusVerdict:
    """`down`: nothing is processed. `degraded`: something is wrong, the rest works. Notices change nothing."""

    status: Literal["ok", "degraded", "down"]
    problems: tuple[Problem, ...]

    @property
    def attention(self) -> tuple[Problem, ...]:
        """The problems without the notices, and without those that follow from another one."""
        return tuple(one for one in self.problems if one.explained_by is None and one.severity != "notice")

    @property
    def notices(self) -> tuple[Problem, ...]:
        return tuple(one for one in self.problems if one.explained_by is None and one.severity == "notice")

    @property
    def consequences(self) -> tuple[Problem, ...]:
        """The problems that end when the one does from which they follow."""
        return tuple(one for one in self.problems if one.explained_by is not None)

    def failing(self, check: Check) -> list[Problem]:
        return [problem for problem in self.problems if check in problem.fails]


def verdict(rt: Runtime) -> StatusVerdict:
    return judge(gather(rt))


def judge(facts: SystemFacts) -> StatusVerdict:
    found = (
        *worker_problems.problems(facts),
        *storage_problems.problems(facts),
        *_sources(facts),
        *source_problems.problems(facts),
        *delivery_problems.problems(facts),
        *_dead_letters(facts),
        *_dead_jobs(facts),
        *_configuration(facts),
        *_disk(facts),
        *backup_problems.problems(facts),
        *push.problems(facts.push, facts.now),
        *_incidents(facts),
        *notification_problems.problems(facts.notifications),
    )
    # A problem whose first failure is not known has lasted since it was recorded as an alert.
    began = [facts.alerts_since.get((one.id, one.subject)) if one.since is None else one.since for one in found]
    dated = tuple(
        replace(one, since=since, explained_by=explained_by(one, found))
        for one, since in zip(found, began, strict=True)
    )
    if any(problem.severity == "down" for problem in dated):
        return StatusVerdict("down", dated)
    return StatusVerdict("degraded" if any(problem.severity == "degraded" for problem in dated) else "ok", dated)


# ── sources ─────────────────────────────────────────────────────────────────────────────────────────────


def overdue(facts: SystemFacts) -> dict[str, int]:
    """Watches that are long overdue, by source. A worker that has just started gets that long to catch up."""
    if not facts.polling or facts.clock_hold is not None:
        return {}
    started_at = _started_at(facts)
    late = Counter(watch.source for watch in facts.watches if is_overdue(watch, facts.now, started_at))
    return dict(sorted(late.items()))


def _overdue_since(facts: SystemFacts, source: str) -> float:
    started_at = _started_at(facts)
    late = (watch for watch in facts.watches_of(source) if is_overdue(watch, facts.now, started_at))
    return min(max(watch.next_poll_at, started_at) for watch in late)


def _started_at(facts: SystemFacts) -> float:
    return facts.worker.heartbeat.started_at if facts.worker.heartbeat else 0.0


def is_overdue(watch: WatchTimes, now: float, started_at: float) -> bool:
    """Due for three intervals (three minutes at least), counted from the worker's start at the earliest."""
    return now - max(watch.next_poll_at, started_at) > max(3 * watch.interval, OVERDUE_SECONDS)


def _sources(facts: SystemFacts) -> Iterator[Problem]:
    if not facts.polling:
        return
    if facts.clock_hold is not None:
        effect = "nothing is polled and no row is removed by retention"
        since = facts.clock_held_since
        yield Problem("clock_held", "clock", "degraded", facts.clock_hold, effect, SET_CLOCK, since, fails=("ready",))
        return
    for source, count in overdue(facts).items():
        what = f"{source}: {'1 watch is' if count == 1 else f'{count:,} watches are'} long overdue"
        effect = "new items of these watches are not seen"
        remedy = FIND_STALL if facts.worker.problem is None else worker_remedy(facts.worker)
        since = _overdue_since(facts, source)
        yield Problem("watches_overdue", source, "down", what, effect, remedy, since, fails=("live",))


# ── dead letters, configuration, disk ────────────────────────────────────────────────────────────


def _dead_letters(facts: SystemFacts) -> Iterator[Problem]:
    """Without those that are part of another problem: a receiver that fails."""
    lately = facts.recent_dead_letters
    given_up = facts.dead_letters - delivery_problems.of_failing_receivers(facts, facts.redrivable)
    dead_lately = lately.dead - delivery_problems.of_failing_receivers(facts, lately.of_receivers)
    most = dead_lately >= FEW_DEAD and min(dead_lately, MOST_COUNTED) > lately.delivered
    if most or given_up > DEAD_LETTERS:
        share = f", {dead_lately:,} of them from the last hour, in which {lately.delivered:,} events were delivered"
        what = f"{given_up:,} dead letters are open{share if most else ''}"
        found = _alert("dead_letters", "events", what, "these events were given up", REPLAY_DEAD_LETTERS)
        yield replace(found, events=given_up)


def _dead_jobs(facts: SystemFacts) -> Iterator[Problem]:
    """Jobs of the catalogue that were given up: they delay no event."""
    dead = facts.dead_jobs
    effect = "the catalogue lacks what they would have read; events are not affected"
    if dead.for_good:
        more = f", and the same for {len(dead.for_good) - 1:,} more" if len(dead.for_good) > 1 else ""
        remedy = (
            f"`csi jobs dead` shows the cause; after it is fixed: `csi jobs retry {dead.for_good[0]}`{more}; or give "
            f"it up for good: `csi jobs cancel {dead.for_good[0]}`"
        )
        what = f"{len(dead.for_good):,} jobs of the catalogue were given up"
        yield Problem("jobs_dead", "catalogue", "degraded", what, effect, remedy, dead.since, fails=("alert",))
    elif dead.redriven:
        what = f"{dead.redriven:,} jobs of the catalogue were given up for a cause that may pass"
        remedy = f"none: they are tried again, the next one at {clock.iso(dead.redrive_at or facts.now)}"
        yield Problem("jobs_dead", "catalogue", "notice", what, effect, remedy, dead.since)


def _configuration(facts: SystemFacts) -> Iterator[Problem]:
    if facts.reload_error is not None:
        what = f"the new configuration was refused: {facts.reload_error}"
        remedy = "correct the file, then `csi config check`"
        effect = "the previous configuration stays in force"
        yield Problem("reload_refused", "config", "degraded", what, effect, remedy, fails=("alert",), is_proven=True)
    held = facts.held_removal
    if held.watches:
        yield Problem(
            *("removal_held", "config", "degraded"),
            f"the configuration no longer has {len(held.watches):,} of {held.configured:,} watches: "
            f"{names(held.watches)}",
            "they are still polled, with the settings they had",
            "if this is intended, `csi config accept` removes them; otherwise put them back into the file and reload "
            "the worker",
            since=held.since,
            fails=("alert",),
            is_proven=True,
        )


def _disk(facts: SystemFacts) -> Iterator[Problem]:
    if facts.disk_used > DISK_SHARE:
        what = f"the disk of the state directory is {facts.disk_used:.0%} full"
        remedy = "free space: `csi prune --yes` removes rows past their retention; move logs and backups"
        yield _alert("disk_low", "state", what, "polling stops when the disk is nearly full", remedy)


def _alert(name: str, subject: str, what: str, effect: str, remedy: str) -> Problem:
    return Problem(name, subject, "degraded", what, effect, remedy, fails=("alert",))


def _incidents(facts: SystemFacts) -> Iterator[Problem]:
    """What happened once and stays a problem until the operator acknowledges it."""
    for one in facts.incidents:
        remedy = f"{one.remedy}; then `csi problems ack {one.id}`"
        yield Problem(
            *(one.problem, one.subject, "degraded", one.what, one.effect, remedy),
            since=one.since,
            fails=("alert",),
            cause=one.cause,
            is_proven=True,
            events=one.events,
            incident=one.id,
        )
