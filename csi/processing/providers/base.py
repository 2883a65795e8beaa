"""The interfaces of providers, their requests and results, and ProviderError."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from csi.errors import CsiError
from csi.processing.collection_models import ErrorType, VideoSummary

SummaryType = Literal["short", "detailed", "executive"]
Fault = Literal["transient", "absent", "refused", "account", "quota", "unknown"]
"""transient: repeat the call · absent: there is nothing to transcribe · refused: this input never succeeds · account:
every call is refused until the operator acts (key, access, credit) · quota: no day's budget pays for the call ·
unknown: the request may have been carried out."""


@dataclass(frozen=True)
class ApiCall:
    """One request to a provider, without its query. `status` None: it has no answer."""

    method: str
    endpoint: str
    status: int | None
    duration_ms: float

    def audit_fields(self) -> dict[str, Any]:
        return {
            "api_method": self.method,
            "api_endpoint": self.endpoint,
            "api_response_code": self.status,
            "duration_ms": self.duration_ms,
        }


class ProviderError(CsiError):
    """A provider failed. `fault` decides what happens next, `code` is one word for tables.

    `cause` is shown on health pages and in notifications: it contains neither a URL nor the provider's own words.
    """

    def __init__(
        self,
        message: str,
        fault: Fault,
        code: str,
        *,
        error_type: ErrorType = "api_error",
        retry_after: float | None = None,
        status: int | None = None,
        cause: str | None = None,
    ) -> None:
        super().__init__(message)
        self.cause = cause or message
        self.call: ApiCall | None = None
        self.fault, self.code, self.error_type = fault, code, error_type
        self.retry_after, self.status = retry_after, status


@dataclass(frozen=True)
class TranscriptRequest:
    video_id: str
    url: str
    duration: float
    languages: tuple[str, ...] = ()
    speaker_labels: bool = True


@dataclass(frozen=True)
class Segment:
    """A piece of speech: seconds from the start, and the speaker, where known."""

    start: float
    text: str
    speaker: str | None = None


@dataclass(frozen=True)
class Transcript:
    """A transcript. Its text is empty when the video contains no speech."""

    text: str
    provider: str
    language: str | None = None
    confidence: float | None = None
    segments: tuple[Segment, ...] = ()
    duration: float | None = None
    source: str = ""
    """The URL or file it came from."""

    @property
    def words(self) -> int:
        return len(self.text.split())


def base_language(code: str) -> str:
    """`en` for `en-GB` and `en_us`."""
    return code.replace("_", "-").partition("-")[0].lower()


@dataclass(frozen=True)
class ModelReply:
    """The text and usage of one chat call. `usage_known` is False when the server did not report the usage."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    usage_known: bool = True


class Transcriber(Protocol):
    """A free provider that returns a transcript at once."""

    name: str

    def fetch(self, request: TranscriptRequest) -> Transcript: ...


@dataclass(frozen=True)
class SummaryInput:
    title: str
    channel: str
    url: str
    text: str
    max_bullets: int = 6
    focus_areas: tuple[str, ...] = ()
    summary_type: SummaryType = "short"
    language: str | None = None
    """Of the summary; None: as the model chooses."""

    @property
    def bullets_wanted(self) -> int:
        """A detailed summary has twice as many, one for a person who decides half as many."""
        return {"short": self.max_bullets, "detailed": 2 * self.max_bullets, "executive": -(-self.max_bullets // 2)}[
            self.summary_type
        ]


@dataclass(frozen=True)
class SummaryResult:
    """A summary, the documents beside it, and the tokens used."""

    summary: VideoSummary
    model: str
    documents: dict[str, str] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0


AskModel = Callable[[str, str, str], ModelReply]
"""(part, system text, user text) → reply: one paid call, whose reply is stored and reused."""


class Summariser(Protocol):
    """A provider of summaries. It makes paid calls only through `ask`."""

    name: str
    model: str

    def write(self, source: SummaryInput, documents: tuple[str, ...], ask: AskModel) -> SummaryResult: ...
