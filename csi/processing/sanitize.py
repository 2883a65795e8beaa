"""Make text from outside safe for a database column, a file, a line of Markdown and a link."""

import re
from typing import Any

# Control characters except tab and newline, and lone surrogates: a column or a terminal cannot hold them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LINK = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{1,490}")


def plain_text(value: Any, most: int) -> str:
    """Keeps line breaks. Empty for anything that is not text."""
    return _CONTROL.sub("", value[:most]) if isinstance(value, str) else ""


def plain_line(value: Any, most: int = 500) -> str:
    """One line of at most `most` characters; empty for anything that is not text."""
    text = value[: 4 * most] if isinstance(value, str) else ""
    return " ".join(_CONTROL.sub(" ", text).split())[:most]


def markdown_line(text: str) -> str:
    """One line that cannot become a heading, a link or HTML, nor reverse the direction of the text around it."""
    flat = _BIDI.sub("", plain_line(text, len(text)))
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", flat)


def safe_link(value: Any) -> str:
    """An https URL without characters that could end it early in Markdown or HTML; else empty."""
    return value if isinstance(value, str) and _LINK.fullmatch(value) else ""
