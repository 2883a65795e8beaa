"""`csi top`: the page of `csi status` with the newest events, drawn anew every moment."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi.cli.installation import installed
from csi.cli.options import config_option
from csi.cli.output import AgeType
from csi.cli.status import lines
from csi.cli.terminal import ago, plain, table
from csi.status import overview
from csi.store.queries import event_list

if TYPE_CHECKING:
    from csi.runtime import Runtime

NEWEST = 50


@click.command()
@config_option
@click.option("--interval", type=AgeType(), default="2s", show_default=True, help="Time between two frames.")
@click.option("--once", is_flag=True, help="Draw one frame and end; what happens anyway when no terminal is there.")
def top(config_path: Path | None, interval: float, once: bool) -> None:
    """Watch it work, live, until Ctrl-C. Without a terminal one frame is printed."""
    with installed(config_path) as rt:
        if once or not sys.stdout.isatty():
            click.echo("\n".join(frame(rt, 20)))
            return
        try:
            _live(rt, max(interval, 0.2))
        except KeyboardInterrupt:
            return


def frame(rt: Runtime, rows: int) -> list[str]:
    """One page of text, so many events long."""
    page = list(lines(overview.overview(rt)))
    return [*page, "", *_event_lines(rt, rows)]


def _event_lines(rt: Runtime, rows: int) -> Iterator[str]:
    now = rt.now()
    found = [[ago(now - one.first_seen_at), one.state, one.tier, one.title] for one in event_list.newest(max(rows, 1))]
    yield from table(("SEEN", "STATE", "TIER", "NEWEST EVENTS"), found)


def _live(rt: Runtime, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False, screen=True) as live:
        while True:
            height, width = shutil.get_terminal_size().lines, shutil.get_terminal_size().columns
            page = [plain(line, max(width - 1, 20)) for line in frame(rt, NEWEST)]
            # As Text, not as markup: a title in brackets is a title.
            live.update(Text("\n".join(page[: max(height - 1, 5)]), no_wrap=True), refresh=True)
            time.sleep(interval)
