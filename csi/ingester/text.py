"""Clean text and JSON of sources before they are stored: no control characters, lone surrogates, NaN, no long strings.

PostgreSQL rejects NUL and lone surrogates, and canonical JSON has no NaN: one such item would block its batch.
"""

import math
import re
from typing import Any

from csi.errors import MalformedItem

TITLE_CHARS = 500
TEXT_CHARS = 5_000
MAX_DEPTH = 20
MAX_INTEGER = 2**63 - 1

# C0 controls except tab and newline, DEL, lone surrogates. Bidi marks and U+2028 are valid text and stay.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


_ICON = re.compile(r"https://[^\s\"'<>\\]{1,1000}")


def icon_address(value: Any) -> str | None:
    """The address of an image that a page may show; None for anything else."""
    return value if isinstance(value, str) and _ICON.fullmatch(value) else None


def clean(text: str, limit: int = TEXT_CHARS) -> str:
    return _UNSAFE.sub("", text)[:limit]


def clean_tree(value: Any, depth: int = 0) -> Any:
    """The same for a JSON value. Raises MalformedItem for a value that is not plain JSON, or nested too deep."""
    if depth > MAX_DEPTH:
        raise MalformedItem("the item nests too deep")
    match value:
        case str():
            return clean(value)
        case bool() | None:
            return value
        case int() if abs(value) <= MAX_INTEGER:
            return value
        case float() if math.isfinite(value):
            return value
        case dict():
            return {clean(str(key), TITLE_CHARS): clean_tree(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple():
            return [clean_tree(inner, depth + 1) for inner in value]
    raise MalformedItem(f"the item holds a value that is not JSON ({type(value).__name__})")
