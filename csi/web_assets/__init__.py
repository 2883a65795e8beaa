"""The style sheet and the icon that all dashboards of CSI share."""

from functools import cache
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
CACHE_HEADERS = {"Cache-Control": "public, max-age=86400"}


@cache
def shared_files() -> dict[str, bytes]:
    """`dashboard.css` and `icon.svg`, by name."""
    return files_in(HERE)


def files_in(folder: Path) -> dict[str, bytes]:
    """The files of a folder that a browser may load, by name."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in MEDIA_TYPES}


def versioned_url(folder: str, name: str, content: bytes) -> str:
    """A URL that changes with the content, so that a browser may cache the file."""
    return f"{folder}/{name}?v={sha256(content).hexdigest()[:12]}"


def media_type(name: str) -> str:
    return MEDIA_TYPES[Path(name).suffix]
