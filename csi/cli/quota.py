"""`csi quota`: show today's API units and the polling intervals that they allow."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from csi import api_models, clock, runtime
from csi.admin import watches
from csi.catalog import data_api
from csi.cli.command import config_option, json_option
from csi.cli.output import echo_json
from csi.pipeline import quota_schedule
from csi.store import api_units, db


@click.command()
@config_option
@json_option
def quota(config_path: Path | None, as_json: bool) -> None:
    """Show the API units of this Pacific day, and the polling intervals that they allow."""
    rt = runtime.open_runtime(config_path)
    with db.connection():
        watches.sync_without_worker(rt)
        if as_json:
            echo_json(api_models.quota(rt))
            return
        found, share = quota_schedule.forecast(rt, rt.now()), data_api.share_of(rt)
    if found is None:
        click.echo("no enabled source uses API units")
        return
    ends = datetime.fromtimestamp(found.ends_at, api_units.PACIFIC).strftime("%Y-%m-%d %H:%M")
    low = "; below the buffer, so every watch polls at its idle interval" if found.is_low else ""
    click.echo(f"day       {found.day} Pacific, until {ends} ({clock.iso(found.ends_at)})")
    click.echo(
        f"used      {found.used:,} of {found.limit:,} units; {found.left:,} left, {found.buffer:,} reserved{low}"
    )
    click.echo(f"rate      {found.per_hour:,.0f} units an hour; planned until midnight: {found.planned_units:,}")
    click.echo(f"forecast  {quota_schedule.sentence(found)}")
    if found.warning:
        click.echo(f"warning   {found.warning}")
    short = f": {data_api.TOO_MUCH}" if share.is_short else ""
    fresh = f"keeping it fresh takes {share.needed:,} a day{short}"
    click.echo(f"catalogue {share.used:,} of its {share.limit:,} units used; {fresh}")
