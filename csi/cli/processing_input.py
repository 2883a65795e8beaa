"""`csi processing add`, `summarise`: videos that an operator names, and another summary of one."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from csi import logs, net
from csi.cli.command import dry_run_option, json_option, user_name
from csi.cli.output import echo_json, plain
from csi.cli.processing_session import processing_option, processing_session
from csi.errors import SOME_FAILED, CsiError
from csi.processing import config, runtime, video_lists
from csi.processing.pipeline import add_videos, summarise_again
from csi.processing.video_lists import MANUAL


def _with_providers(rt: runtime.Processing) -> runtime.Processing:
    """The runtime with the providers and the fact sources that the configuration names."""
    full = runtime.create(rt.settings, config.read_secrets(rt.settings, required=False), net=net.Net())
    full.operator = user_name()
    return full


@click.command("add")
@processing_option
@json_option
@dry_run_option
@click.argument("what", metavar="URL|FILE...", nargs=-1, required=True)
@click.option(
    "--pipeline", default=MANUAL, show_default=True,
    help="Its route decides about documents and notifications; without a route there is a summary only.",
)  # fmt: skip
def add(config_path: Path | None, as_json: bool, dry_run: bool, what: tuple[str, ...], pipeline: str) -> None:
    """Process videos that you name: a URL or id of a video, a CSV file, or the URL of a spreadsheet published as CSV.

    A list needs a column `url` or `video_id`; `title`, `channel_id`, `channel_title`, `published_at`, `tags` and
    `priority` are read, too. Every bad row is reported, and the others are added; exit code 5 then.
    """
    results = []
    with processing_session(config_path) as bare:
        rt = _with_providers(bare)
        if pipeline != MANUAL and pipeline not in rt.settings.routes:
            names = ", ".join(sorted(rt.settings.routes))
            raise click.BadParameter(f"{plain(pipeline, 40)!r} has no route; expected one of: {names}")
        for one in what:
            source: Any = "manual" if video_lists.video_id_of(one) and not Path(one).is_file() else "sheet_backfill"
            if source == "manual":
                rows = [video_lists.ListedVideo(1, one, video_lists.video_id_of(one))]
            else:
                rows = video_lists.read_list(add_videos.read_source(rt, one))
            results += add_videos.add_videos(rt, rows, source, pipeline, dry_run=dry_run)
    counted = Counter(row.result for row in results)
    totals = {name: counted[name] for name in ("added", "known", "invalid")}
    if as_json:
        echo_json(totals | {"dry_run": dry_run, "rows": [asdict(row) for row in results]})
    else:
        for row in results:
            title = f" ({plain(row.title, 60)})" if row.title and row.title != row.video_id else ""
            why = f": {plain(row.error, 300)}" if row.error else ""
            click.echo(f"line {row.line}: {row.result} {plain(row.video_id or row.text, 80)}{title}{why}")
        would = "would be " if dry_run else ""
        click.echo(f"{counted['added']} {would}added, {counted['known']} known, {counted['invalid']} invalid")
    sys.exit(SOME_FAILED if counted["invalid"] else 0)


@click.command("summarise")
@processing_option
@click.argument("video_ids", nargs=-1, required=True, metavar="VIDEO...")
@click.option("--prompt", type=click.Path(exists=True, dir_okay=False), help="A prompt file for this summary.")
@click.option("--model", metavar="NAME", help="Another model of the configured endpoint.")
@click.option("--language", metavar="NAME", help="The language of the summary, as in: German.")
@click.option("--type", "summary_type", type=click.Choice(["short", "detailed", "executive"]), help="The type.")
def summarise(
    config_path: Path | None,
    video_ids: tuple[str, ...],
    prompt: str | None,
    model: str | None,
    language: str | None,
    summary_type: Any,
) -> None:
    """Summarise videos again, with another prompt, model, language or type. The transcript is not made again.

    The calls are new ones and are paid, within the day's budget. Exit code 5 when a video cannot be summarised again.
    """
    for name, text, most in (("--model", model, 200), ("--language", language, 40)):
        if text is not None and (not text.strip() or len(text) > most or not text.isprintable()):
            raise click.BadParameter(f"{name} is 1 to {most} printable characters")
    wishes = summarise_again.SummaryWishes(prompt, model, language, summary_type)
    failed = False
    with processing_session(config_path) as bare:
        rt = _with_providers(bare)
        for video_id in video_ids:
            try:
                summarise_again.summarise_again(rt, video_id, wishes)
            except CsiError as error:
                failed = True
                click.echo(f"csi: {plain(logs.redact(str(error)))}", err=True)
            else:
                click.echo(f"{plain(video_id)}: is summarised again by the worker")
    sys.exit(SOME_FAILED if failed else 0)
