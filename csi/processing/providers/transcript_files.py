"""The provider `file`: transcripts from a directory, as text or JSON; and the JSON formats, also YouTube's json3."""

import json
from pathlib import Path
from typing import Any

from csi.processing.providers.base import ProviderError, Segment, Transcript, TranscriptRequest

MAX_BYTES = 64 * 1024 * 1024
SUFFIXES = (".json", ".txt", ".md")
MAX_OFFSET = 366 * 86_400_000
"""The largest accepted offset, in seconds or milliseconds: one year in milliseconds."""


class FileTranscriber:
    """transcription.providers: [file]"""

    name = "file"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fetch(self, request: TranscriptRequest) -> Transcript:
        paths = [self._directory / f"{request.video_id}{suffix}" for suffix in SUFFIXES]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise ProviderError(f"no transcript of {request.video_id} in {self._directory}", "absent", "no_file")
        try:
            if path.stat().st_size > MAX_BYTES:
                raise _bad_transcript(path, f"larger than {MAX_BYTES // 1024**2} MB")
            content = path.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise _bad_transcript(path, "cannot be read as text") from error
        if path.suffix != ".json":
            return Transcript(content.strip(), self.name, source=path.name)
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _bad_transcript(path, "not valid JSON") from error
        if not isinstance(data, dict):
            raise _bad_transcript(path, "expected a JSON object")
        return from_json(data, provider=self.name, source=path.name)


def _bad_transcript(path: Path, reason: str) -> ProviderError:
    return ProviderError(f"{path.name}: {reason}", "refused", "bad_transcript")


def from_json(data: dict[str, Any], *, provider: str, source: str) -> Transcript:
    """JSON with `text`, `segments`, or YouTube's own `events`."""
    segments = []
    if "events" in data:  # YouTube's json3: events with a start in milliseconds and pieces of text
        for row in _dicts(data["events"]):
            pieces = "".join(str(piece.get("utf8", "")) for piece in _dicts(row.get("segs"))).strip()
            if pieces:
                segments.append(Segment(_offset(row.get("tStartMs")) / 1000, pieces))
    else:
        for row in _dicts(data.get("segments")):
            speaker = row.get("speaker")
            speaker = speaker if isinstance(speaker, str) else None
            segments.append(Segment(_offset(row.get("start")), str(row.get("text", "")), speaker))
    text, language, confidence = data.get("text"), data.get("language"), data.get("confidence")
    joined = " ".join(" ".join(segment.text for segment in segments).split())
    return Transcript(
        text=text.strip() if isinstance(text, str) else joined,
        provider=provider,
        language=language if isinstance(language, str) else None,
        confidence=float(confidence) if isinstance(confidence, int | float) and 0 <= confidence <= 1 else None,
        segments=tuple(segments),
        source=source,
    )


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _offset(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value <= MAX_OFFSET else 0.0
