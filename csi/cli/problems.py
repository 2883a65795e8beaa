"""`csi problems`: what is wrong now, and acknowledging what stays until the operator knows of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models
from csi.admin import incidents
from csi.cli.command import audited, config_and_json_options, installed, user_name
from csi.cli.output import echo_json, plain, plural, safe, stamp
from csi.status import verdict

if TYPE_CHECKING:
    pass

ALL = "all"


@click.group(invoke_without_command=True)
@click.pass_context
@config_and_json_options
def problems(context: click.Context, config_path: Path | None, as_json: bool) -> None:
    """List the problems that exist now, and acknowledge incidents.

    Most problems end when their cause does. An incident, such as missed items, stays until it is acknowledged.
    """
    if context.invoked_subcommand is None:
        _list(config_path, as_json)


@problems.command("list")
@config_and_json_options
def list_problems(config_path: Path | None, as_json: bool) -> None:
    """List the problems that exist now: cause, effect, since when, what to do, and the number of an incident."""
    _list(config_path, as_json)


def _list(config_path: Path | None, as_json: bool) -> None:
    with installed(config_path) as rt:
        found = verdict.verdict(rt)
    if as_json:
        echo_json(api_models.ProblemList.of(found))
        return
    for one in (*found.attention, *found.notices):
        number = "" if one.incident is None else f", incident {one.incident}"
        since = "" if one.since is None else f", since {stamp(one.since)}"
        click.echo(f"{one.id} ({safe(one.subject)}), {one.severity}{number}{since}")
        affected = f"; {one.affected}" if one.affected else ""
        click.echo(f"  {safe(one.what_and_why)}; {plain(one.effect)}{affected}")
        click.echo(f"  → {plain(one.remedy)}")
        click.echo(f"  {one.where_to_read}")
    if found.consequences:
        click.echo(f"from this follows: {', '.join(f'{one.id} ({safe(one.subject)})' for one in found.consequences)}")
    counts = {"problem": len(found.attention), "notice": len(found.notices)}
    words = ", ".join(plural(count, word) for word, count in counts.items() if count)
    click.echo(f"{found.status}; {words}" if words else "no problems")


@problems.command()
@click.argument("number", metavar="N|all")
@config_and_json_options
def ack(number: str, config_path: Path | None, as_json: bool) -> None:
    """Acknowledge the incident N, or all of them: its problem ends. The audit log records it."""
    if number != ALL and not (number.isascii() and number.isdigit() and len(number) < 19):
        raise click.BadParameter("the number of an incident, or all", param_hint="N|all")
    with installed(config_path) as rt:
        by = f"cli, {user_name()}"
        found = audited(
            rt,
            f"csi problems ack {number}",
            lambda: incidents.acknowledge_all(rt, by) if number == ALL else incidents.acknowledge(rt, int(number), by),
            lambda done: f"{len(done)} acknowledged",
        )
    if as_json:
        echo_json(api_models.AcknowledgeReport.of(acknowledged=found))
        return
    for one in found:
        click.echo(f"incident {one.id} is acknowledged: {safe(one.what)}")
    if not found:
        click.echo("there is no incident to acknowledge")
