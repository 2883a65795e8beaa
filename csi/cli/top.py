"""`csi top`: the page of `csi status` with the newest events, refreshed every two seconds."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi.cli.command import DurationType, config_option, installed
from csi.cli.output import ago, plain, table
from csi.cli.status import lines
from csi.status import overview, search
from csi.store.queries import event_search

if TYPE_CHECKING:
    from csi.runtime import Runtime

NEWEST = 50


@click.command()
@config_option
@click.option("--interval", type=DurationType(), default="2s", show_default=True, help="Time between two frames.")
@click.option("--once", is_flag=True, help="Print one frame and exit; the default when stdout is not a terminal.")
def top(config_path: Path | None, interval: float, once: bool) -> None:
    """Show the status and the newest events, live, until Ctrl-C. Without a terminal one frame is printed."""
    with installed(config_path) as rt:
        if once or not sys.stdout.isatty():
            click.echo("\n".join(frame(rt, 20)))
            return
        try:
            _live(rt, max(interval, 0.2))
        except KeyboardInterrupt:
            return


def frame(rt: Runtime, rows: int) -> list[str]:
    """One page of text with so many events."""
    now, newest = rt.now(), search.search(event_search.EventQuery(), max(rows, 1)).events
    events = [[ago(now - one.first_seen_at), one.state, one.tier, one.title or one.event_id] for one in newest]
    return [*lines(overview.overview(rt)), "", *table(("SEEN", "STATE", "TIER", "NEWEST EVENTS"), events)]


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
