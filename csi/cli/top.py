"""`csi top`: the status and the newest events, live, with keys."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi.cli import status
from csi.cli.command import DurationType, config_option, installed
from csi.cli.events import timeline_lines
from csi.cli.output import ago, echo_lines, plain, table
from csi.ingester.text import clean
from csi.status import overview, timeline
from csi.store.queries import event_search

if TYPE_CHECKING:
    from csi.runtime import Runtime
    from csi.store.queries.event_search import EventRow

NEWEST = 50
HEAD = ("", "SEEN", "STATE", "TIER", "NEWEST EVENTS")
KEYS = "q quit   / filter   j k or arrows: choose   Enter: show the event   Esc: back"
LONGEST_FILTER = 100


@click.command()
@config_option
@click.option("--interval", type=DurationType(), default="2s", show_default=True, help="Time between two frames.")
@click.option("--once", is_flag=True, help="Print one frame and exit; the default when stdout is not a terminal.")
def top(config_path: Path | None, interval: float, once: bool) -> None:
    """Show the status and the newest events, live, until q or Ctrl-C. Without a terminal one frame is printed.

    Keys: / filters events by a part of title or id, j and k or the arrows choose one, Enter shows its timeline, Esc
    goes back.
    """
    with installed(config_path) as rt:
        if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            echo_lines(frame(rt, 20))
            return
        with contextlib.suppress(KeyboardInterrupt):
            _live(rt, max(interval, 0.2))


@dataclass(frozen=True)
class TopState:
    """What the keys have chosen. `typed` None: no filter is being typed; `shown`: the event on the page, if one is."""

    filter: str = ""
    typed: str | None = None
    chosen: int = 0
    shown: str | None = None
    is_over: bool = False
    events: tuple[EventRow, ...] = field(default=(), repr=False)


def after_key(state: TopState, key: str) -> TopState:
    """The state after one key. Pure."""
    if state.typed is not None:
        text = state.typed or ""
        match key:
            case "\r" | "\n":
                return replace(state, filter=text, typed=None, chosen=0)
            case "\x1b" | "\x03":
                return replace(state, typed=None)
            case "\x7f" | "\b":
                return replace(state, typed=text[:-1])
        return replace(state, typed=clean(text + key, LONGEST_FILTER)) if key.isprintable() else state
    match key:
        case "q" | "\x03" | "\x04":
            return replace(state, is_over=True)
        case "/":
            return replace(state, typed=state.filter, shown=None)
        case "\x1b":
            return replace(state, shown=None) if state.shown else replace(state, filter="", chosen=0)
        case "\r" | "\n" if state.events:
            return replace(state, shown=state.events[min(state.chosen, len(state.events) - 1)].event_id)
        case "j" | "\x1b[B":
            return replace(state, chosen=min(state.chosen + 1, max(len(state.events) - 1, 0)))
        case "k" | "\x1b[A":
            return replace(state, chosen=max(state.chosen - 1, 0))
    return state


def frame(rt: Runtime, rows: int, state: TopState | None = None) -> list[str]:
    """One page of text with so many events, or with the timeline of one."""
    if state is not None and state.shown is not None:
        found = timeline.trace(rt, state.shown)
        return [KEYS, "", *(line for one in found.timelines for line in timeline_lines(one, full=False))]
    now = rt.now()
    newest = list(state.events) if state else _newest(TopState(), rows)
    cells = [
        ["›" if state and place == state.chosen else "", ago(now - one.first_seen_at), one.state, one.tier,
         one.title or one.event_id]
        for place, one in enumerate(newest[: max(rows, 1)])
    ]  # fmt: skip
    head = []
    if state is not None:
        text = state.filter if state.typed is None else f"{state.typed}_"
        head = [f"{KEYS}{f'   filter: {plain(text, 60)}' if text else ''}"]
    return [*head, *status.lines(overview.overview(rt)), "", *table(HEAD, cells)]


def _newest(state: TopState, rows: int) -> list[EventRow]:
    return event_search.newest(event_search.EventQuery(text=state.filter or None), max(rows, 1))


def _live(rt: Runtime, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    state = TopState()
    with _single_keys() as keyboard, Live(console=Console(), auto_refresh=False, screen=True) as live:
        while not state.is_over:
            size = shutil.get_terminal_size()
            state = replace(state, events=tuple(_newest(state, NEWEST)))
            page = [plain(line, max(size.columns - 1, 20)) for line in frame(rt, NEWEST, state)]
            # As Text, not as markup: a title in brackets is a title.
            live.update(Text("\n".join(page[: max(size.lines - 1, 5)]), no_wrap=True), refresh=True)
            for key in _keys(keyboard, interval):
                state = after_key(state, key)


@contextlib.contextmanager
def _single_keys() -> Iterator[int]:
    """Keys arrive at once and are not shown; the terminal is as before afterwards."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _keys(keyboard: int, seconds: float) -> list[str]:
    """The keys that were pressed, as soon as there are some; an empty list after this time."""
    end = time.monotonic() + seconds
    if not select.select([keyboard], [], [], max(end - time.monotonic(), 0))[0]:
        return []
    text = os.read(keyboard, 200).decode("utf-8", "ignore")
    if not text:
        return ["q"]  # the terminal was closed
    found = []
    while text:
        size = 3 if text.startswith("\x1b[") else 1
        found.append(text[:size])
        text = text[size:]
    return found
