"""Text for a terminal: control characters are made visible, and table columns are aligned."""

import re
import unicodedata
from collections.abc import Sequence

# C0 and C1 controls, bidirectional marks, line and paragraph separators, lone surrogates. Feed titles contain them;
# sent to a terminal they could move the cursor or reorder the line.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def plain(text: object, width: int | None = None) -> str:
    """The text on one line with unsafe characters escaped, cut to `width` columns."""
    shown = _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))
    if width is None or columns(shown) <= width:
        return shown
    kept, used = [], 0
    for letter in shown:
        used += columns(letter)
        if used > width - 1:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def columns(text: str) -> int:
    """The columns that a terminal uses for the text: two for a wide character, none for a combining mark."""
    return sum(
        0
        if unicodedata.combining(letter) or unicodedata.category(letter) == "Cf"
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], widest: int = 44) -> list[str]:
    """Aligned columns. Cells are cut at `widest`, except in the last column."""
    lines = [[*map(str, head)], *([plain(cell, widest) for cell in row[:-1]] + [plain(row[-1])] for row in rows)]
    sizes = [max(columns(line[place]) for line in lines) for place in range(len(head))]
    return [
        "  ".join(cell + " " * (size - columns(cell)) for cell, size in zip(line, sizes, strict=True)).rstrip()
        for line in lines
    ]


def ago(seconds: float | None) -> str:
    """`12 s`, `5 min`, `3 h`, `4 d`; a dash for None."""
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
