"""The look that every dashboard of CSI has: one style sheet and one sign, beside whatever a dashboard adds."""

from functools import cache
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
KEPT = {"Cache-Control": "public, max-age=86400"}


@cache
def files() -> dict[str, bytes]:
    """`dashboard.css` and `icon.svg`."""
    return files_in(HERE)


def files_in(folder: Path) -> dict[str, bytes]:
    """What a browser may be given of a folder, by name."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in MEDIA}


def address(folder: str, name: str, content: bytes) -> str:
    """It changes with the content, so that a browser may keep the file."""
    return f"{folder}/{name}?v={sha256(content).hexdigest()[:12]}"


def media(name: str) -> str:
    return MEDIA[Path(name).suffix]
