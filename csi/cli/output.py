"""Output that the commands share: safe text, tables, JSON, times, confirmation questions, a progress bar."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from csi import clock, logs

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


def safe(text: object, width: int | None = None) -> str:
    """The same for text that may repeat a secret."""
    return plain(logs.redact(str(text)), width)


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


def echo_json(data: Any) -> None:
    """Print an object of csi.api_models, or plain data that may contain some."""
    click.echo(json.dumps(data, indent=2, default=lambda model: model.model_dump()))


def echo_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def echo_table(head: Sequence[str], rows: Sequence[Sequence[str]], widest: int = 44) -> None:
    echo_lines(table(head, rows, widest))


def echo_fields(fields: dict[str, Any], width: int) -> None:
    """One `name value` pair per line; names are padded to `width`."""
    echo_lines(f"{name:<{width}} {'–' if value is None else plain(value, 100)}" for name, value in fields.items())


def stamp(moment: float | None) -> str:
    return "–" if moment is None else clock.iso(moment)


def iso(moment: float | None) -> str | None:
    return None if moment is None else clock.iso(moment)


def number(value: object) -> str:
    """A table cell: integers with separators, a dash for None."""
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def is_terminal() -> bool:
    """An operator can answer questions: stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_color(stream: TextIO) -> bool:
    """The stream is a terminal that shows colours, and NO_COLOR is not set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, color: str | None) -> str:
    """The text in this colour, where standard output shows colours."""
    return click.style(text, fg=color) if color and is_color(sys.stdout) else text


def confirm(question: str, *, yes: bool) -> None:
    """Return when the operator agreed, by --yes or at the terminal; otherwise the command ends."""
    if yes:
        return
    if not is_terminal():
        raise click.UsageError(f"{question} stdin is not a terminal: pass --yes, or preview with --dry-run.")
    click.confirm(question, abort=True, err=True)


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, no output elsewhere. Yields a function that takes how many more are done."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)
