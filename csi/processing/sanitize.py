"""What others wrote, made fit for a row, a file, a line of Markdown and a link."""

import re
from typing import Any

# Controls but tab and newline, and lone surrogates: neither a column nor a terminal can take them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LINK = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{1,490}")


def plain_text(value: Any, most: int) -> str:
    """Lines stay lines. Empty for whatever is no text."""
    return _CONTROL.sub("", value[:most]) if isinstance(value, str) else ""


def plain_line(value: Any, most: int = 500) -> str:
    """One line of at most so many letters; empty for whatever is no text."""
    text = value[: 4 * most] if isinstance(value, str) else ""
    return " ".join(_CONTROL.sub(" ", text).split())[:most]


def markdown_line(text: str) -> str:
    """One line that cannot become a heading, a link or HTML of its own, nor turn what stands beside it around."""
    flat = _BIDI.sub("", plain_line(text, len(text)))
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", flat)


def safe_link(value: Any) -> str:
    """An https address without anything that could end it early; else nothing."""
    return value if isinstance(value, str) and _LINK.fullmatch(value) else ""
