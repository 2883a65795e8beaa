"""Status, problems, backlog, queue, audit log, doctor and retention as JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import AliasChoices, AliasPath, Field

from csi.api_models.base import ApiModel, Redacted, RedactedOrNone, RenamedKeys, Time, TimeOrNone
from csi.api_models.delivery import DestinationBrief
from csi.api_models.quota import HostPaceJson, QuotaBrief
from csi.api_models.slo import EventCounts
from csi.store.queries.audit_rows import AuditRecord
from csi.store.queries.backlog_rows import PlannedPoll, UnsettledBatch

if TYPE_CHECKING:
    from csi.doctor.finding import Finding
    from csi.status.audit_sentences import AuditSentence
    from csi.status.overview import Overview
    from csi.status.upcoming import Upcoming


class BacklogEntry(ApiModel):
    """Rows of one kind that are waiting, and the reason."""

    step: str
    what: str
    count: int
    why: str = Field(validation_alias=AliasPath("reason", "text"))
    problem: bool = Field(validation_alias=AliasPath("reason", "is_problem"))
    since: TimeOrNone
    until: TimeOrNone = Field(validation_alias=AliasPath("reason", "until"))


class Backlog(RenamedKeys, renamed={"waiting": "backlog"}):
    """What is waiting, and the reason."""

    backlog: list[BacklogEntry]


class ProblemJson(ApiModel):
    """One thing that is wrong now: what, since when, its effect, and what to do."""

    id: str
    subject: str
    severity: Literal["notice", "degraded", "down"]
    what: Redacted
    cause: RedactedOrNone
    since: TimeOrNone
    effect: str
    events: int | None
    remedy: str
    incident: int | None
    explained_by: str | None = Field(description="The id of the problem that this one follows from, and ends with")
    page: str = Field(validation_alias=AliasPath("kind", "page"))
    runbook: str


class ProblemList(ApiModel):
    """The verdict, and the problems that it is made of."""

    status: Literal["ok", "degraded", "down"]
    problems: list[ProblemJson]


class AcknowledgedIncident(ApiModel):
    """An incident that the operator acknowledged."""

    incident: int = Field(validation_alias="id")
    problem: str
    subject: str
    what: Redacted
    since: Time


class AcknowledgeReport(ApiModel):
    """The incidents that were acknowledged."""

    acknowledged: list[AcknowledgedIncident]


# ── status ──────────────────────────────────────────────────────────────────────────────────────────────


class WorkerJson(RenamedKeys, renamed={"trouble": "problem"}):
    """Whether the worker is alive."""

    alive: bool
    problem: str | None
    clock_hold: str | None
    started_at: TimeOrNone
    heartbeat_age_seconds: float | None


class SourceJson(ApiModel):
    """One source and the health of its watches."""

    source: str = Field(validation_alias="name")
    enabled: bool = Field(validation_alias="is_enabled")
    active: int
    paused: int
    failing: int
    last_poll_failed: int
    states: dict[str, int]
    last_success_at: TimeOrNone
    last_new_at: TimeOrNone
    next_poll_at: TimeOrNone


class HostJson(ApiModel):
    """A host that rate-limited us, or at which many watches fail."""

    host: str
    kind: Literal["pause", "outage"]
    since: TimeOrNone
    until: TimeOrNone
    reason: Redacted


class DeliveryBrief(ApiModel):
    """Whether delivery is switched on, and each destination in short."""

    enabled: bool
    destinations: list[DestinationBrief]


class StatusJson(RenamedKeys, renamed={"waiting": "backlog"}):
    """The whole installation on one page."""

    status: Literal["ok", "degraded", "down"] = Field(validation_alias=AliasPath("verdict", "status"))
    problems: list[ProblemJson] = Field(validation_alias=AliasPath("verdict", "problems"))
    at: Time = Field(validation_alias="now")
    version: str
    instance_id: str = Field(validation_alias="instance")
    worker: WorkerJson
    sources: list[SourceJson]
    hosts: list[HostJson]
    last_hour: EventCounts = Field(validation_alias=AliasPath("hour", "success"))
    last_day: EventCounts = Field(validation_alias=AliasPath("day", "success"))
    delivery: DeliveryBrief
    backlog: list[BacklogEntry] = Field(validation_alias=AliasChoices("backlog", "waiting"))
    dead_letters: int = Field(validation_alias="open_dead_letters")
    quota: QuotaBrief | None
    host_pacing: list[HostPaceJson] = Field(validation_alias="host_paces")

    @classmethod
    def of_overview(cls, found: "Overview", **more: object) -> Self:
        heartbeat, age = found.worker.heartbeat, found.worker.age
        worker = {
            "alive": found.worker.is_alive,
            "problem": found.worker.problem,
            "clock_hold": found.clock_hold,
            "started_at": heartbeat.started_at if heartbeat else None,
            "heartbeat_age_seconds": None if age is None else round(age, 1),
        }
        delivery = {"enabled": found.delivery_is_on, "destinations": found.destinations}
        return cls.of(found, worker=worker, delivery=delivery, **more)


class InstallationStatus(StatusJson):
    """The status with the answers of `/readyz` and `/livez`."""

    ready: bool
    live: bool
    reasons: list[str]
    readiness: dict[str, Any]


# ── queue ───────────────────────────────────────────────────────────────────────────────────────────────


class HeartbeatJson(RenamedKeys, renamed={"beat_at": "heartbeat_at"}):
    """The worker's last heartbeat; its times are null where no worker ever ran."""

    alive: bool
    heartbeat_at: TimeOrNone
    started_at: TimeOrNone
    queued: int | None


class InboxJson(ApiModel):
    """Items that are not events yet."""

    waiting: int
    quarantined: int
    oldest_seen_at: TimeOrNone = Field(validation_alias="oldest_at")


class BatchJson(ApiModel, row=UnsettledBatch, without=("id", "created_at")):
    """A batch that is not settled."""

    next_attempt_at: TimeOrNone


class NextPoll(ApiModel, row=PlannedPoll, without=("lease_until", "interval", "health")):
    """A watch and when it is polled next."""

    next_poll_at: TimeOrNone


class QueueJson(RenamedKeys, renamed={"being_read": "polling", "reads": "polls"}):
    """What happens next: polls, batches, inbox, queued tasks."""

    worker: HeartbeatJson
    due: int
    due_within_a_minute: int = Field(validation_alias="soon")
    polling: int
    inbox: InboxJson
    batches: list[BatchJson]
    unsettled: dict[str, int]
    polls: list[NextPoll]

    @classmethod
    def of_upcoming(cls, found: "Upcoming") -> Self:
        heartbeat = found.worker.heartbeat
        worker = {
            "alive": found.worker.is_alive,
            "heartbeat_at": heartbeat.beat_at if heartbeat else None,
            "started_at": heartbeat.started_at if heartbeat else None,
            "queued": heartbeat.queued if heartbeat else None,
        }
        return cls.of(found, worker=worker)


# ── audit ───────────────────────────────────────────────────────────────────────────────────────────────


class AuditRecordJson(ApiModel, row=AuditRecord, without=("outcome", "result")):
    """One change through the API or the dashboard, a call of an agent (`mcp`), or a recorded command. `status` is that
    of the response, or the exit code of the command; null: its process ended before it did."""

    at: Time
    via: Literal["api", "dashboard", "cli", "mcp"]
    role: Literal["admin", "reader"]
    finished_at: TimeOrNone
    text: str = Field(description="The action in words")
    outcome: Literal["done", "failed", "not finished"]
    result: RedactedOrNone = Field(description="What the operator read")


class AuditLog(ApiModel):
    """A page of the audit log."""

    actions: list[AuditRecordJson]
    next: int | None

    @classmethod
    def of_sentences(cls, rows: "Sequence[AuditSentence]", following: int | None) -> Self:
        actions = [
            AuditRecordJson.of(one.record, text=one.text, outcome=one.outcome, result=one.result) for one in rows
        ]
        return cls.of(actions=actions, next=following)


# ── doctor, alerts, retention ───────────────────────────────────────────────────────────────────────────


class CheckJson(ApiModel):
    """One check of the doctor."""

    check: str
    level: Literal["ok", "warn", "fail", "skip"]
    text: Redacted
    remedy: RedactedOrNone
    problem: str | None = Field(description="The id of the problem of `csi status` that it reports")
    runbook: str | None = Field(description="The section of the runbook for that problem")


class CheckCounts(ApiModel):
    """How many checks ended with each level."""

    ok: int = 0
    warn: int = 0
    fail: int = 0
    skip: int = 0


class DoctorReport(ApiModel):
    """Every check, and whether none failed."""

    ok: bool
    counts: CheckCounts
    checks: list[CheckJson]

    @classmethod
    def of_findings(cls, found: "Sequence[Finding]") -> Self:
        counted = Counter(one.level for one in found)
        return cls.of(ok=not counted["fail"], counts=counted, checks=found)


class PruneReport(RenamedKeys, renamed={"open_letters_past_their_time": "expired_open_dead_letters"}):
    """What retention removed, or would remove."""

    dry_run: bool
    tables: dict[str, int] = Field(validation_alias="removed")
    total: int
    complete: bool
    expired_open_dead_letters: int = Field(validation_alias=AliasChoices("open_dead_letters", "open_letters"))
