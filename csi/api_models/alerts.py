"""Alerts, notifications and mutes as JSON."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import AliasChoices, AliasPath, Field

from csi.api_models.base import ApiModel, Redacted, RenamedKeys, Time, TimeOrNone
from csi.api_models.status import ProblemJson
from csi.store.mutes import Mute
from csi.store.notification_log import Notification

if TYPE_CHECKING:
    from csi.status.alert_overview import AlertOverview


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
