"""What a provider is asked, what it may answer, and the words for everything that can go wrong."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, Protocol

from csi.errors import CsiError
from csi.processing.documents import ErrorType, VideoSummary

Fault = Literal["transient", "absent", "refused", "quota", "unknown"]
"""transient: try again · absent: there is nothing to transcribe · refused: never with this input · quota: no credit or
no access, a person must act · unknown: the request may have been carried out, and nobody can say."""


class ProviderError(CsiError):
    """A provider gave nothing. `fault` decides what happens next, `code` is one word for tables."""

    def __init__(
        self,
        message: str,
        *,
        fault: Fault,
        code: str,
        error_type: ErrorType = "api_error",
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.code = code
        self.error_type = error_type
        self.retry_after = retry_after
        self.status = status


@dataclass(frozen=True)
class TranscriptRequest:
    """The video whose transcript is asked for."""

    video_id: str
    url: str
    duration: float
    languages: tuple[str, ...] = ()
    speaker_labels: bool = True


@dataclass(frozen=True)
class Segment:
    """A piece of speech: seconds from the start, and who spoke, where that is known."""

    start: float
    text: str
    speaker: str | None = None


@dataclass(frozen=True)
class Transcript:
    """What was said. Zero words are possible: nobody spoke."""

    text: str
    provider: str
    language: str | None = None
    confidence: float | None = None
    segments: tuple[Segment, ...] = ()
    duration: float | None = None
    source: str = ""
    """Where it was taken from, for the document's `audio_url`."""

    @property
    def words(self) -> int:
        return len(self.text.split())


@dataclass(frozen=True)
class TranscriptPending:
    """The provider works on it; look again later."""


@dataclass(frozen=True)
class ModelReply:
    """The text of one completed chat call, and what it used. `usage_known` is False where the server did not say."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    usage_known: bool = True


class Transcriber(Protocol):
    """A provider that gives a transcript at once, and for nothing."""

    name: str

    def fetch(self, wanted: TranscriptRequest) -> Transcript: ...


class PaidTranscriber(Protocol):
    """A provider that takes audio, is paid, and needs time. Each step is one request: a row stands between two."""

    @property
    def name(self) -> str: ...

    def estimate(self, wanted: TranscriptRequest) -> Decimal: ...
    def upload(self, wanted: TranscriptRequest) -> str: ...
    def find_submitted(self, upload_url: str) -> str | None: ...
    def submit(self, upload_url: str, wanted: TranscriptRequest) -> str: ...
    def look(self, provider_job_id: str) -> Transcript | TranscriptPending: ...
    def price(self, transcript: Transcript) -> Decimal: ...


@dataclass(frozen=True)
class Prompt:
    """A prompt file: `id` and `version` go into every document made with it."""

    id: str
    version: str
    text: str


@dataclass(frozen=True)
class SummaryInput:
    """What is to be summarised."""

    title: str
    channel: str
    url: str
    text: str
    max_bullets: int = 6
    focus_areas: tuple[str, ...] = ()


@dataclass(frozen=True)
class SummaryResult:
    """A finished summary, the documents beside it, and what they used."""

    summary: VideoSummary
    model: str
    documents: dict[str, str] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0


AskModel = Callable[[str, str, str], ModelReply]
"""(part, system text, user text) → reply: one paid call, made once, remembered for ever."""


class Summariser(Protocol):
    """A provider that writes summaries. It reaches the outside only through `ask`."""

    name: str
    model: str
    paid: bool

    def write(self, material: SummaryInput, documents: tuple[str, ...], ask: AskModel) -> SummaryResult: ...
