"""The problems of processing: pure rules over facts. Status, pages, health, metrics and notifications show these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from csi import clock
from csi.problems import ProblemKind, ProblemReport
from csi.processing.store.heartbeats import WorkerHeartbeat
from csi.processing.store.providers import ProviderState

FRESH_SECONDS = 25.0
"""An older heartbeat means that the worker is silent. It is written every 5 s: 30 s after the worker ended, every page
says so."""
SILENT_SECONDS = 60.0
"""The operator is notified after this time: a restart is shorter."""
FAILURES = 3
FAILING_SECONDS = 180.0
"""A provider fails when this many calls failed in a row, or when no call succeeded for this long."""
FEW_DEAD = 5
DEAD_SHARE = 0.5
DEAD_WINDOW = 3600.0

_STUCK = ("provider_refused", "provider_failing", "budget_spent", "jobs_dead", "intake_blocked")

KINDS: dict[str, ProblemKind] = {
    "processing_silent": ProblemKind("worker", "the-worker-of-processing-is-gone", "/ui", explains=_STUCK),
    "intake_blocked": ProblemKind("receiver", "processing-reads-no-signals", "/ui"),
    "provider_refused": ProblemKind(
        "providers", "a-provider-refuses-our-key", "/ui", explains=("jobs_dead",), explains_own=("provider_failing",)
    ),
    "provider_failing": ProblemKind("providers", "a-provider-fails", "/ui", explains=("jobs_dead",)),
    "budget_spent": ProblemKind("budget", "the-budget-of-processing-is-spent", "/ui/run"),
    "jobs_dead": ProblemKind("dead_jobs", "jobs-of-processing-die", "/ui/deadletters"),
    "processing_paused": ProblemKind("worker", "processing-is-paused", "/ui", notifies=False),
}
PROBLEMS = tuple(KINDS)
ALERTS = tuple(name for name, kind in KINDS.items() if kind.notifies)


@dataclass(frozen=True)
class ProcessingProblem(ProblemReport):
    """One thing that is wrong now in processing."""

    @property
    def kind(self) -> ProblemKind:
        return KINDS[self.id]


@dataclass(frozen=True)
class ProcessingFacts:
    """What the rules read; `status.gather` fills it from rows."""

    now: float
    heartbeat: WorkerHeartbeat | None
    process: int | None = None
    """The process that holds the worker's lock while the worker is silent; None: none does, or it is not known."""
    providers: tuple[ProviderState, ...] = ()
    """The configured ones that failed or are paused."""
    key_variables: Mapping[str, str] = field(default_factory=dict)
    """The variable with the key of a provider."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Jobs that wait, by paused provider, and for the budget."""
    budget_limit: Decimal = Decimal(0)
    budget_used: Decimal = Decimal(0)
    budget_reserved: Decimal = Decimal(0)
    """The part of `budget_used` whose price is not known yet."""
    budget_spent_at: float | None = None
    budget_resumes_at: float | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)
    """Open jobs by status."""
    dead: Mapping[str, int] = field(default_factory=dict)
    """Open dead jobs by cause."""
    recent_dead_letters: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Of those the ones of the last hour: how many, and when the first died."""
    completed_lately: int = 0
    is_paused: bool = False

    @property
    def heartbeat_age(self) -> float | None:
        """Negative after the clock was set back."""
        return None if self.heartbeat is None else self.now - self.heartbeat.beat_at

    @property
    def is_alive(self) -> bool:
        # A heartbeat in the future proves as little as an old one.
        return self.heartbeat_age is not None and abs(self.heartbeat_age) <= FRESH_SECONDS


def judge(facts: ProcessingFacts) -> list[ProcessingProblem]:
    return [
        *_worker(facts),
        *_intake(facts),
        *(problem for state in facts.providers for problem in _provider(state, facts)),
        *_budget(facts),
        *_dead_jobs(facts),
        *_paused(facts),
    ]


def verdict(problems: Sequence[ProcessingProblem]) -> Literal["ok", "degraded", "down"]:
    severities = {problem.severity for problem in problems}
    return "down" if "down" in severities else "degraded" if "degraded" in severities else "ok"


def _worker(facts: ProcessingFacts) -> Iterator[ProcessingProblem]:
    age = facts.heartbeat_age
    if facts.is_alive:
        return
    if age is None:
        what = "no worker of processing has ever run on this database"
    elif age < 0:
        what = f"the last heartbeat of processing's worker is {-age:.0f} s in the future: the clock was set back"
    else:
        what = f"the last heartbeat of processing's worker was {age:.0f} s ago"
    remedy = "start it: `csi processing run`, or the service csi-processing; its last log line says why it ended"
    if age is not None and age < 0:
        remedy = "set the clock by NTP: `timedatectl set-ntp true`"
    elif facts.process is not None:
        pid = facts.process  # `csi processing run` would refuse to start a second one
        other = f", or end process {pid} (`kill -9 {pid}`) and start it again" if pid else ""
        remedy = f"restart it: `systemctl restart csi-processing`{other}; its process runs and makes no progress"
    is_long = age is None or abs(age) >= SILENT_SECONDS
    yield ProcessingProblem(
        "processing_silent",
        "worker",
        "down",
        what,
        "signals are stored by the receiver, and no video is transcribed or summarised",
        remedy,
        facts.heartbeat.beat_at if facts.heartbeat else None,
        fails=("ready", "live", "alert") if is_long else ("ready", "live"),
        is_proven=age is not None,
    )


def _intake(facts: ProcessingFacts) -> Iterator[ProcessingProblem]:
    heartbeat = facts.heartbeat
    if heartbeat is None or heartbeat.intake_error is None:
        return
    yield ProcessingProblem(
        "intake_blocked",
        "receiver",
        "degraded",
        "processing cannot read the receiver's database",
        "new signals stay with the receiver and are not processed",
        "check `receiver_db` in processing.yaml (or UA_SIGNALS_DB_PATH), then `csi processing status`",
        heartbeat.intake_failing_since,
        fails=("ready", "alert"),
        cause=heartbeat.intake_error,
    )


def _provider(state: ProviderState, facts: ProcessingFacts) -> Iterator[ProcessingProblem]:
    count, resume = facts.waiting.get(state.name, 0), f"`csi processing resume {state.name}`"
    if state.paused_at is not None:
        key = facts.key_variables.get(state.name)
        remedies = {
            "authentication": f"set {key} to a valid key and restart the worker of processing; or {resume}"
            if key
            else f"check the account at the provider, then {resume}",
            "no_credit": f"add credit at the provider, then {resume}",
        }
        yield ProcessingProblem(
            "provider_refused",
            state.name,
            "down",
            f"provider {state.name} refuses our account and is paused",
            f"{count:,} jobs wait and use no attempt; the provider is probed every 5 minutes",
            remedies[state.pause_cause or "authentication"],
            state.paused_at,
            fails=("ready", "alert"),
            cause=state.last_error,
            is_proven=True,
        )
    elif state.failing_since is not None and (
        state.failures >= FAILURES or facts.now - state.failing_since >= FAILING_SECONDS
    ):
        yield ProcessingProblem(
            "provider_failing",
            state.name,
            "degraded",
            f"1 call to provider {state.name} failed"
            if state.failures == 1
            else f"{state.failures:,} calls to provider {state.name} failed in a row",
            "its jobs are retried, and become dead letters when their attempts are used up",
            "check the provider's status page and the network of this machine; dead jobs: `csi processing dlq list`",
            state.failing_since,
            fails=("alert",),
            cause=state.last_error,
        )


def _budget(facts: ProcessingFacts) -> Iterator[ProcessingProblem]:
    count, until = facts.waiting.get("budget", 0), facts.budget_resumes_at
    # Jobs that wait for reservations only are woken when these return: that is no problem.
    if not count or until is None or until <= facts.now or facts.budget_spent_at is None:
        return
    spent = facts.budget_used - facts.budget_reserved
    rest = "; the rest may not cover another call" if facts.budget_used < facts.budget_limit else ""
    yield ProcessingProblem(
        "budget_spent",
        "budget",
        "degraded",
        f"the budget of the day is spent: {spent} paid and {facts.budget_reserved} reserved of "
        f"{facts.budget_limit} USD{rest}",
        f"{count:,} jobs wait; paid calls resume at {clock.iso(until)}",
        "wait until then, or raise `budget.daily_usd` in processing.yaml and restart the worker of processing",
        facts.budget_spent_at,
        fails=("alert",),
        is_proven=True,
    )


def _dead_jobs(facts: ProcessingFacts) -> Iterator[ProcessingProblem]:
    dead = sum(count for count, _ in facts.recent_dead_letters.values())
    ended = dead + facts.completed_lately
    if dead < FEW_DEAD or dead <= DEAD_SHARE * ended:
        return
    causes = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, (count, _) in facts.recent_dead_letters.items())
    yield ProcessingProblem(
        "jobs_dead",
        "jobs",
        "degraded",
        f"{dead:,} of the {ended:,} jobs that ended in the last hour are dead letters",
        "their videos have no transcript or no summary",
        "`csi processing dlq list` shows the errors; then `csi processing dlq retry --all`",
        min(first for _, first in facts.recent_dead_letters.values()),
        fails=("alert",),
        cause=causes,
        is_proven=True,
    )


def _paused(facts: ProcessingFacts) -> Iterator[ProcessingProblem]:
    count = sum(facts.jobs.values())
    if facts.is_paused and count:
        yield ProcessingProblem(
            "processing_paused",
            "settings",
            "degraded",
            "processing is paused by its configuration",
            f"{count:,} jobs wait",
            "set `paused: false` in processing.yaml and restart the worker of processing",
        )
