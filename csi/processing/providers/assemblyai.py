"""AssemblyAI: audio is uploaded, submitted once, and looked at until it is done (FACTS 6)."""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from csi import clock
from csi.errors import NetError
from csi.net import HttpLimits, HttpResponse, Net
from csi.processing.money import round_up, usd
from csi.processing.providers.base import ProviderError, Segment, Transcript, TranscriptPending, TranscriptRequest
from csi.processing.providers.http_errors import read_json, refusal, unreachable
from csi.processing.settings import AssemblyAISettings as Settings

WHO = "AssemblyAI"
WEBHOOK_HEADER = "X-CSI-Webhook-Secret"
PAGES = 5
PAGE = 100
MEGABYTE = 1024 * 1024
COMMAND_SECONDS = 1800
LONGEST_MS = 366 * 86_400_000
"""No recording is longer; what says so is no answer of theirs."""
SUFFIXES = (".mp3", ".m4a", ".mp4", ".webm", ".opus", ".ogg", ".wav", ".flac")
_UNKNOWN_SECONDS = Decimal(3600)
"""What a video whose length nobody knows is estimated at."""

# Their word, ours (spec 001).
STATUSES = {"queued": "submitted", "processing": "processing", "completed": "completed", "error": "failed"}


@dataclass(frozen=True)
class AssemblyTranscriber:
    """transcription.providers: [assemblyai]"""

    settings: Settings
    net: Net
    key: str = field(repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    now: Callable[[], float] = clock.now
    name: str = "assemblyai"

    def estimate(self, wanted: TranscriptRequest) -> Decimal:
        seconds = Decimal(str(wanted.duration)) if wanted.duration > 0 else _UNKNOWN_SECONDS
        return round_up(self.settings.usd_per_hour * seconds / 3600)

    def price(self, transcript: Transcript) -> Decimal:
        return usd(self.settings.usd_per_hour * Decimal(str(transcript.duration or 0)) / 3600)

    def upload(self, wanted: TranscriptRequest) -> str:
        """The address of the uploaded audio: free of charge, and its own for every upload."""
        with tempfile.TemporaryDirectory(prefix="csi-audio-") as folder:
            audio = self._audio(wanted, Path(folder)).read_bytes()
        limits = HttpLimits(total=600.0)
        headers = {"Content-Type": "application/octet-stream"}
        found = read_json(self._post("/v2/upload", audio, headers, limits), WHO).get("upload_url")
        if not isinstance(found, str) or not found:
            raise ProviderError(f"{WHO}: the upload gave no address", fault="transient", code="bad_answer")
        return found

    def submit(self, upload_url: str, wanted: TranscriptRequest) -> str:
        """The id of the new job: from here on it costs money."""
        body: dict[str, Any] = {"audio_url": upload_url, "speaker_labels": wanted.speaker_labels}
        if len(wanted.languages) == 1:
            body["language_code"] = wanted.languages[0].replace("-", "_").lower()
        else:
            body["language_detection"] = True
        if self.settings.webhook_url and self.webhook_secret:
            body |= {"webhook_url": self.settings.webhook_url, "webhook_auth_header_name": WEBHOOK_HEADER}
            body["webhook_auth_header_value"] = self.webhook_secret
        headers = {"Content-Type": "application/json"}
        found = read_json(self._post("/v2/transcript", json.dumps(body).encode(), headers), WHO).get("id")
        if not isinstance(found, str) or not found:
            raise ProviderError(f"{WHO}: the answer names no job", fault="unknown", code="bad_answer")
        return found

    def find_submitted(self, upload_url: str) -> str | None:
        """The job that was made of this upload, if a submission got through whose answer did not."""
        after: str | None = None
        for _ in range(PAGES):
            query = f"?limit={PAGE}" + (f"&before_id={after}" if after else "")
            rows = read_json(self._get(f"/v2/transcript{query}"), WHO).get("transcripts")
            rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            for row in rows:
                if row.get("audio_url") == upload_url and isinstance(row.get("id"), str):
                    return str(row["id"])
            if len(rows) < PAGE:
                return None
            after = str(rows[-1].get("id"))
        return None

    def look(self, provider_job_id: str) -> Transcript | TranscriptPending:
        return read_transcript(read_json(self._get(f"/v2/transcript/{provider_job_id}"), WHO))

    def _audio(self, wanted: TranscriptRequest, folder: Path) -> Path:
        found = self._lying(wanted) or self._fetched(wanted, folder)
        if found is None:
            raise ProviderError(
                f"no audio of {wanted.video_id}: set transcription.assemblyai.audio_dir or audio_command",
                fault="absent",
                code="no_audio",
                error_type="invalid_audio",
            )
        if found.stat().st_size > self.settings.max_audio_mb * MEGABYTE:
            raise _bad_audio(f"the audio is larger than {self.settings.max_audio_mb} MB (max_audio_mb)")
        if not found.stat().st_size:
            raise _bad_audio("the audio file is empty")
        return found

    def _lying(self, wanted: TranscriptRequest) -> Path | None:
        folder = self.settings.audio_dir
        names = [folder / f"{wanted.video_id}{suffix}" for suffix in SUFFIXES] if folder else []
        return next((path for path in names if path.is_file()), None)

    def _fetched(self, wanted: TranscriptRequest, folder: Path) -> Path | None:
        """What the operator's own command fetched. No shell: each word is one argument."""
        if not self.settings.audio_command:
            return None
        target = folder / "audio"
        words = {"{url}": wanted.url, "{video_id}": wanted.video_id, "{out}": str(target)}
        line = [_filled(word, words) for word in self.settings.audio_command]
        try:
            done = subprocess.run(line, capture_output=True, timeout=COMMAND_SECONDS, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProviderError(
                f"audio_command: {type(error).__name__}", fault="transient", code="audio_command"
            ) from error
        if done.returncode != 0:
            raise ProviderError(
                f"audio_command ended with code {done.returncode}", fault="transient", code="audio_command"
            )
        return next(iter(sorted(folder.iterdir())), None)

    def _post(self, path: str, body: bytes, headers: dict[str, str], limits: HttpLimits | None = None) -> HttpResponse:
        try:
            answer = self.net.post(
                self.settings.base_url + path, body=body, headers=self._keyed(headers), limits=limits
            )
        except NetError as error:
            raise unreachable(error, WHO) from error
        return self._checked(answer)

    def _get(self, path: str) -> HttpResponse:
        limits = HttpLimits(total=60.0, max_body=256 * MEGABYTE)
        try:
            return self._checked(self.net.get(self.settings.base_url + path, headers=self._keyed({}), limits=limits))
        except NetError as error:
            raise unreachable(error, WHO) from error

    def _checked(self, answer: HttpResponse) -> HttpResponse:
        if answer.status != 200:
            raise refusal(answer, WHO, self.now())
        return answer

    def _keyed(self, headers: dict[str, str]) -> dict[str, str]:
        return {**headers, "Authorization": self.key}  # no `Bearer`


class Utterance(BaseModel):
    """What one speaker said, from so many milliseconds on."""

    start: Annotated[float, Field(ge=0, le=LONGEST_MS)] = 0.0
    text: str = ""
    speaker: str | None = None


class TranscriptObject(BaseModel):
    """Their transcript object, as far as we read it, when it is completed."""

    text: str | None = None
    language_code: Annotated[str, Field(max_length=40)] | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    audio_duration: Annotated[float, Field(ge=0, le=LONGEST_MS / 1000)] | None = None
    audio_url: str | None = None
    utterances: list[Utterance] | None = None


def read_transcript(data: dict[str, Any]) -> Transcript | TranscriptPending:
    """Their transcript object as ours; their `error` is a refusal, and costs nothing."""
    status = STATUSES.get(str(data.get("status")))
    if status == "failed":
        reason = " ".join(str(data.get("error") or "no reason given").split())[:300]
        raise _bad_audio(f"{WHO}: {reason}")
    if status != "completed":
        return TranscriptPending()
    try:
        found = TranscriptObject.model_validate(data)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors()[:3])
        raise ProviderError(
            f"{WHO}: its transcript cannot be read ({fields})", fault="transient", code="bad_answer"
        ) from error
    return Transcript(
        text=found.text or "",
        provider="assemblyai",
        language=found.language_code,
        confidence=found.confidence,
        segments=tuple(Segment(said.start / 1000, said.text, said.speaker) for said in found.utterances or ()),
        duration=found.audio_duration or 0.0,
        source=found.audio_url or "",
    )


def _filled(word: str, words: dict[str, str]) -> str:
    """`{out}.%(ext)s` has its place filled, too. Each place once: what is filled in is not looked at again."""
    return re.sub("|".join(map(re.escape, words)), lambda found: words[found[0]], word)


def _bad_audio(text: str) -> ProviderError:
    return ProviderError(text, fault="refused", code="invalid_audio", error_type="invalid_audio")
