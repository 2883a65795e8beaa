"""The settings of processing: every key of processing.yaml with its default."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from csi.config.durations import Seconds
from csi.config.setting_types import TimeOfDay, TimeZone
from csi.patterns import check_pattern
from csi.processing.money import Usd
from csi.processing.video_lists import MANUAL

Action = Literal["process", "notify", "digest", "ignore"]
DocumentKind = Literal["concept", "implementation"]
Kind = Literal["video", "short", "live", "upcoming"]
STREAMS = ("live", "upcoming")
TranscriberName = Literal["captions", "assemblyai", "file"]


def _check_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s@#]+", text):
        raise ValueError("expected a URL such as https://host/path")
    return text.rstrip("/")


UpToOneYear = Annotated[Seconds, Field(le=31_622_400)]
Pattern = Annotated[str, AfterValidator(lambda text: check_pattern(text) if text else text)]
Url = Annotated[str, AfterValidator(_check_url)]
Variable = Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]{0,127}$")]
PipelineName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
Price = Annotated[Usd, Field(ge=0)]


class SettingsBlock(BaseModel):
    """A block of the file: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SignalRoute(SettingsBlock):
    action: Action = "process"
    documents: tuple[DocumentKind, ...] = ()
    notify: bool = False


class BudgetSettings(SettingsBlock):
    daily_usd: Price = Decimal("5.0000")
    alert_at: Annotated[float, Field(gt=0, le=1)] = 0.8


class LimitSettings(SettingsBlock):
    """Which videos are skipped, and how many others are processed in one day."""

    videos_per_day: Annotated[int, Field(ge=0)] = 200
    min_duration: UpToOneYear = 0.0
    max_duration: UpToOneYear = 14_400.0
    skip_kinds: tuple[Kind, ...] = ()
    skip_title: Pattern | None = None
    max_transcript_words: Annotated[int, Field(ge=1)] = 1_000_000


class CaptionSettings(SettingsBlock):
    """`ask_again`: the ages of a video at which a transcript that it has not yet is asked for again."""

    base_url: Url | None = None
    ask_again: Annotated[tuple[UpToOneYear, ...], Field(max_length=20)] = (600.0, 3600.0, 21_600.0, 86_400.0, 259_200.0)


class TranscriptFileSettings(SettingsBlock):
    directory: Path = Path("transcripts")


class VideoFactSettings(SettingsBlock):
    """Where the length of a video and the end of a stream are looked up, besides the ingester's catalogue."""

    youtube_key_env: Variable | None = None
    youtube_base_url: Url = "https://www.googleapis.com/youtube/v3"


class AssemblyAISettings(SettingsBlock):
    base_url: Url = "https://api.assemblyai.com"
    api_key_env: Variable = "ASSEMBLYAI_API_KEY"
    audio_dir: Path | None = None
    audio_command: tuple[str, ...] = ()
    max_audio_mb: Annotated[int, Field(ge=1, le=2200)] = 200
    usd_per_hour: Price = Decimal("0.37")
    poll_seconds: Annotated[UpToOneYear, Field(ge=1)] = 15.0
    give_up_after: UpToOneYear = 21_600.0
    webhook_url: Url | None = None
    webhook_secret_env: Variable = "CSI_ASSEMBLYAI_WEBHOOK_SECRET"  # noqa: S105 a name


class TranscriptionSettings(SettingsBlock):
    """Transcript providers, in the order in which they are called."""

    providers: Annotated[tuple[TranscriberName, ...], Field(min_length=1)] = ("captions",)
    languages: tuple[Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}([_-][A-Za-z]{2,4})?$")], ...] = ()
    speaker_labels: bool = True
    captions: CaptionSettings = CaptionSettings()
    file: TranscriptFileSettings = TranscriptFileSettings()
    assemblyai: AssemblyAISettings = AssemblyAISettings()


class OpenAISettings(SettingsBlock):
    """Any endpoint with OpenAI's chat completions API."""

    base_url: Url = "https://api.openai.com/v1"
    model: Annotated[str, Field(min_length=1, max_length=200)] = "gpt-4o-mini"
    api_key_env: Variable | None = "OPENAI_API_KEY"
    usd_per_million_input: Price = Decimal("0.15")
    usd_per_million_output: Price = Decimal("0.60")
    max_output_tokens: Annotated[int, Field(ge=64)] = 2000
    token_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"  # noqa: S105
    chunk_words: Annotated[int, Field(ge=100)] = 6000
    timeout: Annotated[UpToOneYear, Field(ge=1, le=600)] = 120.0
    honours_idempotency_key: bool = False
    retry_unknown_below_usd: Price = Decimal("0.01")


class SummarizationSettings(SettingsBlock):
    provider: Literal["extractive", "openai"] = "extractive"
    summary_type: Literal["short", "detailed", "executive"] = "short"
    max_bullets: Annotated[int, Field(ge=1, le=20)] = 6
    focus_areas: tuple[Annotated[str, Field(max_length=200)], ...] = ()
    prompts_dir: Path | None = None
    openai: OpenAISettings = OpenAISettings()


class NotificationSettings(SettingsBlock):
    """Where notifications are sent, and for how long they are collected into one message."""

    window: UpToOneYear = 300.0
    urls_env: Variable = "CSI_NOTIFY_URLS"
    file: Path | None = None
    public_url: Url | None = None


class PageSettings(SettingsBlock):
    """`thumbnails`: browsers load images from YouTube (i.ytimg.com); else the pages load nothing from other hosts."""

    thumbnails: bool = False


class StoreSettings(SettingsBlock):
    """Where documents and memories are kept: `local`, or the name of an entry point of an installed package."""

    documents: Annotated[str, Field(min_length=1, max_length=100)] = "local"
    memory: Annotated[str, Field(min_length=1, max_length=100)] = "local"


class DigestTime(SettingsBlock):
    """When a digest is written: of what happened since the last one."""

    at: TimeOfDay = "00:00"
    time_zone: TimeZone = "UTC"


class DigestSettings(DigestTime):
    """`pipelines` have digests of their own; the others share one."""

    enabled: bool = True
    notify: bool = True
    pipelines: Annotated[dict[PipelineName, DigestTime], Field(max_length=50)] = {}


class DeadLetterSettings(SettingsBlock):
    """Automatic retries of dead jobs that failed because of an outage."""

    auto_retry: bool = True
    retry_after: UpToOneYear = 3600.0
    max_rounds: Annotated[int, Field(ge=0, le=100)] = 8


Days = Annotated[int, Field(ge=1, le=36_500)]


class ProcessingRetentionSettings(SettingsBlock):
    """How long rows are kept; `audit_days` is written into each entry of the audit log."""

    audit_days: Days = 365
    signals_days: Days = 90
    messages_days: Days = 90
    calls_days: Days = 365
    dead_letters_days: Days = 365
    videos_days: Days | None = None


DEFAULT_ROUTES: dict[str, SignalRoute] = {
    "youtube_tutorial_explainer": SignalRoute(documents=("concept", "implementation")),
    "creator_watchlist_handler": SignalRoute(notify=True),
}
"""The PRD's two pipelines (§3.2, §3.3)."""


class ProcessingSettings(SettingsBlock):
    state_dir: Path = Path("processing")
    database: str | None = None
    queue: str | None = None
    allow_unprotected_queue: bool = False
    receiver_db: Path = Path("csi-receiver.db")
    artifacts_dir: Path | None = None
    paused: bool = False
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["auto", "json", "text"] = "auto"
    ingester_url: Url | None = None
    ingester_token_env: Variable = "CSI_ADMIN_READ_TOKEN"  # noqa: S105 a name
    admin_token_env: Variable = "CSI_ADMIN_TOKEN"  # noqa: S105 a name
    routes: dict[Annotated[str, Field(min_length=1, max_length=512)], SignalRoute] = DEFAULT_ROUTES
    budget: BudgetSettings = BudgetSettings()
    limits: LimitSettings = LimitSettings()
    facts: VideoFactSettings = VideoFactSettings()
    transcription: TranscriptionSettings = TranscriptionSettings()
    summarization: SummarizationSettings = SummarizationSettings()
    notifications: NotificationSettings = NotificationSettings()
    pages: PageSettings = PageSettings()
    stores: StoreSettings = StoreSettings()
    digest: DigestSettings = DigestSettings()
    dlq: DeadLetterSettings = DeadLetterSettings()
    retention: ProcessingRetentionSettings = ProcessingRetentionSettings()

    @model_validator(mode="before")
    @classmethod
    def _keep_default_routes(cls, data: Any) -> Any:
        """Routes in the file are added to the PRD's two; a route of the same name replaces the default."""
        if isinstance(data, dict) and isinstance(data.get("routes"), dict):
            return {**data, "routes": {**DEFAULT_ROUTES, **data["routes"]}}
        return data

    @model_validator(mode="after")
    def _digests_have_routes(self) -> Self:
        known = {*self.routes, MANUAL}
        unknown = sorted(set(self.digest.pipelines) - known)
        if unknown:
            raise ValueError(
                f"digest.pipelines: {unknown[0]!r} has no route; expected one of {', '.join(sorted(known))}"
            )
        return self

    @property
    def database_url(self) -> str:
        return self.database or str(self.state_dir / "processing.db")

    @property
    def queue_url(self) -> str:
        return self.queue or str(self.state_dir / "queue.db")

    @property
    def artifacts(self) -> Path:
        return self.artifacts_dir or self.state_dir / "artifacts"

    @property
    def notice_file(self) -> Path:
        return self.notifications.file or self.state_dir / "notifications.md"

    def snapshot(self) -> dict[str, Any]:
        """The configuration that is stored with a run. URLs of databases may contain a password and are left out."""
        return self.model_dump(mode="json", exclude={"database", "queue"})
