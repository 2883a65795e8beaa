"""The provider `assemblyai`: upload audio, submit it once, poll until the transcript is ready."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from csi import clock
from csi.net import HttpLimits, Net
from csi.processing.money import exact, round_up
from csi.processing.providers.base import ProviderError, Segment, Transcript, TranscriptRequest
from csi.processing.providers.http_errors import call_json
from csi.processing.settings import AssemblyAISettings

WHO = "AssemblyAI"
WEBHOOK_HEADER = "X-CSI-Webhook-Secret"
MAX_PAGES = 5
PAGE_SIZE = 100
MEGABYTE = 1024 * 1024
COMMAND_SECONDS = 1800
MAX_MILLISECONDS = 366 * 86_400_000
"""One year: a longer offset or duration is an invalid response."""
SUFFIXES = (".mp3", ".m4a", ".mp4", ".webm", ".opus", ".ogg", ".wav", ".flac")
LONGEST_AUDIO = 11 * 3600.0
"""The provider takes 10 hours: a longer one is no length."""
_UNKNOWN_SECONDS = Decimal(3600)
"""The assumed duration of a video of unknown duration."""


KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")


def command_environment() -> dict[str, str]:
    """For the operator's audio_command: no secret of this process, which a program that reads foreign sites could
    pass on. What else it needs, it reads from its own files."""
    proxies = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "no_proxy")]
    return {name: os.environ[name] for name in (*KEPT_VARIABLES, *proxies) if name in os.environ}


@dataclass(frozen=True)
class AssemblyTranscriber:
    """transcription.providers: [assemblyai]. Each method makes one request; the pipeline commits between them."""

    settings: AssemblyAISettings
    net: Net
    key: str = field(repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    now: Callable[[], float] = clock.now
    name: str = "assemblyai"

    def estimate(self, request: TranscriptRequest) -> Decimal:
        seconds = Decimal(str(request.duration)) if request.duration > 0 else _UNKNOWN_SECONDS
        return round_up(self.settings.usd_per_hour * seconds / 3600)

    def price(self, transcript: Transcript, request: TranscriptRequest) -> Decimal:
        """The estimate, where the provider does not tell a length that can be."""
        if not transcript.duration:
            return self.estimate(request)
        return exact(self.settings.usd_per_hour * Decimal(str(transcript.duration)) / 3600)

    def upload(self, request: TranscriptRequest) -> str:
        """Upload the audio and return its URL. It is free, and every upload gets a URL of its own."""
        audio_dir = self.settings.audio_dir
        files = [audio_dir / f"{request.video_id}{suffix}" for suffix in SUFFIXES] if audio_dir else []
        with tempfile.TemporaryDirectory(prefix="csi-audio-") as folder:
            path = next((one for one in files if one.is_file()), None) or self._run_command(request, Path(folder))
            if path is None:
                words = f"no audio of {request.video_id}: set transcription.assemblyai.audio_dir or audio_command"
                raise ProviderError(words, "absent", "no_audio", error_type="invalid_audio")
            if path.stat().st_size > self.settings.max_audio_mb * MEGABYTE:
                raise _invalid_audio(f"the audio is larger than {self.settings.max_audio_mb} MB (max_audio_mb)")
            if not path.stat().st_size:
                raise _invalid_audio("the audio file is empty")
            audio = path.read_bytes()
        limits = HttpLimits(total=600.0)
        found = self._post("/v2/upload", audio, "application/octet-stream", limits).get("upload_url")
        if not isinstance(found, str) or not found:
            raise ProviderError(f"{WHO}: the upload returned no URL", "transient", "bad_answer")
        return found

    def submit(self, upload_url: str, request: TranscriptRequest) -> str:
        """Create the paid job and return its id."""
        body: dict[str, Any] = {"audio_url": upload_url, "speaker_labels": request.speaker_labels}
        if len(request.languages) == 1:
            body["language_code"] = request.languages[0].replace("-", "_").lower()
        else:
            body["language_detection"] = True
        if self.settings.webhook_url and self.webhook_secret:
            body |= {"webhook_url": self.settings.webhook_url, "webhook_auth_header_name": WEBHOOK_HEADER}
            body["webhook_auth_header_value"] = self.webhook_secret
        found = self._post("/v2/transcript", json.dumps(body).encode(), "application/json").get("id")
        if not isinstance(found, str) or not found:
            raise ProviderError(f"{WHO}: the response has no job id", "unknown", "bad_answer")
        return found

    def find_submitted(self, upload_url: str) -> str | None:
        """The job of this upload, when a submission arrived whose response was lost."""
        after: str | None = None
        for _ in range(MAX_PAGES):
            query = f"?limit={PAGE_SIZE}" + (f"&before_id={after}" if after else "")
            rows = self._get(f"/v2/transcript{query}").get("transcripts")
            rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            for row in rows:
                if row.get("audio_url") == upload_url and isinstance(row.get("id"), str):
                    return str(row["id"])
            if len(rows) < PAGE_SIZE:
                return None
            after = str(rows[-1].get("id"))
        return None

    def fetch(self, provider_job_id: str) -> Transcript | None:
        """None while the provider has not finished."""
        data = self._get(f"/v2/transcript/{provider_job_id}")
        if data.get("id", provider_job_id) != provider_job_id:
            raise ProviderError(f"{WHO}: it answered with another job", "transient", "bad_answer")
        return read_transcript(data)

    def check_access(self) -> None:
        """A free request that needs the key. ProviderError `account` when the key is refused."""
        self._get("/v2/transcript?limit=1")

    def _run_command(self, request: TranscriptRequest, folder: Path) -> Path | None:
        """The file that the operator's audio_command wrote. There is no shell: each word is one argument."""
        if not self.settings.audio_command:
            return None
        values = {"{url}": request.url, "{video_id}": request.video_id, "{out}": str(folder / "audio")}
        # One pass over each word: a placeholder inside of an inserted value is not replaced again.
        names = re.compile("|".join(map(re.escape, values)))
        line = [names.sub(lambda match: values[match[0]], word) for word in self.settings.audio_command]
        try:
            done = subprocess.run(  # noqa: S603
                line, capture_output=True, timeout=COMMAND_SECONDS, check=False, env=command_environment()
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProviderError(f"audio_command: {type(error).__name__}", "transient", "audio_command") from error
        if done.returncode != 0:
            raise ProviderError(f"audio_command ended with code {done.returncode}", "transient", "audio_command")
        return next(iter(sorted(folder.iterdir())), None)

    def _post(self, path: str, body: bytes, content_type: str, limits: HttpLimits | None = None) -> dict[str, Any]:
        headers = {"Content-Type": content_type, "Authorization": self.key}  # AssemblyAI expects no `Bearer`
        url = self.settings.base_url + path
        send = partial(self.net.post, url, body=body, headers=headers, limits=limits)
        return call_json(send, WHO, self.now, method="POST", url=url)

    def _get(self, path: str) -> dict[str, Any]:
        headers, limits = {"Authorization": self.key}, HttpLimits(total=60.0, max_body=256 * MEGABYTE)
        url = self.settings.base_url + path
        send = partial(self.net.get, url, headers=headers, limits=limits)
        return call_json(send, WHO, self.now, method="GET", url=url)


class Utterance(BaseModel):
    """A piece of speech of one speaker; `start` is in milliseconds."""

    start: Annotated[float, Field(ge=0, le=MAX_MILLISECONDS)] = 0.0
    text: str = ""
    speaker: str | None = None


class TranscriptObject(BaseModel):
    """The fields that we read of AssemblyAI's completed transcript object."""

    text: str | None = None
    language_code: Annotated[str, Field(max_length=40)] | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    audio_duration: Annotated[float, Field(ge=0, le=MAX_MILLISECONDS / 1000)] | None = None
    audio_url: str | None = None
    utterances: list[Utterance] | None = None


def read_transcript(data: dict[str, Any]) -> Transcript | None:
    """None while the transcript is not ready. AssemblyAI's status `error` means invalid audio, which is not charged."""
    if data.get("status") == "error":
        reason = " ".join(str(data.get("error") or "no reason given").split())[:300]
        raise _invalid_audio(f"{WHO}: {reason}")
    if data.get("status") != "completed":
        return None
    try:
        found = TranscriptObject.model_validate(data)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors()[:3])
        raise ProviderError(f"{WHO}: the transcript is invalid ({fields})", "transient", "bad_answer") from error
    return Transcript(
        text=found.text or "",
        provider="assemblyai",
        language=found.language_code,
        confidence=found.confidence,
        segments=tuple(Segment(said.start / 1000, said.text, said.speaker) for said in found.utterances or ()),
        duration=found.audio_duration if 0 < (found.audio_duration or 0.0) <= LONGEST_AUDIO else None,
        source=found.audio_url or "",
    )


def _invalid_audio(text: str) -> ProviderError:
    return ProviderError(text, "refused", "invalid_audio", error_type="invalid_audio")
