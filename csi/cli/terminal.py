"""Text for a terminal: what others wrote cannot move the cursor, and columns stand under each other."""

import re
import unicodedata
from collections.abc import Sequence

# C0 and C1 controls, marks that reverse text, line and paragraph separators, lone surrogates: shown, not sent.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def plain(text: object, width: int | None = None) -> str:
    """Printable on one line, cut to so many columns."""
    shown = _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))
    return shown if width is None or columns(shown) <= width else _cut(shown, width - 1) + "…"


def columns(text: str) -> int:
    """How wide a terminal shows it: Chinese takes two places, a combining mark none."""
    return sum(map(_width, text))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], widest: int = 44) -> list[str]:
    """Aligned columns; the last one is never cut."""
    lines = [[*map(str, head)], *([plain(cell, widest) for cell in row[:-1]] + [plain(row[-1])] for row in rows)]
    sizes = [max(columns(line[place]) for line in lines) for place in range(len(head))]
    return ["  ".join(_padded(cell, size) for cell, size in zip(line, sizes, strict=True)).rstrip() for line in lines]


def ago(seconds: float | None) -> str:
    """`12 s`, `5 min`, `3 h`, `4 d`; a dash for never."""
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _padded(text: str, size: int) -> str:
    return text + " " * (size - columns(text))


def _cut(text: str, width: int) -> str:
    kept, used = [], 0
    for letter in text:
        used += _width(letter)
        if used > width:
            break
        kept.append(letter)
    return "".join(kept)


def _width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
