"""The six collections of the specification (spec 001): every field, every enumeration, checked on every write."""

import re
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from csi import clock
from csi.processing.money import Usd
from csi.processing.states import STAGE_OF, Stage, Status

MAX_TEXT = 20_000
_ODD = re.compile(r"[\x00\ud800-\udfff]")


def _stamp(text: str) -> str:
    return clock.normalize(text)


def _clean(text: str) -> str:
    """No NUL and no lone surrogate: PostgreSQL and JSON readers refuse them."""
    return _ODD.sub("�", text)


def _day(text: str) -> str:
    return date.fromisoformat(text).isoformat()


Timestamp = Annotated[str, AfterValidator(_stamp)]
Text = Annotated[str, AfterValidator(_clean), Field(max_length=MAX_TEXT)]
LongText = Annotated[str, AfterValidator(_clean)]
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
RunId = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_day)]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Json = dict[str, Any]


class Document(BaseModel):
    """A document: unknown fields are refused, and it never changes: a change is a new one, checked as a whole."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def changed(self, **fields: Any) -> Self:
        return self.model_validate(self.model_dump() | fields)

    def shape(self) -> Json:
        """The document in the specification's shape: optional fields without a value are absent."""
        return self.model_dump(mode="json", exclude_none=True)


class VideoRefs(Document):
    """Ids in the artifact store."""

    transcript_id: Key | None = None
    summary_id: Key | None = None


class VideoDocument(Document):
    """`videos`"""

    video_id: Key
    title: Text
    description: Text | None = None
    published_at: Timestamp
    channel_id: Text
    channel_title: Text
    duration_sec: Number
    view_count: Count | None = None

    status: Status
    processing_stage: Stage

    discovered_at: Timestamp
    updated_at: Timestamp
    completed_at: Timestamp | None = None

    transcript_doc_ref: Text | None = None
    summary_doc_ref: Text | None = None
    drive_refs: VideoRefs | None = None
    assemblyai_job_id: Text | None = None
    zep_doc_id: Text | None = None

    source: Literal["channel_scrape", "sheet_backfill", "manual"]
    tags: list[Text] | None = None
    priority: Annotated[int, Field(ge=1, le=10)] | None = None

    error_count: Count | None = None
    last_error: Text | None = None

    @model_validator(mode="after")
    def _stage_fits(self) -> Self:
        if STAGE_OF.get(self.status, self.processing_stage) != self.processing_stage:
            raise ValueError(f"a video that is {self.status} cannot be in the stage {self.processing_stage}")
        return self


TranscriptionStatus = Literal["queued", "submitted", "processing", "completed", "failed", "retrying"]
SummarizationStatus = Literal["queued", "processing", "completed", "failed", "retrying"]
ErrorType = Literal["api_error", "timeout", "quota_exceeded", "invalid_audio"]


class TranscriptionJobDocument(Document):
    """`jobs/transcription`"""

    job_id: Key
    video_id: Key
    status: TranscriptionStatus
    assemblyai_job_id: Text | None = None

    audio_url: Text
    duration_sec: Number
    webhook_url: Text | None = None

    estimated_cost_usd: Usd
    actual_cost_usd: Usd | None = None

    speaker_labels: bool
    language_code: Text | None = None

    created_at: Timestamp
    updated_at: Timestamp
    submitted_at: Timestamp | None = None
    completed_at: Timestamp | None = None

    attempt_count: Count
    max_attempts: Count
    next_retry_at: Timestamp | None = None

    transcript_text: LongText | None = None
    transcript_json: Json | None = None
    confidence: Share | None = None

    error_message: Text | None = None
    error_type: ErrorType | None = None


class Summary(Document):
    """What a summary says."""

    bullets: list[Text]
    key_concepts: list[Text]
    executive_summary: Text | None = None


class SummaryRefs(Document):
    """Ids in the artifact store; `short_summary_id` is empty until there is one."""

    short_summary_id: str
    detailed_summary_id: Key | None = None


class SummarizationJobDocument(Document):
    """`jobs/summarization`"""

    job_id: Key
    video_id: Key
    transcript_doc_ref: Text
    status: SummarizationStatus

    summary_type: Literal["short", "detailed", "executive"]
    max_length: Count | None = None
    focus_areas: list[Text] | None = None

    model_used: Text
    prompt_id: Text
    prompt_version: Text

    created_at: Timestamp
    updated_at: Timestamp
    completed_at: Timestamp | None = None

    input_tokens: Count
    output_tokens: Count
    estimated_cost_usd: Usd

    summary: Summary
    drive_refs: SummaryRefs
    zep_doc_id: Text | None = None
    zep_collection: Text

    attempt_count: Count
    error_message: Text | None = None


class AuditLogDocument(Document):
    """`audit_logs`"""

    log_id: Key
    event_type: Literal["agent_action", "api_call", "data_access", "error", "policy_enforcement"]
    action: Text
    outcome: Literal["success", "failure", "partial", "skipped"]

    agent_name: Text
    tool_name: Text | None = None
    user_id: Text | None = None
    session_id: Text | None = None

    timestamp: Timestamp
    duration_ms: Number | None = None

    resource_type: Text | None = None
    resource_id: Text | None = None
    data_summary: Text | None = None

    api_endpoint: Text | None = None
    api_method: Text | None = None
    api_response_code: Annotated[int, Field(ge=100, le=599)] | None = None

    tokens_used: Count | None = None
    api_cost_usd: Usd | None = None

    sensitive_data: bool
    retention_period_days: Annotated[int, Field(ge=1, le=36_500)]

    error_message: Text | None = None
    error_code: Text | None = None
    stack_trace: Text | None = None

    tags: list[Text] | None = None
    correlation_id: Text | None = None
    parent_log_id: Key | None = None


FailureType = Literal["max_retries", "fatal_error", "quota_exceeded", "manual_intervention"]
DlqStatus = Literal["pending", "investigating", "resolved", "abandoned"]
Priority = Literal["low", "medium", "high", "critical"]


class DeadLetterJobDocument(Document):
    """`jobs_deadletter`"""

    job_id: Key
    original_collection: Literal["jobs/transcription", "jobs/summarization"]

    failure_reason: Text
    failure_type: FailureType
    final_error: Text

    job_type: Text
    job_payload: Json

    total_attempts: Count
    first_failure_at: Timestamp
    last_attempt_at: Timestamp
    moved_to_dlq_at: Timestamp

    video_id: Key | None = None
    agent_name: Text

    dlq_status: DlqStatus
    assigned_to: Text | None = None
    resolution_notes: Text | None = None
    resolved_at: Timestamp | None = None

    can_retry: bool
    retry_after: Timestamp | None = None
    manual_steps_required: list[Text] | None = None

    priority: Priority
    tags: list[Text] | None = None
    escalation_level: Annotated[int, Field(ge=1, le=5)]


class AgentStats(Document):
    """What one agent did in a run."""

    actions_taken: Count
    errors: Count
    avg_response_time_ms: Number


RunStatus = Literal["planned", "running", "completed", "failed", "paused"]


class RunEventDocument(Document):
    """`run_events`"""

    run_id: RunId
    planned_videos: Count
    planned_budget_usd: Usd
    planned_start_time: Timestamp
    planned_end_time: Timestamp | None = None

    status: RunStatus
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None

    discovered: Count
    transcription_queued: Count
    transcribed: Count
    summarized: Count
    failed: Count
    skipped: Count
    dlq: Count

    budget_used_usd: Usd
    api_calls_made: Count
    tokens_consumed: Count

    success_rate: Annotated[float, Field(ge=0, le=100)]
    average_processing_time_sec: Number

    error_categories: dict[str, Count]
    agent_stats: dict[str, AgentStats]

    quota_limits_hit: list[Text]
    policies_enforced: list[Text]

    triggered_by: Literal["schedule", "manual", "backfill"]
    configuration_snapshot: Json
    notes: Text | None = None


COLLECTIONS: dict[str, type[Document]] = {
    "videos": VideoDocument,
    "jobs/transcription": TranscriptionJobDocument,
    "jobs/summarization": SummarizationJobDocument,
    "audit_logs": AuditLogDocument,
    "jobs_deadletter": DeadLetterJobDocument,
    "run_events": RunEventDocument,
}
