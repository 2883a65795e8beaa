"""The artifact store: transcripts, summaries and digests as files, each written atomically."""

import hashlib
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from csi.errors import StoreError
from csi.processing.sanitize import plain_text
from csi.processing.store.artifacts import Artifact

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")


class ArtifactStore:
    """A local directory. Ids are checked as file names, so an id from outside cannot name a path outside of it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, video_id: str | None, name: str, kind: str, text: str) -> Artifact:
        """Write a temporary file and rename it: a reader sees the old file or the new one. Safe to repeat."""
        folder = _checked(video_id) if video_id else "digests"
        path = self.root / folder / _checked(name)
        data = plain_text(text, len(text)).encode()
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise StoreError(f"{path}: the artifact cannot be written: {error.strerror}") from error
        relative = f"{folder}/{path.name}"
        artifact_id = "art_" + hashlib.sha256(relative.encode()).hexdigest()[:20]
        return Artifact(artifact_id, video_id, kind, relative, hashlib.sha256(data).hexdigest(), len(data))

    def remove(self, video_id: str) -> bool:
        """Remove the files of a video. False: they cannot be removed."""
        folder = self.root / _checked(video_id)
        with suppress(FileNotFoundError):
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                raise
            except OSError:
                return False
        return True

    def read(self, artifact: Artifact) -> str | None:
        """None when the file no longer exists."""
        try:
            return (self.root / artifact.path).read_text("utf-8", "replace")
        except OSError:
            return None


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise StoreError("an artifact's name may contain only letters, digits, dots, dashes and underscores")
    return name
