"""Output that the commands share: JSON, tables, times, confirmation questions, a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from csi import clock
from csi.cli.text_table import plain, table
from csi.config import durations
from csi.errors import SOME_FAILED as SOME_FAILED


class DurationType(click.ParamType[float]):
    """A duration as an option's value: `90d`, `1h30m`; with `ago` also `1 hour ago`. A bare number is refused."""

    name = "duration"

    def __init__(self, *, ago: bool = False) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return durations.parse_since(str(value)) if self._ago else durations.parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


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
