"""`csi demo`: the whole product on one machine, without keys and without the internet."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi.cli.terminal import plain
from csi.demo import configuration, live_view, processing_account, run

if TYPE_CHECKING:
    from csi.demo.processing_account import ProcessingAccount
    from csi.demo.run import DemoResult

DIGEST_LINES = 24


@click.command()
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="End after so long. [default: at Ctrl-C]")
@click.option("--json", "as_json", is_flag=True, help="Print only the summary, as one JSON object.")
@click.option("--channels", default=5, show_default=True, type=click.IntRange(0, 1000), help="How many channels.")
@click.option("--playlists", default=3, show_default=True, type=click.IntRange(0, 200), help="How many playlists.")
@click.option(
    "--rate",
    default=4.0,
    show_default=True,
    type=click.FloatRange(0, 500),
    help="New items a second, all in all.",
)
@click.option("--faults", default="", help="What goes wrong at YouTube, as in feed:404@5-15, night or storm.")
@click.option("--processing", is_flag=True, help="Also transcribe and summarise what arrives, and show the digest.")
@click.option(
    "--keep",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Keep database, ledgers and logs, in DIR or in the temporary directory.",
)
def demo(
    seconds: float | None,
    as_json: bool,
    channels: int,
    playlists: int,
    rate: float,
    faults: str,
    processing: bool,
    keep: str | None,
) -> None:
    """Watch items travel from a simulated YouTube to a receiver: simulator, receiver, worker and sidecar start as real
    processes on free ports in a temporary directory. Exit code 1 if anything was lost, or left unfinished."""
    if not channels + playlists:
        raise click.UsageError("there is nothing to watch: give --channels or --playlists")
    shape = configuration.DemoOptions(channels, playlists, rate, faults, processing)
    with run.state_directory(keep) as home:
        if keep is not None:
            click.echo(f"state is kept in {home}", err=True)
        outcome = run.run_demo(shape, home, live_view.choose_view(json_only=as_json), seconds=seconds)
        _report(outcome, as_json=as_json, home=str(home) if keep is not None else None)
    unfinished = outcome.processing.unfinished if outcome.processing else 0
    sys.exit(1 if outcome.summary.lost or unfinished else 0)


def _report(outcome: DemoResult, *, as_json: bool, home: str | None) -> None:
    if not as_json:
        live_view.print_summary(outcome.summary)
        if outcome.processing:
            _show_processing(outcome.processing)
        return
    extras = {"drained": outcome.drained, "sidecar": outcome.sidecar, "pids": outcome.pids, "state_dir": home}
    processed = {"processing": asdict(outcome.processing)} if outcome.processing else {}
    click.echo(json.dumps(asdict(outcome.summary) | extras | processed))


def _show_processing(account: ProcessingAccount) -> None:
    """The account, and the top of the digest."""
    click.echo("\n".join(processing_account.account_lines(account)))
    page = Path(account.digest).read_text("utf-8").splitlines()
    click.echo("\nThe day's digest begins so:\n")
    click.echo("\n".join(plain(line) for line in page[:DIGEST_LINES]))
