"""Status, backlog, SLO figures, queue, quota, audit log, doctor, alerts and retention as JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from csi.api_models.base import ApiModel, Ratio, Redacted, RedactedOrNone, RenamedKeys, Seconds, Time, TimeOrNone
from csi.api_models.delivery import DestinationBrief
from csi.catalog import data_api
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.status.host_pace import host_paces
from csi.store.audit import AuditRecord
from csi.store.mutes import Mute
from csi.store.notification_log import Notification
from csi.store.queries.backlog_rows import PlannedPoll, UnsettledBatch

if TYPE_CHECKING:
    from csi.doctor.finding import Finding
    from csi.status.alert_overview import AlertOverview
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


class EventCounts(ApiModel):
    """What became of the events of a window."""

    seen: int
    delivered: int
    dead: int
    waiting: int


class DeliveryBrief(ApiModel):
    """Whether delivery is switched on, and each destination in short."""

    enabled: bool
    destinations: list[DestinationBrief]


class QuotaBrief(ApiModel):
    """API units of this Pacific day."""

    day: str
    limit: int
    used: int
    left: int
    low: bool = Field(validation_alias="is_low")


class HostPaceJson(ApiModel):
    """A host whose requests are spaced. `learned`: it refused requests, so the spacing is wider than configured."""

    host: str
    spacing_seconds: float
    learned: bool = Field(validation_alias="is_learned")
    next_at: TimeOrNone
    plan: str | None


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


# ── SLO ─────────────────────────────────────────────────────────────────────────────────────────────────


class SloFigure(ApiModel):
    """One figure and its target; null where nothing was counted."""

    target: float
    value: Ratio
    met: bool | None = Field(validation_alias="is_met")


class SuccessFigure(SloFigure, EventCounts):
    """The share of settled events that were delivered."""


class DuplicateFigure(SloFigure):
    """The share of events that may have been accepted twice."""

    sent: int = Field(validation_alias=AliasPath("counts", "sent"))
    reported: int = Field(validation_alias=AliasPath("counts", "reported"))
    possible: int = Field(validation_alias=AliasPath("counts", "possible"))
    resent: int = Field(validation_alias=AliasPath("counts", "resent"))


class UptimeFigure(SloFigure):
    """The share of time in which the worker was alive."""

    known_since: TimeOrNone = Field(validation_alias=AliasPath("attendance", "since"))
    interruptions: Annotated[int, BeforeValidator(len)] = Field(validation_alias=AliasPath("attendance", "gaps"))
    down_seconds: Seconds = Field(validation_alias=AliasPath("attendance", "down_seconds"))


class Percentiles(ApiModel):
    """Percentiles in seconds."""

    p50: Seconds
    p95: Seconds
    p99: Seconds


class TierLatencyJson(ApiModel):
    """How long the events of one tier took."""

    tier: str
    target_p95_seconds: float | None = Field(validation_alias="target")
    met: bool | None = Field(validation_alias="is_met")
    events: int
    old_items: int
    late: int
    occurred_to_seen: Percentiles = Field(validation_alias="to_seen")
    seen_to_accepted: Percentiles = Field(validation_alias="to_accepted")
    occurred_to_accepted: Percentiles = Field(validation_alias="total")


class SloReport(ApiModel):
    """The figures of PRD §6 over one window."""

    since: Time
    until: Time
    rows_since: Time
    met: bool | None = Field(validation_alias="is_met")
    delivery: SuccessFigure = Field(validation_alias="success")
    duplicates: DuplicateFigure
    uptime: UptimeFigure
    latency: list[TierLatencyJson] = Field(validation_alias="latencies")
    notes: list[str]


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


# ── quota ───────────────────────────────────────────────────────────────────────────────────────────────


class PollInterval(RenamedKeys, renamed={"as_wished": "as_configured"}):
    """Watches that are polled at one interval. `seconds` null: not at all."""

    seconds: Annotated[float | None, BeforeValidator(lambda seconds: None if seconds == float("inf") else seconds)]
    watches: int
    as_configured: bool = Field(validation_alias="is_fast")


class CatalogShareJson(RenamedKeys, renamed={"needed_a_day": "needed_per_day"}):
    """The catalogue's share of the API units."""

    limit: int
    used: int
    needed_per_day: int = Field(validation_alias="needed")
    short: bool = Field(validation_alias="is_short")


class NoQuota(ApiModel):
    """No enabled source uses API units."""

    enabled: Literal[False] = False
    host_pacing: list[HostPaceJson]


class QuotaJson(QuotaBrief):
    """API units of this Pacific day, and the intervals that they allow."""

    enabled: Literal[True] = True
    buffer: int
    ends_at: Time
    lasts_until: Time
    units_per_hour: Annotated[float, BeforeValidator(lambda units: round(units, 1))] = Field(
        validation_alias="per_hour"
    )
    planned_units: int
    intervals: list[PollInterval] = Field(validation_alias="groups")
    forecast: str
    warning: str | None
    urgent: str | None
    catalogue: CatalogShareJson
    host_pacing: list[HostPaceJson]


def quota(rt: Runtime) -> QuotaJson | NoQuota:
    """API units of this Pacific day, with the catalogue's share, and the pace of each host that is spaced."""
    found, paces = quota_schedule.forecast(rt, rt.now()), [HostPaceJson.of(one) for one in host_paces(rt)]
    if found is None:
        return NoQuota(host_pacing=paces)
    more = {"forecast": quota_schedule.sentence(found), "catalogue": data_api.share_of(rt), "host_pacing": paces}
    return QuotaJson.of(found, **more)


# ── audit ───────────────────────────────────────────────────────────────────────────────────────────────


class AuditRecordJson(ApiModel, row=AuditRecord):
    """One change through the API or the dashboard, a call of an agent (`mcp`), or a recorded command. `status` is that
    of the response, or the exit code of the command; null: its process ended before it did."""

    at: Time
    via: Literal["api", "dashboard", "cli", "mcp"]
    role: Literal["admin", "reader"]
    finished_at: TimeOrNone


class AuditLog(ApiModel):
    """A page of the audit log."""

    actions: list[AuditRecordJson]
    next: int | None


# ── doctor, alerts, retention ───────────────────────────────────────────────────────────────────────────


class CheckJson(ApiModel):
    """One check of the doctor."""

    check: str
    level: Literal["ok", "warn", "fail", "skip"]
    text: Redacted
    remedy: RedactedOrNone


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


class AlertJson(ProblemJson, RenamedKeys, renamed={"name": "id", "text": "what"}):
    """An alert that is firing now: a problem that the operator is notified of."""


class AlertRecord(RenamedKeys, renamed={"trouble": "alert", "told_at": "notified_at", "ended_at": "resolved_at"}):
    """An alert of the past or present. `resolved_at` null: it is firing."""

    alert: str = Field(validation_alias="name")
    subject: str
    text: Redacted
    severity: str
    since: Time
    notified_at: TimeOrNone
    resolved_at: TimeOrNone
    muted: bool


class NotificationJson(ApiModel, row=Notification, without=("id", "message", "body", "first_attempt_at")):
    """A message and one target. `failed`: it is tried again; `waiting`: earlier messages to this target are tried
    first; `dropped`: a later message says the same."""

    result: Literal["sent", "failed", "waiting", "dropped"] = Field(validation_alias="state")
    last_attempt_at: Time
    next_attempt_at: TimeOrNone
    sent_at: TimeOrNone


class MuteJson(ApiModel, row=Mute, without=("ended_at",)):
    """Operators are not notified until then. `problem` null: of no problem."""

    since: Time
    until: Time


class AlertStatus(RenamedKeys, renamed={"current": "firing", "noted": "records"}):
    """Alerts that are firing, the last records, how the operator is notified, and what is muted."""

    services: int
    targets: list[str]
    heartbeat: bool
    firing: list[AlertJson] = Field(validation_alias=AliasChoices("firing", "current"))
    records: list[AlertRecord] = Field(validation_alias=AliasChoices("records", "noted"))
    notifications: list[NotificationJson]
    mutes: list[MuteJson] = Field(validation_alias=AliasPath("muting", "mutes"))
    window_until: TimeOrNone = Field(validation_alias=AliasPath("muting", "window_until"))

    @classmethod
    def of_overview(cls, found: "AlertOverview") -> Self:
        records = [AlertRecord.of(one, muted=found.is_muted(one)) for one in found.recorded]
        return cls.of(found, records=records)


class Unmuted(ApiModel):
    """How many mutes were ended."""

    ended: int


class TargetTest(ApiModel):
    """Whether one target accepted the test message."""

    target: str
    accepted: bool


class NotificationTest(ApiModel):
    """The result for each target."""

    ok: bool
    targets: list[TargetTest]


class PruneReport(RenamedKeys, renamed={"open_letters_past_their_time": "expired_open_dead_letters"}):
    """What retention removed, or would remove."""

    dry_run: bool
    tables: dict[str, int] = Field(validation_alias="removed")
    total: int
    complete: bool
    expired_open_dead_letters: int = Field(validation_alias=AliasChoices("open_dead_letters", "open_letters"))
