"""What the audience sees: a live table on a terminal, plain lines elsewhere, and the account at the end."""

import sys
import time
from dataclasses import dataclass, fields
from io import TextIOWrapper
from typing import Protocol, TextIO

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
OTHER_LINES = 10
"""Lines of the live view that are no events."""

MARGIN = 4
"""Columns left free: terminals do not agree on the width of every emoji, and a line that wraps moves the rest."""

_STYLES = {
    "delivered": "green",
    "in_flight": "cyan",
    "pending": "yellow",
    "dead": "red",
    "quarantined": "red",
}
_WORDS = {"p50_ms": "p50 ms", "p95_ms": "p95 ms"}


@dataclass(frozen=True)
class DemoPhase:
    """What surrounds the numbers: where the sidecar is, what happens now, for how long already, and what to know."""

    sidecar: str
    phase: str
    elapsed: float
    hint: str


class DemoView(Protocol):
    """Somebody who shows a running demo."""

    def say(self, text: str) -> None: ...
    def update(self, scene: DemoPhase, look: ProgressSnapshot) -> None: ...
    def close(self) -> None: ...


class LiveView:
    """A table that rewrites itself, on a screen of its own: what was there before comes back at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, screen=True)

    def say(self, text: str) -> None:
        """Before the live view; once it runs, its own lines say what happens."""
        if not self._live.is_started:
            self._console.print(Text(text))

    def update(self, scene: DemoPhase, look: ProgressSnapshot) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(render(scene, look, rows_for(self._console.height)), refresh=True)

    def close(self) -> None:
        self._live.stop()


class LineView:
    """One line per delivery, and now and then where it stands. `quiet` leaves out the deliveries."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._next_status = STATUS_SECONDS

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def update(self, scene: DemoPhase, look: ProgressSnapshot) -> None:
        if look.fresh and not self._quiet:
            self.say("\n".join(delivery_line(seen) for seen in look.fresh))
        if scene.elapsed >= self._next_status:
            self._next_status = scene.elapsed + STATUS_SECONDS
            self.say(status_line(scene, look))

    def close(self) -> None:
        self._stream.flush()


def choose_view(*, json_only: bool) -> DemoView:
    """With --json standard output belongs to the object, and progress goes to standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a title must not end the demo of an ASCII terminal
    if json_only:
        return LineView(sys.stderr, quiet=True)
    console = Console()
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else LineView(sys.stdout)


def rows_for(height: int) -> int:
    """A live view must fit its terminal, or it cannot be rewritten."""
    return min(SHOWN, max(height - OTHER_LINES, 1))


def render(scene: DemoPhase, look: ProgressSnapshot, rows: int) -> RenderableType:
    """The whole live view. Titles are Text, never markup: they come from strangers."""
    hint = Text(scene.hint, style="dim")
    return Group(
        _head(scene),
        _numbers(look),
        _times(look),
        Padding(_table(look.recent[:rows]), (0, MARGIN, 0, 0)),
        hint,
    )


def delivery_line(seen: EventLine) -> str:
    title = printable(seen.title).replace('"', '\\"')
    return f'{_clock(seen.at)} {seen.state} {seen.source} "{title}" {_ms(seen.latency_ms)}'


def status_line(scene: DemoPhase, look: ProgressSnapshot) -> str:
    numbers = f"served {look.served}, stored {look.stored}, delivered {look.delivered}"
    rest = f"pending {look.pending}, dead {look.dead}, p95 {_ms(look.p95_ms)}"
    return f"{_clock(time.time())} {scene.phase} for {scene.elapsed:.0f} s: {numbers}, {rest}"


def print_summary(summary: DeliverySummary) -> None:
    """A small table and one sentence."""
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for field in fields(summary):
        value = getattr(summary, field.name)
        table.add_row(_WORDS.get(field.name, field.name), "-" if value is None else f"{value:,}")
    console.print()
    console.print(table)
    console.print()
    console.print(summary_sentence(summary), style="red" if summary.lost else "green", soft_wrap=True)


def _head(scene: DemoPhase) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("CSI demo", style="bold").append(f"  {scene.phase} for {scene.elapsed:.0f} s\n")
    text.append("sidecar ").append(scene.sidecar, style="cyan underline")
    return text.append("  with /healthz, /readyz and /metrics\n")


def _numbers(look: ProgressSnapshot) -> Text:
    text = Text()
    for word, number, style in (
        ("served", look.served, "bold"),
        (" → stored", look.stored, "bold"),
        (" → delivered", look.delivered, "bold green"),
        ("    pending", look.pending, "yellow" if look.pending else ""),
        ("    dead", look.dead, "red" if look.dead else ""),
    ):
        text.append(f"{word} ").append(f"{number:,}", style=style)
    return text


def _times(look: ProgressSnapshot) -> Text:
    return Text(f"first seen → accepted: p50 {_ms(look.p50_ms)}, p95 {_ms(look.p95_ms)}")


def _table(recent: tuple[EventLine, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column("time", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("title", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("latency", no_wrap=True, justify="right")
    table.add_column("state", no_wrap=True)
    for seen in recent:
        state = Text(seen.state, style=_STYLES.get(seen.state, ""))
        source, title = seen.source.removeprefix("youtube_"), Text(printable(seen.title))
        table.add_row(_clock(seen.at), source, title, _ms(seen.latency_ms), state)
    return table


def _ms(latency: float | None) -> str:
    return "-" if latency is None else f"{latency:,.0f} ms"


def _clock(epoch: float) -> str:
    """The audience's own time of day."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))
