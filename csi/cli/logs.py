"""`csi logs`: the log of the services from the journal or a file, readable and filtered."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from csi.cli.output import is_color, plain, safe
from csi.errors import CsiError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
COLORS = {"DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
SHOWN = ("timestamp", "level", "message", "logger")


@click.command("logs")
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="The last N lines."
)
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), default="DEBUG", help="This level and above.")
@click.option("--grep", "wanted", metavar="TEXT", help="Only lines with this text, as an event_id or a channel.")
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
def logs_command(follow: bool, lines: int, level: str, wanted: str | None, file: Path | None) -> None:
    """Show the log of the services, one readable line for each JSON line.

    Without FILE the journal of the units csi-* is read (systemd). Elsewhere give the file to which the log goes, or -
    for standard input: `csi run 2>&1 | csi logs -`, `docker compose logs --no-log-prefix | csi logs -`.
    """
    least = LEVELS.index(level.upper())
    colored = is_color(sys.stdout)
    for line in _source(file, follow=follow, lines=lines):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            record = {}
        if record.get("level") in LEVELS and LEVELS.index(record["level"]) < least:
            continue
        if wanted is not None and wanted.lower() not in line.lower():
            continue
        if "message" not in record:
            readable = plain(line.rstrip("\n"))
        else:
            facts = " ".join(
                f"{key}={plain(value)}" for key, value in record.items() if key not in SHOWN and value is not None
            )
            text = f"{record.get('timestamp', '')} {record.get('level', ''):<8} {record['message']}  {facts}"
            readable = safe(text.rstrip())
        click.secho(readable, fg=COLORS.get(str(record.get("level"))), color=colored)


def _source(file: Path | None, *, follow: bool, lines: int) -> Iterable[str]:
    if file is not None and str(file) == "-":
        return sys.stdin
    if file is not None:
        if not file.is_file():
            raise CsiError(f"{file} is not a file; name the file to which the log goes, or - for standard input")
        return _output(["tail", f"--lines={lines}", *(["--follow=name"] if follow else []), "--", str(file)])
    if shutil.which("journalctl") is None:
        raise CsiError("there is no journal on this machine; name the file to which the log goes, or - for its output")
    flags = ["--follow"] if follow else ["--no-pager"]
    return _journal(["journalctl", "--unit=csi-*", "--output=cat", f"--lines={lines}", *flags])


def _journal(line: list[str]) -> Iterator[str]:
    has_lines = False
    for text in _output(line, stderr=subprocess.DEVNULL):
        has_lines = True
        yield text
    if not has_lines:
        raise CsiError(
            "the journal has no lines of the units csi-*, or you may not read it (group systemd-journal). Where CSI "
            "runs without systemd, name the file of its log, or - for standard input: csi run 2>&1 | csi logs -"
        )


def _output(line: list[str], stderr: int | None = None) -> Iterator[str]:
    with subprocess.Popen(  # noqa: S603 fixed
        line, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace"
    ) as process:
        try:
            yield from process.stdout or ()
        except KeyboardInterrupt:
            process.terminate()
