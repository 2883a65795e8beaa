"""What commands have in common: JSON, times, questions before anything is destroyed, a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from csi import clock
from csi.config import durations
from csi.errors import SOME_FAILED as SOME_FAILED


class AgeType(click.ParamType[float]):
    """`90d`, `1h30m`; with `ago` also `1 hour ago`. Never a bare number."""

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
    click.echo(json.dumps(data, indent=2))


def stamp(moment: float | None) -> str:
    return "–" if moment is None else clock.iso(moment)


def iso(moment: float | None) -> str | None:
    return None if moment is None else clock.iso(moment)


def is_terminal() -> bool:
    """A person sits there, who can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when somebody said so: with --yes, or at the terminal."""
    if yes:
        return
    if not is_terminal():
        raise click.UsageError(f"{question} Nobody is there to answer: say --yes, or --dry-run to look first.")
    click.confirm(question, abort=True, err=True)


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, silence elsewhere. Call what it gives with how many are done more."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)
