"""Dead letters as JSON: one, a list, groups, and what a replay or a removal did."""

from typing import Any, Literal

from pydantic import AliasChoices, Field

from csi.api_models.base import ApiModel, Redacted, RenamedKeys, TextOrNone, Time, TimeOrNone
from csi.api_models.events import AttemptJson
from csi.dlq.dead_letters import StoredDeadLetter
from csi.dlq.search import DeadLetterGroup

DeadLetterState = Literal["open", "replaying", "replayed", "discarded"]
DeadLetterCause = Literal["transient", "destination", "event", "malformed", "crash"]


class DeadLetterJson(ApiModel, row=StoredDeadLetter, without=("event_json", "reason")):
    """An event or item that was given up."""

    kind: Literal["event", "item"]
    destination: TextOrNone
    cause: DeadLetterCause
    error: Redacted = Field(validation_alias="reason")
    state: DeadLetterState
    first_seen_at: TimeOrNone
    died_at: Time
    closed_at: TimeOrNone


class DeadLetterDetail(DeadLetterJson):
    """A dead letter with every attempt and its payload."""

    attempts: list[AttemptJson]
    payload: dict[str, Any]


class DeadLetterList(RenamedKeys, renamed={"letters": "dead_letters"}):
    """Dead letters."""

    total: int
    dead_letters: list[DeadLetterJson]


class DeadLetterPage(DeadLetterList):
    """A page of dead letters. `next` null: there are no more."""

    next: int | None


class DeadLetterGroupJson(ApiModel, row=DeadLetterGroup):
    """Dead letters that have something in common."""

    key: Redacted
    first_died_at: Time
    last_died_at: Time


class DeadLetterGroups(ApiModel):
    """Dead letters counted by one property."""

    group_by: str
    total: int
    groups: list[DeadLetterGroupJson]


class DeadLetterPlan(RenamedKeys, renamed={"letters": "dead_letters"}):
    """What a dry run would change."""

    dry_run: Literal[True] = True
    chosen: int
    dead_letters: list[DeadLetterJson]


class ReplayResultJson(ApiModel):
    """Whether one dead letter is pending again."""

    id: int = Field(validation_alias=AliasChoices("dead_letter_id", "letter_id"))
    event_id: TextOrNone
    sent: bool = Field(validation_alias="is_sent")
    note: Redacted


class ReplayReport(RenamedKeys, renamed={"letters": "dead_letters"}):
    """What a replay did."""

    chosen: int
    sent: int
    failed: int
    dead_letters: list[ReplayResultJson]
    notes: list[Redacted]


class DiscardReport(ApiModel):
    """Which dead letters were discarded, and why others were not."""

    discarded: list[int]
    failed: dict[str, str]


class DeadLetterPrune(ApiModel):
    """How many old dead letters there are, and how many were deleted."""

    old: int
    open: int
    deleted: int
    dry_run: bool
