"""The views of the demo, also with hostile titles."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from csi.demo.live_view import DemoPhase, LineView, delivery_line, print_summary, render, rows_for
from csi.demo.processes import printable
from csi.demo.progress import EventLine, LedgerTail, ProgressSnapshot
from csi.demo.reconciliation import LedgerContents, summarize

HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]red[/red] \u202edrawkcab\u2028 \r\n<b>"


def event(title: str = "Title", latency: float | None = 85.4, state: str = "delivered") -> EventLine:
    return EventLine(1_771_761_600.0, "youtube_playlist", title, state, latency)


def phase(elapsed: float = 1.0) -> DemoPhase:
    return DemoPhase("http://127.0.0.1:1234/login?key=k", "running", elapsed, "Ctrl-C ends the demo")


def drawn_text(snapshot: ProgressSnapshot, rows: int = 12, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(phase(), snapshot, rows))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_a_delivery_is_one_line() -> None:
    assert delivery_line(event('Say "hi"')).endswith('delivered youtube_playlist "Say \\"hi\\"" 85 ms')


def test_hostile_titles_stay_text() -> None:
    line = delivery_line(event(HOSTILE))
    assert line.isprintable()
    assert "[red]red[/red]" in line
    drawn = drawn_text(ProgressSnapshot(recent=(event(HOSTILE),)))
    assert "[red]red[/red]" in drawn
    assert not set("\x1b\x07\r\u202e\u2028") & set(drawn)


def test_printable_keeps_readable_characters() -> None:
    assert printable("Größe, 東京, 👩\u200d🚀👨🏽, a\u00a0b\tc") == "Größe, 東京, 👩🚀👨, a b c"


def test_the_live_view_shows_all_numbers() -> None:
    drawn = drawn_text(
        ProgressSnapshot(served=9, stored=8, delivered=7, pending=1, dead=2, p50_ms=12.3, recent=(event(),))
    )
    for part in ("served 9", "stored 8", "delivered 7", "pending 1", "dead 2", "p50 12 ms", "p95 -"):
        assert part in drawn
    for part in ("http://127.0.0.1:1234/login?key=k", "Ctrl-C ends the demo", "85 ms"):
        assert part in drawn


def test_the_live_view_fits_its_terminal() -> None:
    snapshot = ProgressSnapshot(recent=tuple(event("x" * 300) for _ in range(12)))
    for height in (12, 16, 24, 60):
        assert len(drawn_text(snapshot, rows_for(height), width=70).splitlines()) <= height


def test_the_line_view_prints_every_delivery_and_a_periodic_status() -> None:
    stream = io.StringIO()
    view = LineView(stream)
    view.update(phase(1), ProgressSnapshot(fresh=(event("one"), event("two"))))
    view.update(phase(2), ProgressSnapshot())
    view.update(phase(5), ProgressSnapshot(served=2))
    view.update(phase(6), ProgressSnapshot(served=3))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "served 2" in lines[2]


def test_a_quiet_view_prints_only_the_status() -> None:
    stream = io.StringIO()
    LineView(stream, quiet=True).update(phase(5), ProgressSnapshot(fresh=(event("one"),)))
    assert len(stream.getvalue().splitlines()) == 1


def test_the_summary_is_a_table_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(summarize(LedgerContents()))
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].split() == ["served", "0"]
    assert lines[-1] == "Nothing was published, and nothing was lost."


def test_an_incomplete_ledger_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    tail = LedgerTail(ledger)
    assert list(tail.lines()) == []
    ledger.write_text('{"key": "a"}\n{"key"')
    assert list(tail.lines()) == [{"key": "a"}]
    with ledger.open("a") as file:
        file.write(': "b"}\n')
    assert list(tail.lines()) == [{"key": "b"}]
    assert list(tail.lines()) == []
