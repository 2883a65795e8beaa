"""`csi channels compare|import|export`, `csi videos movers`: lists of channels, and figures across channels."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from csi import api_models
from csi.admin import channel_lists
from csi.catalog import catalog_export, channel_admin, comparison
from csi.cli.command import audited, config_option, dry_run_option, installed, json_option
from csi.cli.output import echo_json, echo_table, number, plain, plural
from csi.errors import SOME_FAILED, CsiError
from csi.store.catalog import movers as mover_rows

KINDS = ("channels", "videos", "captures", "channel-captures")
MEASURES = ("subscriber_count", "daily_subscribers", "view_count", "daily_views", "video_count", "daily_videos")
DAY = 86_400.0


@click.command("compare")
@click.argument("channels", metavar="CHANNEL...", nargs=-1, required=True)
@click.option("--measure", type=click.Choice(MEASURES), default="daily_views", show_default=True, help="Which figure.")
@click.option("--days", type=click.IntRange(1, 36_500), default=30, show_default=True, help="How many days back.")
@config_option
@json_option
def compare(channels: tuple[str, ...], measure: str, days: int, config_path: Path | None, as_json: bool) -> None:
    """Compare one figure of 2 to 10 channels, day by day."""
    with installed(config_path) as rt:
        rows = [channel_admin.find_channel(rt, one) for one in dict.fromkeys(channels)]
        found = comparison.compare(rt, rows, measure, days)
    if as_json:
        echo_json(api_models.ChannelComparison.of(found))
        return
    head = ["DATE", *(plain(row.title or row.id, 24) for row in rows)]
    echo_table(head, [[day.date, *map(number, day.values)] for day in found.days])


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--priority", type=click.IntRange(1, 10), default=5, show_default=True, help="Of their jobs.")
@click.option("--no-watch", is_flag=True, help="Do not poll their feeds; new uploads are then found once a day.")
@dry_run_option
@config_option
@json_option
def import_file(
    file: Any, priority: int, no_watch: bool, dry_run: bool, config_path: Path | None, as_json: bool
) -> None:
    """Track every channel of FILE (- for standard input): OPML, Google Takeout's subscriptions.csv, or one per line.

    Every invalid row is reported, and the others are tracked; exit code 5 then. 50 channels are looked up for one unit.
    """
    content = file.read(channel_lists.MAX_BYTES + 1)
    with installed(config_path) as rt:
        lines = audited(
            rt,
            "csi channels import",
            lambda: channel_admin.import_list(rt, content, priority=priority, watch=not no_watch, dry_run=dry_run),
            lambda lines: ", ".join(f"{count} {word}" for word, count in Counter(x.result for x in lines).items()),
            dry_run=dry_run,
        )
    counted = Counter(line.result for line in lines)
    if as_json:
        echo_json(api_models.ImportReport.of_lines(lines, dry_run=dry_run))
    else:
        for line in lines:
            name = f" ({plain(line.name, 60)})" if line.name else ""
            why = f": {plain(line.error)}" if line.error else ""
            click.echo(f"line {line.line}: {line.result} {plain(line.ref or line.text, 80)}{name}{why}")
        would = "would be " if dry_run else ""
        click.echo(f"{counted['added']} {would}added, {counted['known']} known, {counted['invalid']} invalid")
    if counted["invalid"]:
        sys.exit(SOME_FAILED)


@click.command("export")
@click.option("--of", "kind", type=click.Choice(KINDS), default="channels", show_default=True, help="Which rows.")
@click.option(
    "--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True,
    help="Parquet needs the extra `parquet` and --out.",
)  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The file.  [default: standard output]")
@click.option("--channel", metavar="CHANNEL", help="Only this channel, or the videos or captures of it.")
@click.option("--days", type=click.IntRange(1, 36_500), help="Only the last N days.  [default: all]")
@config_option
def export(
    kind: Any, form: str, out: Path | None, channel: str | None, days: int | None, config_path: Path | None
) -> None:
    """Export channels, videos, captures of videos or captures of channels, as CSV or Parquet."""
    if form == "parquet" and out is None:
        raise click.UsageError("--format parquet needs --out FILE")
    with installed(config_path) as rt:
        ref = channel_admin.find_channel(rt, channel).id if channel else None
        since = rt.now() - days * DAY if days else 0.0
        if out is None:
            text = io.TextIOWrapper(sys.stdout.buffer, "utf-8", newline="", write_through=True)
            catalog_export.write_csv(text, kind, ref, since)
            text.detach()
            return
        if form == "parquet":
            count = catalog_export.write_parquet(out, kind, ref, since)
        else:
            try:
                mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                with open(os.open(out, mode, 0o600), "w", encoding="utf-8", newline="") as file:
                    count = catalog_export.write_csv(file, kind, ref, since)
            except OSError as error:
                raise CsiError(f"{out}: the export cannot be written: {error.strerror}") from error
    click.echo(f"{plural(count, 'row')} of {kind} in {out}", err=True)


@click.command("movers")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--channels", "of_channels", is_flag=True, help="Channels instead of videos.")
@config_option
@json_option
def movers(limit: int, of_channels: bool, config_path: Path | None, as_json: bool) -> None:
    """List the videos, or channels, that gained most views in their last day."""
    with installed(config_path) as rt:
        since = rt.now() - comparison.MOVERS_DAYS * DAY
        videos = [] if of_channels else mover_rows.videos(since, limit)
        channels = mover_rows.channels(since, limit) if of_channels else []
    if as_json:
        echo_json(api_models.Movers.of(videos=videos, channels=channels))
    elif of_channels:
        names = ("id", "subscriber_count", "daily_subscribers", "view_count", "daily_views", "title")
        head = ("ID", "SUBSCRIBERS", "PER DAY", "VIEWS", "PER DAY", "TITLE")
        echo_table(head, [[plain(number(getattr(row, name))) for name in names] for row in channels])
    else:
        columns = ("id", "channel_id", "refresh_tier", "view_count", "hourly_views", "daily_views", "title")
        titles = ("ID", "CHANNEL", "TIER", "VIEWS", "PER HOUR", "PER DAY", "TITLE")
        echo_table(titles, [[plain(number(getattr(row, name))) for name in columns] for row in videos])
