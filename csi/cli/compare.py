"""`csi compare`: compare CSI with the poller it replaces, and take over what that poller has seen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi.admin import old_poller_log, parallel_run
from csi.cli.command import DurationType, config_and_json_options, installed
from csi.cli.output import ago, confirm, echo_json, echo_lines, plain, plural

if TYPE_CHECKING:
    from csi.admin.old_poller_log import Sighting
    from csi.admin.parallel_run import Comparison, Result

SHOWN = 20
TITLES: dict[Result, str] = {
    "both": "seen by both",
    "only_old": "missed by CSI",
    "only_csi": "missed by the old poller",
}


@click.command()
@config_and_json_options
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Compare only this source; repeatable.")
@click.option(
    "--since", type=DurationType(ago=True), metavar="TIME", help="Only what was seen since: 24h, '1 day ago'."
)
@click.option("--all", "show_all", is_flag=True, help=f"List every video, not only the first {SHOWN} of each kind.")
@click.option("--take-over", is_flag=True, help="Mark the videos of the file as seen, so that they are never sent.")
@click.option("--dry-run", is_flag=True, help="With --take-over: show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="With --take-over: do not ask for confirmation.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE")
def compare(
    config_path: Path | None,
    as_json: bool,
    sources: tuple[str, ...],
    since: float | None,
    show_all: bool,
    take_over: bool,
    dry_run: bool,
    yes: bool,
    file: Path,
) -> None:
    """Show what the old poller and CSI saw and missed.

    FILE is its log, its state file, or a list of video ids; - is standard input. Exit code 1 when CSI missed something.
    """
    if dry_run and not take_over:
        raise click.UsageError("--dry-run needs --take-over; a comparison changes nothing.")
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise old_poller_log.UnreadableLog(f"{file} cannot be read: {error.strerror}") from error
    sightings = old_poller_log.read_sightings(content)
    with installed(config_path) as rt:
        if take_over:
            done = parallel_run.take_over(rt, sightings, sources=sources, dry_run=True)
            if not dry_run:
                marked = f"{plural(done.videos, 'video')} as seen ({plural(done.new_keys, 'new key')})"
                confirm(f"Mark {marked}, and drop {plural(done.pending, 'pending event')} of them?", yes=yes)
                done = parallel_run.take_over(rt, sightings, sources=sources)
            if as_json:
                counts = {"videos": done.videos, "new_keys": done.new_keys, "pending_dropped": done.pending}
                echo_json({"dry_run": dry_run, **counts})
                return
            verb = "would be" if dry_run else "are"
            click.echo(f"{plural(done.videos, 'video')}: {done.new_keys:,} keys {verb} marked as seen")
            click.echo(f"{plural(done.pending, 'pending event')} {verb} dropped")
            return
        found = parallel_run.compare(rt, sightings, sources=sources, since=rt.now() - since if since else 0.0)
    _report(sightings, found, as_json=as_json, show_all=show_all)
    sys.exit(1 if found.of("only_old") else 0)


def _report(sightings: list[Sighting], found: Comparison, *, as_json: bool, show_all: bool) -> None:
    if as_json:
        counts = {result: len(found.of(result)) for result in TITLES}
        videos = [
            {"video_id": one.video, "result": one.result, "csi": one.csi, "csi_ahead_seconds": one.ahead}
            for one in found.seen
        ]
        old = len({one.video for one in sightings})
        echo_json({"old_videos": old, **counts, "median_csi_ahead_seconds": found.median_ahead, "videos": videos})
        return
    for result, title in TITLES.items():
        click.echo(f"{title:<26}{len(found.of(result)):>7,}")
    if found.median_ahead is not None:
        word = "earlier" if found.median_ahead >= 0 else "later"
        click.echo(f"CSI was {word} by{ago(abs(found.median_ahead)):>18}  (median, where both times are known)")
    missed: dict[Result, list[str]] = {
        "only_old": [one.video for one in found.of("only_old")],
        "only_csi": [f"{one.video}  {one.csi}" for one in found.of("only_csi")],
    }
    for result, lines in missed.items():
        if lines:
            click.echo(f"\n{TITLES[result]}:")
            echo_lines(f"  {plain(line, 80)}" for line in (lines if show_all else lines[:SHOWN]))
        if not show_all and len(lines) > SHOWN:
            click.echo(f"  and {len(lines) - SHOWN:,} more; --all shows them")
