"""The provider `file`: transcripts from a directory, `<video_id>.txt`, `.md` or `.json`."""

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

    def fetch(self, request: TranscriptRequest) -> Transcript:
        for suffix in SUFFIXES:
            path = self._directory / f"{request.video_id}{suffix}"
            if path.is_file():
                return self._read(path)
        words = f"no transcript of {request.video_id} in {self._directory}"
        raise ProviderError(words, fault="absent", code="no_file")

    def _read(self, path: Path) -> Transcript:
        try:
            if path.stat().st_size > MAX_BYTES:
                words = f"{path.name}: larger than {MAX_BYTES // 1024**2} MB"
                raise ProviderError(words, fault="refused", code="bad_transcript")
            content = path.read_text("utf-8")
        except (OSError, ValueError) as error:
            words = f"{path.name}: cannot be read as text"
            raise ProviderError(words, fault="refused", code="bad_transcript") from error
        return from_file(content, is_json=path.suffix == ".json", provider=self.name, source=path.name)
