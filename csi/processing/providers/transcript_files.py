"""Transcripts from a directory: `<video_id>.txt`, `.md` or `.json`. For tests, demos and people who have their own."""

from pathlib import Path

from csi.processing.providers.base import ProviderError, Transcript, TranscriptRequest
from csi.processing.providers.transcript_formats import from_file

MAX_BYTES = 64 * 1024 * 1024
SUFFIXES = (".json", ".txt", ".md")


class FileTranscriber:
    """transcription.providers: [file]"""

    name = "file"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fetch(self, wanted: TranscriptRequest) -> Transcript:
        for suffix in SUFFIXES:
            path = self._directory / f"{wanted.video_id}{suffix}"
            if path.is_file():
                return from_file(_read(path), is_json=suffix == ".json", provider=self.name, source=path.name)
        raise ProviderError(f"no transcript of {wanted.video_id} in {self._directory}", fault="absent", code="no_file")


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ProviderError(f"{path.name}: larger than any transcript", fault="refused", code="bad_transcript")
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ProviderError(f"{path.name}: cannot be read as text", fault="refused", code="bad_transcript") from error
