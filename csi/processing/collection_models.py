"""The documents of the six collections (spec 001), validated on every write."""

import re
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, model_validator

from csi import clock
from csi.processing.money import Usd
from csi.processing.states import STAGE_OF, Stage, Status

MAX_TEXT = 20_000
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


def _storable(text: str) -> str:
    """Replace NUL and lone surrogates, which PostgreSQL and JSON readers reject."""
    return _UNSTORABLE.sub("�", text)


Timestamp = Annotated[str, AfterValidator(clock.normalize)]
Text = Annotated[str, AfterValidator(_storable), Field(max_length=MAX_TEXT)]
LongText = Annotated[str, AfterValidator(_storable)]
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
RunId = Annotated[
    str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(lambda text: date.fromisoformat(text).isoformat())
]
Json = dict[str, Any]


class SpecDocument(BaseModel):
    """An immutable document without unknown fields. A change makes a new one, which is validated as a whole."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def changed(self, **fields: Any) -> Self:
        return self.model_validate(self.model_dump() | fields)

    def shape(self) -> Json:
        """The document in the specification's shape: optional fields without a value are absent."""
        return self.model_dump(mode="json", exclude_none=True)


class VideoRefs(SpecDocument):
    """Ids in the artifact store."""

    transcript_id: Key | None = None
    summary_id: Key | None = None


class VideoDocument(SpecDocument):
    """`videos`"""

    video_id: Key
    title: Text
    description: Text | None = None
    published_at: Timestamp
    channel_id: Text
    channel_title: Text
    duration_sec: NonNegativeFloat
    view_count: NonNegativeInt | None = None
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
    error_count: NonNegativeInt | None = None
    last_error: Text | None = None

    @model_validator(mode="after")
    def _check_stage(self) -> Self:
        if STAGE_OF.get(self.status, self.processing_stage) != self.processing_stage:
            raise ValueError(f"a video that is {self.status} cannot be in the stage {self.processing_stage}")
        return self


TranscriptionStatus = Literal["queued", "submitted", "processing", "completed", "failed", "retrying"]
SummarizationStatus = Literal["queued", "processing", "completed", "failed", "retrying"]
ErrorType = Literal["api_error", "timeout", "quota_exceeded", "invalid_audio"]


class TranscriptionJobDocument(SpecDocument):
    """`jobs/transcription`"""

    job_id: Key
    video_id: Key
    status: TranscriptionStatus
    assemblyai_job_id: Text | None = None
    audio_url: Text
    duration_sec: NonNegativeFloat
    webhook_url: Text | None = None
    estimated_cost_usd: Usd
    actual_cost_usd: Usd | None = None
    speaker_labels: bool
    language_code: Text | None = None
    created_at: Timestamp
    updated_at: Timestamp
    submitted_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    attempt_count: NonNegativeInt
    max_attempts: NonNegativeInt
    next_retry_at: Timestamp | None = None
    transcript_text: LongText | None = None
    transcript_json: Json | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    error_message: Text | None = None
    error_type: ErrorType | None = None


class VideoSummary(SpecDocument):
    """The content of a summary."""

    bullets: list[Text]
    key_concepts: list[Text]
    executive_summary: Text | None = None


class SummaryRefs(SpecDocument):
    """Ids in the artifact store; `short_summary_id` is empty until the summary is written."""

    short_summary_id: str
    detailed_summary_id: Key | None = None


class SummarizationJobDocument(SpecDocument):
    """`jobs/summarization`"""

    job_id: Key
    video_id: Key
    transcript_doc_ref: Text
    status: SummarizationStatus
    summary_type: Literal["short", "detailed", "executive"]
    max_length: NonNegativeInt | None = None
    focus_areas: list[Text] | None = None
    model_used: Text
    prompt_id: Text
    prompt_version: Text
    created_at: Timestamp
    updated_at: Timestamp
    completed_at: Timestamp | None = None
    input_tokens: NonNegativeInt
    output_tokens: NonNegativeInt
    estimated_cost_usd: Usd
    summary: VideoSummary
    drive_refs: SummaryRefs
    zep_doc_id: Text | None = None
    zep_collection: Text
    attempt_count: NonNegativeInt
    error_message: Text | None = None


class AuditLogDocument(SpecDocument):
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
    duration_ms: NonNegativeFloat | None = None
    resource_type: Text | None = None
    resource_id: Text | None = None
    data_summary: Text | None = None
    api_endpoint: Text | None = None
    api_method: Text | None = None
    api_response_code: Annotated[int, Field(ge=100, le=599)] | None = None
    tokens_used: NonNegativeInt | None = None
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


class DeadLetterJobDocument(SpecDocument):
    """`jobs_deadletter`"""

    job_id: Key
    original_collection: Literal["jobs/transcription", "jobs/summarization"]
    failure_reason: Text
    failure_type: FailureType
    final_error: Text
    job_type: Text
    job_payload: Json
    total_attempts: NonNegativeInt
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


class AgentStats(SpecDocument):
    """The work of one agent in a run."""

    actions_taken: NonNegativeInt
    errors: NonNegativeInt
    avg_response_time_ms: NonNegativeFloat


RunTrigger = Literal["schedule", "manual", "backfill"]
RunStatus = Literal["planned", "running", "completed", "failed", "paused"]


class RunEventDocument(SpecDocument):
    """`run_events`"""

    run_id: RunId
    planned_videos: NonNegativeInt
    planned_budget_usd: Usd
    planned_start_time: Timestamp
    planned_end_time: Timestamp | None = None
    status: RunStatus
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    discovered: NonNegativeInt
    transcription_queued: NonNegativeInt
    transcribed: NonNegativeInt
    summarized: NonNegativeInt
    failed: NonNegativeInt
    skipped: NonNegativeInt
    dlq: NonNegativeInt
    budget_used_usd: Usd
    api_calls_made: NonNegativeInt
    tokens_consumed: NonNegativeInt
    success_rate: Annotated[float, Field(ge=0, le=100)]
    average_processing_time_sec: NonNegativeFloat
    error_categories: dict[str, NonNegativeInt]
    agent_stats: dict[str, AgentStats]
    quota_limits_hit: list[Text]
    policies_enforced: list[Text]
    triggered_by: RunTrigger
    configuration_snapshot: Json
    notes: Text | None = None


COLLECTIONS: dict[str, type[SpecDocument]] = {
    "videos": VideoDocument,
    "jobs/transcription": TranscriptionJobDocument,
    "jobs/summarization": SummarizationJobDocument,
    "audit_logs": AuditLogDocument,
    "jobs_deadletter": DeadLetterJobDocument,
    "run_events": RunEventDocument,
}
