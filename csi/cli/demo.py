"""`csi demo`: the whole product on one machine, without an API key and without the internet."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from csi.cli.output import echo_lines, plain
from csi.demo import configuration, live_view, processing_account, run

DIGEST_LINES = 24
SECONDS_WITHOUT_TERMINAL = 30.0


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Stop after this many seconds. [default: at Ctrl-C on a terminal, else 30]",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the summary, as one JSON object.")
@click.option("--channels", default=5, show_default=True, type=click.IntRange(0, 1000), help="Number of channels.")
@click.option("--playlists", default=3, show_default=True, type=click.IntRange(0, 200), help="Number of playlists.")
@click.option(
    "--rate",
    default=4.0,
    show_default=True,
    type=click.FloatRange(0, 500),
    help="New items per second over all channels and playlists.",
)
@click.option(
    "--faults", default="", help="A fault script for the simulated YouTube, as in feed:404@5-15, night or storm."
)
@click.option("--processing", is_flag=True, help="Also transcribe and summarize the videos, and show the digest.")
@click.option("--catalogue", is_flag=True, help="Show two weeks of statistics in a minute, by a clock that is moved.")
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
    catalogue: bool,
    keep: str | None,
) -> None:
    """Poll a simulated YouTube and deliver its items to a receiver: simulator, receiver, worker and sidecar start as
    real processes on free ports in a temporary directory. Exit code 1 if anything was lost or is unfinished."""
    if catalogue:
        if processing or faults:
            raise click.UsageError("--catalogue goes with neither --processing nor --faults")
        sys.exit(_demo_catalogue(max(channels, 1), seconds, keep, as_json=as_json))
    if not channels + playlists:
        raise click.UsageError("there is nothing to watch: give --channels or --playlists")
    if seconds is None and (as_json or not sys.stdout.isatty()):
        seconds = SECONDS_WITHOUT_TERMINAL
    options = configuration.DemoOptions(channels, playlists, rate, faults, processing)
    with run.state_directory(keep) as home:
        if keep is not None:
            click.echo(f"state is kept in {home}", err=True)
        result = run.run_demo(options, home, live_view.choose_view(json_only=as_json), seconds=seconds)
        summary, account = result.summary, result.processing
        if as_json:
            details = {"drained": result.drained, "sidecar": result.sidecar, "pids": result.pids}
            details["state_dir"] = str(home) if keep is not None else None
            processed = {"processing": asdict(account)} if account else {}
            click.echo(json.dumps(asdict(summary) | details | processed))
        else:
            live_view.print_summary(summary)
            if account:
                echo_lines(processing_account.account_lines(account))
                page = Path(account.digest).read_text("utf-8").splitlines()
                click.echo("\nThe first lines of today's digest:\n")
                echo_lines(plain(line) for line in page[:DIGEST_LINES])
    sys.exit(1 if summary.lost or (account and account.unfinished) else 0)


def _demo_catalogue(channels: int, seconds: float | None, keep: str | None, *, as_json: bool) -> int:
    """Exit code 1 if a job was given up."""
    from csi.demo import catalogue

    def show(day: catalogue.CatalogueDay) -> None:
        if as_json:
            return
        tiers = ", ".join(f"{count} {tier}" for tier, count in day.tiers.items())
        units = f"{day.units + day.stats_units} units"
        click.echo(f"{day.date}  videos: {tiers}; {day.captures:,} counts; {units}")
        for row in day.channels:
            gains = f"{row.daily_views or 0:+,} views, {row.daily_subscribers or 0:+,} subscribers"
            click.echo(f"            {plain(row.title, 40)}: {gains}")

    with run.state_directory(keep) as home:
        if keep is not None:
            click.echo(f"state is kept in {home}", err=True)
        found = catalogue.run(home, number=channels, show=show, seconds=seconds)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return int(found.dead_jobs > 0)
    click.echo("\nThe videos that gained most in the last day:\n")
    for row in found.movers:
        hour = "" if row.hourly_views is None else f", {row.hourly_views:+,} an hour"
        click.echo(f"  {row.daily_views:+10,} a day{hour}  {row.refresh_tier}  {plain(row.title, 60)}")
    click.echo(f"\n{len(found.days)} days in {found.seconds:g} s; {found.dead_jobs} jobs given up")
    return int(found.dead_jobs > 0)
