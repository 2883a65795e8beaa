"""`csi quota`: what is left of the day's API units, and how far they go."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import click

from csi import clock, runtime
from csi.admin import watches
from csi.catalog import data_api
from csi.cli.config import config_option, json_option
from csi.pipeline import quota_schedule
from csi.store import api_units, db
from csi.web import json_views


@click.command()
@config_option
@json_option
def quota(config_path: Path | None, as_json: bool) -> None:
    """Show the API units of this Pacific day, and the intervals that they are enough for."""
    rt = runtime.open_runtime(config_path)
    with db.connection():
        watches.sync_without_worker(rt)
        found, share = quota_schedule.forecast(rt, rt.now()), data_api.share_of(rt)
    if as_json:
        catalogue = {"catalogue": json_views.catalogue_share(share)} if found else {}
        click.echo(json.dumps(json_views.forecast(found) | catalogue, indent=2))
        return
    if found is None:
        click.echo("no source that is switched on uses API units")
        return
    for line in [*_lines(found), _share_line(share)]:
        click.echo(line)


def _share_line(share: data_api.CatalogShare) -> str:
    short = f": {data_api.TOO_MUCH}" if share.is_short else ""
    fresh = f"keeping it fresh takes {share.needed:,} a day{short}"
    return f"catalogue {share.used:,} of its {share.limit:,} units used; {fresh}"


def _lines(found: quota_schedule.Forecast) -> list[str]:
    ends = datetime.fromtimestamp(found.ends_at, api_units.PACIFIC).strftime("%Y-%m-%d %H:%M")
    low = "; less than the buffer is left, so everything is idle" if found.is_low else ""
    lines = [
        f"day       {found.day} Pacific, until {ends} ({clock.iso(found.ends_at)})",
        f"used      {found.used:,} of {found.limit:,} units; {found.left:,} left, {found.buffer:,} kept back{low}",
        f"rate      {found.per_hour:,.0f} units an hour; planned until midnight: {found.planned_units:,}",
        f"forecast  {quota_schedule.sentence(found)}",
    ]
    return [*lines, *([f"warning   {found.warning}"] if found.warning else [])]
