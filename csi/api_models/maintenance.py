"""Doctor, alerts and retention as JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

from pydantic import AliasChoices, Field

from csi.api_models.base import ApiModel, Redacted, RedactedOrNone, RenamedKeys, Time, TimeOrNone
from csi.api_models.status import ProblemJson

if TYPE_CHECKING:
    from csi.doctor.finding import Finding


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
    since: Time
    notified_at: TimeOrNone
    resolved_at: TimeOrNone


class AlertStatus(RenamedKeys, renamed={"current": "firing", "noted": "records"}):
    """Alerts that are firing, the last records, and how the operator is notified."""

    services: int
    heartbeat: bool
    firing: list[AlertJson] = Field(validation_alias=AliasChoices("firing", "current"))
    records: list[AlertRecord] = Field(validation_alias=AliasChoices("records", "noted"))


class PruneReport(RenamedKeys, renamed={"open_letters_past_their_time": "expired_open_dead_letters"}):
    """What retention removed, or would remove."""

    dry_run: bool
    tables: dict[str, int] = Field(validation_alias="removed")
    total: int
    complete: bool
    expired_open_dead_letters: int = Field(validation_alias=AliasChoices("open_dead_letters", "open_letters"))
