"""`csi delivery`: how it stands with the receivers; pause, resume and test them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.cli.installation import installed
from csi.cli.options import config_option, json_option
from csi.cli.output import echo_json, stamp
from csi.cli.terminal import ago, plain, table
from csi.doctor import destination as checkup
from csi.ingester.text import clean
from csi.status import destinations

if TYPE_CHECKING:
    from csi.doctor.destination import Checkup
    from csi.runtime import Runtime
    from csi.status.destinations import Standing

_ONE = click.option("--destination", metavar="NAME", help="Only this one.  [default: all]")

GATES = {
    "open": "open: events go out",
    "held": "paused by command",
    "paused": "the receiver asked for a pause",
    "away": "the receiver is away; it is asked again soon",
    "probe": "the receiver is away; the next event asks whether it is back",
}


@click.group()
def delivery() -> None:
    """Show, pause, resume and test the delivery to receivers."""


@delivery.command()
@config_option
@json_option
@_ONE
def status(config_path: Path | None, as_json: bool, destination: str | None) -> None:
    """Say for each destination whether events go out, and what waits."""
    with installed(config_path) as rt:
        found = destinations.standings(rt, destination)
        if as_json:
            shown = [api_models.DestinationJson.of_status(one) for one in found]
            echo_json({"enabled": rt.settings.features.delivery, "destinations": shown})
            return
        if not rt.settings.features.delivery:
            click.echo("delivery is switched off (features.delivery)")
        click.echo("\n\n".join("\n".join(_lines(one, rt.now())) for one in found))


def _lines(one: Standing, now: float) -> Iterator[str]:
    endpoint = one.endpoint
    yield f"{plain(one.name)}{'' if one.is_configured else '  (not configured any more)'}"
    yield f"  gate          {_gate_words(one, now)}"
    opened = (
        f" since {stamp(endpoint.opened_at)}: {plain(logs.redact(endpoint.reason or ''))}" if endpoint.opened_at else ""
    )
    yield f"  breaker       {endpoint.breaker}{opened}"
    if endpoint.ramp:
        yield f"  ramp          {endpoint.ramp} requests at once while it recovers"
    yield f"  json          {one.form}"
    yield f"  last success  {_when(endpoint.last_success_at, now)}"
    error = f": {plain(logs.redact(endpoint.last_error or ''))}" if endpoint.last_failure_at else ""
    yield f"  last failure  {_when(endpoint.last_failure_at, now)}{error}"
    yield f"  waiting       {one.pending:,} pending, {one.in_flight:,} on their way, {one.dead:,} open dead letters"
    if one.lanes:
        rows = [
            [lane.name, f"{lane.pending:,}", f"{lane.in_flight:,}", _age(lane.oldest_seen_at, now)]
            for lane in one.lanes
        ]
        yield from (f"    {line}" for line in table(("LANE", "PENDING", "ON THEIR WAY", "OLDEST"), rows))


def _gate_words(one: Standing, now: float) -> str:
    endpoint, words = one.endpoint, GATES[one.gate]
    if one.gate == "held":
        return f"{words} since {stamp(endpoint.held_at)}: {plain(logs.redact(endpoint.held or ''))}"
    if one.gate == "paused":
        return f"{words} until {stamp(endpoint.paused_until)}"
    if one.gate == "away" and endpoint.next_probe_at:
        return f"{words} (at {stamp(endpoint.next_probe_at)})"
    return words


def _when(moment: float | None, now: float) -> str:
    return "never" if moment is None else f"{stamp(moment)} ({ago(now - moment)} ago)"


def _age(moment: float | None, now: float) -> str:
    return ago(None if moment is None else now - moment)


@delivery.command()
@config_option
@_ONE
@click.option("--reason", default="by command", show_default=True, help="Shown wherever somebody asks why.")
def pause(config_path: Path | None, destination: str | None, reason: str) -> None:
    """Hold delivery, over restarts, until `resume`: events are still collected, nothing is sent."""
    with installed(config_path) as rt:
        for name in _names(rt, destination):
            is_new = destinations.hold(rt, name, clean(reason, 200).strip() or "by command")
            click.echo(
                f"{plain(name)}: delivery is paused" + ("" if is_new else " (it was already; the reason is new)")
            )
        click.echo("what is on its way now still arrives; events stay pending until: csi delivery resume", err=True)


@delivery.command()
@config_option
@_ONE
def resume(config_path: Path | None, destination: str | None) -> None:
    """Send again after a pause by command."""
    with installed(config_path) as rt:
        for name in _names(rt, destination):
            was_held = destinations.resume(rt, name)
            click.echo(f"{plain(name)}: " + ("delivery goes on" if was_held else "delivery was not paused by command"))


@delivery.command()
@config_option
@json_option
@_ONE
def test(config_path: Path | None, as_json: bool, destination: str | None) -> None:
    """Send a signed empty batch and explain the answer. Exit code 1 when a receiver does not let us in."""
    with installed(config_path) as rt:
        done = [checkup.check(rt, name) for name in _names(rt, destination)]
        if as_json:
            echo_json({"destinations": [api_models.DestinationTest.of(one) for one in done]})
        else:
            click.echo("\n\n".join("\n".join(_checkup_lines(one)) for one in done))
        sys.exit(0 if all(one.is_good for one in done) else 1)


def _checkup_lines(one: Checkup) -> Iterator[str]:
    status = f"http {one.status}" if one.status is not None else "no answer"
    yield f"{plain(one.destination)}  {plain(logs.redact(one.url))}"
    yield f"  answer  {status} after {one.seconds:.2f} s"
    yield f"  means   {plain(logs.redact(one.text))}"
    yield f"  json    {plain(one.forms_text)}"
    yield f"  clock   {one.clock_text}"


def _names(rt: Runtime, destination: str | None) -> list[str]:
    if destination is None:
        return list(rt.destinations)
    if destination not in rt.destinations:
        known = ", ".join(rt.destinations)
        raise destinations.UnknownDestination(f"there is no destination {destination[:60]!r}; configured: {known}")
    return [destination]
