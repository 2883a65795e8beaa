"""`csi quota`: the API units of the day, and the polling intervals that they allow."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from csi import api_models, clock
from csi.catalog import data_api
from csi.cli.command import config_and_json_options
from csi.cli.output import echo_json
from csi.cli.sources import watch_session
from csi.pipeline import quota_schedule
from csi.status import host_pace
from csi.store import api_units


@click.command()
@config_and_json_options
def quota(config_path: Path | None, as_json: bool) -> None:
    """Show the API units of this Pacific day, and the polling intervals that they allow."""
    with watch_session(config_path) as rt:
        if as_json:
            echo_json(api_models.quota(rt))
            return
        found, share = quota_schedule.forecast(rt, rt.now()), data_api.share_of(rt)
        for pace in host_pace.host_paces(rt):
            click.echo(f"host      {pace.host}: {pace.sentence}")
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
    if found.urgent:
        click.echo(f"urgent    {found.urgent}")
    if found.warning:
        click.echo(f"warning   {found.warning}")
    short = f": {data_api.TOO_MUCH}" if share.is_short else ""
    fresh = f"keeping it fresh takes {share.needed:,} a day{short}"
    click.echo(f"catalogue {share.used:,} of its {share.limit:,} units used; {fresh}")
    if share.stats_refused:
        click.echo(f"stats     {data_api.STATS_METHOD} was refused today; videos.list serves the statistics")
    elif share.stats_limit:
        used = f"{share.stats_used:,} of {share.stats_limit:,} units of {data_api.STATS_METHOD} used"
        click.echo(f"stats     {used}; keeping statistics fresh takes {share.stats_needed:,} a day")
