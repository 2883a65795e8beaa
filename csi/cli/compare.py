"""`csi compare`: us beside the poller that we replace, and the take-over of what it has seen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi.admin import old_poller_log, parallel_run
from csi.cli.installation import installed
from csi.cli.options import config_option, json_option
from csi.cli.output import AgeType, confirm, echo_json, plural
from csi.cli.terminal import ago, plain

if TYPE_CHECKING:
    from csi.admin.old_poller_log import Sighting
    from csi.admin.parallel_run import Comparison, Result, Takeover

SHOWN = 20


@click.command()
@config_option
@json_option
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Compare only this source; may be repeated.")
@click.option("--since", type=AgeType(ago=True), metavar="TIME", help="Only what was seen since: 24h, '1 day ago'.")
@click.option("--all", "show_all", is_flag=True, help=f"List every video, not only the first {SHOWN} of each kind.")
@click.option("--take-over", is_flag=True, help="Mark what the file names as seen, so that it is never sent.")
@click.option("--dry-run", is_flag=True, help="With --take-over: say what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="With --take-over: do not ask.")
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
    """Say what the old poller and CSI saw and missed.

    FILE is its log, its state file, or a list of video ids; - is standard input. Exit code 1 when CSI missed something.
    """
    if dry_run and not take_over:
        raise click.UsageError("--dry-run belongs to --take-over; a comparison changes nothing anyway.")
    sightings = old_poller_log.read_sightings(_content(file))
    with installed(config_path) as rt:
        if take_over:
            done = parallel_run.take_over(rt, sightings, sources=sources, dry_run=True)
            if not dry_run:
                confirm(_question(done), yes=yes)
                done = parallel_run.take_over(rt, sightings, sources=sources)
            _report_takeover(done, dry_run=dry_run, as_json=as_json)
            return
        found = parallel_run.compare(rt, sightings, sources=sources, since=rt.now() - since if since else 0.0)
    _report(sightings, found, as_json=as_json, show_all=show_all)
    sys.exit(1 if found.of("only_old") else 0)


def _content(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise old_poller_log.UnreadableLog(f"{file} cannot be read: {error.strerror}") from error


def _question(done: Takeover) -> str:
    return (
        f"Mark {plural(done.videos, 'video')} as seen ({plural(done.new_keys, 'new key')}), and drop "
        f"{plural(done.pending, 'event')} of them that wait to be sent?"
    )


def _report_takeover(done: Takeover, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        counts = {"videos": done.videos, "new_keys": done.new_keys, "pending_dropped": done.pending}
        echo_json({"dry_run": dry_run, **counts})
        return
    verb = "would be" if dry_run else "are"
    click.echo(f"{plural(done.videos, 'video')}: {done.new_keys:,} keys {verb} newly marked as seen")
    click.echo(f"{plural(done.pending, 'event')} that waited {verb} not sent any more")


def _report(sightings: list[Sighting], found: Comparison, *, as_json: bool, show_all: bool) -> None:
    if as_json:
        echo_json(_as_json(sightings, found))
        return
    titles: dict[Result, str] = {
        "both": "seen by both",
        "only_old": "missed by CSI",
        "only_csi": "missed by the old poller",
    }
    for result in titles:
        click.echo(f"{titles[result]:<26}{len(found.of(result)):>7,}")
    if found.median_ahead is not None:
        word = "earlier" if found.median_ahead >= 0 else "later"
        click.echo(f"CSI was {word} by{ago(abs(found.median_ahead)):>18}  (median, where both say when)")
    _list("missed by CSI", [one.video for one in found.of("only_old")], show_all=show_all)
    mine = [f"{one.video}  {one.csi}" for one in found.of("only_csi")]
    _list("missed by the old poller", mine, show_all=show_all)


def _list(title: str, lines: list[str], *, show_all: bool) -> None:
    if not lines:
        return
    click.echo(f"\n{title}:")
    for line in lines if show_all else lines[:SHOWN]:
        click.echo(f"  {plain(line, 80)}")
    if not show_all and len(lines) > SHOWN:
        click.echo(f"  and {len(lines) - SHOWN:,} more; --all shows them")


def _as_json(sightings: list[Sighting], found: Comparison) -> dict[str, object]:
    kinds: tuple[Result, ...] = ("both", "only_old", "only_csi")
    counts: dict[str, object] = {result: len(found.of(result)) for result in kinds}
    videos = [
        {"video_id": one.video, "result": one.result, "csi": one.csi, "csi_ahead_seconds": one.ahead}
        for one in found.seen
    ]
    return {
        "old_videos": len({one.video for one in sightings}),
        **counts,
        "median_csi_ahead_seconds": found.median_ahead,
        "videos": videos,
    }
