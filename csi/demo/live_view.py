"""Show the running demo, as a live table on a terminal or as lines elsewhere, and the summary at the end."""

import sys
import time
from dataclasses import dataclass, fields
from io import TextIOWrapper
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from csi.demo.processes import printable
from csi.demo.progress import SHOWN, EventLine, ProgressSnapshot
from csi.demo.reconciliation import DeliverySummary, summary_sentence

STATUS_SECONDS = 5.0
OTHER_LINES = 11
"""Lines of the live view that are not events."""

MARGIN = 4
"""Columns left free: terminals disagree about the width of some emoji, and a wrapped line would move the rest."""

_STYLES = {"delivered": "green", "in_flight": "cyan", "pending": "yellow", "dead": "red", "quarantined": "red"}


@dataclass(frozen=True)
class DemoPhase:
    """What the demo does at the moment, for how long, and a hint for the user."""

    link: str
    name: str
    elapsed: float
    hint: str


class LiveView:
    """A table on the terminal's alternate screen; closing restores what was there before."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, screen=True)

    def say(self, text: str) -> None:
        """Print the text before the table is shown; afterwards the table shows the phase."""
        if not self._live.is_started:
            self._console.print(Text(text))

    def update(self, phase: DemoPhase, snapshot: ProgressSnapshot) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(render(phase, snapshot, rows_for(self._console.height)), refresh=True)

    def close(self) -> None:
        self._live.stop()


class LineView:
    """One line per delivery, and a status line every few seconds. `quiet` leaves out the deliveries."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._next_status = STATUS_SECONDS

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def update(self, phase: DemoPhase, snapshot: ProgressSnapshot) -> None:
        if snapshot.fresh and not self._quiet:
            self.say("\n".join(delivery_line(event) for event in snapshot.fresh))
        if phase.elapsed >= self._next_status:
            self._next_status = phase.elapsed + STATUS_SECONDS
            numbers = f"served {snapshot.served}, stored {snapshot.stored}, delivered {snapshot.delivered}"
            rest = f"pending {snapshot.pending}, dead {snapshot.dead}, p95 {_ms(snapshot.p95_ms)}"
            self.say(f"{_time_of_day(time.time())} {phase.name} for {phase.elapsed:.0f} s: {numbers}, {rest}")

    def close(self) -> None:
        self._stream.flush()


DemoView = LiveView | LineView


def choose_view(*, json_only: bool) -> DemoView:
    """With --json standard output is only the JSON object, and progress goes to standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal cannot print every title
    if json_only:
        return LineView(sys.stderr, quiet=True)
    console = Console()
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else LineView(sys.stdout)


def rows_for(height: int) -> int:
    """The number of events that fit a terminal of this height."""
    return min(SHOWN, max(height - OTHER_LINES, 1))


def render(phase: DemoPhase, snapshot: ProgressSnapshot, rows: int) -> RenderableType:
    """The whole live view. Titles are foreign text: Text objects, never markup."""
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("CSI demo", style="bold").append(f"  {phase.name} for {phase.elapsed:.0f} s\n")
    head.append("dashboard, by a link that works once:\n")
    head.append(phase.link, style="cyan underline").append("\n")
    numbers = Text()
    for label, number, style in (
        ("served", snapshot.served, "bold"),
        (" → stored", snapshot.stored, "bold"),
        (" → delivered", snapshot.delivered, "bold green"),
        ("    pending", snapshot.pending, "yellow" if snapshot.pending else ""),
        ("    dead", snapshot.dead, "red" if snapshot.dead else ""),
    ):
        numbers.append(f"{label} ").append(f"{number:,}", style=style)
    times = Text(f"first seen → accepted: p50 {_ms(snapshot.p50_ms)}, p95 {_ms(snapshot.p95_ms)}")
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column("time", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("title", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("latency", no_wrap=True, justify="right")
    table.add_column("state", no_wrap=True)
    for event in snapshot.recent[:rows]:
        state = Text(event.state, style=_STYLES.get(event.state, ""))
        source, title = event.source.removeprefix("youtube_"), Text(printable(event.title))
        table.add_row(_time_of_day(event.at), source, title, _ms(event.latency_ms), state)
    return Group(head, numbers, times, Padding(table, (0, MARGIN, 0, 0)), Text(phase.hint, style="dim"))


def delivery_line(event: EventLine) -> str:
    title = printable(event.title).replace('"', '\\"')
    return f'{_time_of_day(event.at)} {event.state} {event.source} "{title}" {_ms(event.latency_ms)}'


def print_summary(summary: DeliverySummary) -> None:
    """Print a small table and one sentence."""
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for field in fields(summary):
        value = getattr(summary, field.name)
        table.add_row(field.name.replace("_", " "), "-" if value is None else f"{value:,}")
    console.print()
    console.print(table)
    console.print()
    console.print(summary_sentence(summary), style="red" if summary.lost else "green", soft_wrap=True)


def _ms(latency: float | None) -> str:
    return "-" if latency is None else f"{latency:,.0f} ms"


def _time_of_day(epoch: float) -> str:
    """In the user's time zone."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))
