"""`csi delivery`: the state of destinations; pause, resume and test them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

import csi.status.destinations
from csi import api_models, logs, runtime
from csi.admin import destinations
from csi.cli.command import audited, config_and_json_options, config_option, installed, opened
from csi.cli.output import ago, echo_json, plain, safe, stamp, table
from csi.config import loader, settings
from csi.doctor import destination_check, run_checks
from csi.ingester.text import clean
from csi.status import delivery_problems

if TYPE_CHECKING:
    from csi.doctor.destination_check import Checkup
    from csi.runtime import Runtime
    from csi.status.destinations import DestinationStatus

_ONE = click.option("--destination", metavar="NAME", help="Only this one.  [default: all]")


@click.group()
def delivery() -> None:
    """Show, pause, resume and test the delivery to receivers."""


@delivery.command()
@config_and_json_options
@_ONE
def status(config_path: Path | None, as_json: bool, destination: str | None) -> None:
    """Show the state of each destination, and what is queued for it."""
    with installed(config_path) as rt:
        status_of = csi.status.destinations
        if destination:
            found = [status_of.destination_status(rt, status_of.known_name(rt, destination))]
        else:
            found = status_of.all_destinations(rt)
        if as_json:
            shown = [api_models.DestinationJson.of_status(one) for one in found]
            echo_json({"enabled": rt.settings.features.delivery, "destinations": shown})
            return
        if not rt.settings.features.delivery:
            click.echo("delivery is switched off (features.delivery)")
        click.echo("\n\n".join("\n".join(_lines(one, rt.now())) for one in found))


def _lines(one: DestinationStatus, now: float) -> Iterator[str]:
    row = one.row
    yield f"{plain(one.name)}{'' if one.is_configured else '  (no longer configured)'}"
    yield f"  state         {_state_words(one, now)}"
    opened = f" since {stamp(row.opened_at)}: {safe(one.breaker_words or '')}" if row.opened_at else ""
    yield f"  breaker       {row.circuit}{opened}"
    if row.ramp:
        yield f"  ramp          {row.ramp} concurrent requests while it recovers"
    yield f"  json          {one.form_words}"
    yield f"  last success  {_when(row.last_success_at, now)}"
    error = f": {safe(one.last_error or '')}" if row.last_failure_at else ""
    yield f"  last failure  {_when(row.last_failure_at, now)}{error}"
    yield f"  last answer   {_when(row.answered_at, now)}"
    if row.certificate_expires_at is not None:
        yield f"  certificate   {delivery_problems.certificate_text(row.certificate_expires_at, now)}"
    if one.note:
        yield f"  note          {one.note}"
    yield f"  queued        {one.pending:,} pending, {one.in_flight:,} in flight, {one.dead:,} open dead letters"
    if one.lanes:
        rows = []
        for lane in one.lanes:
            age = None if lane.oldest_seen_at is None else now - lane.oldest_seen_at
            rows.append([lane.name, f"{lane.pending:,}", f"{lane.in_flight:,}", ago(age)])
        yield from (f"    {line}" for line in table(("LANE", "PENDING", "IN FLIGHT", "OLDEST"), rows))


def _state_words(one: DestinationStatus, now: float) -> str:
    row, words = one.row, csi.status.destinations.STATE_TEXTS[one.state]
    if one.state == "paused":
        return f"{words} since {stamp(row.paused_at)}: {safe(row.paused_reason or '')}"
    if one.state == "throttled":
        return f"{words} until {stamp(row.throttled_until)}"
    if one.state == "circuit_open" and one.canary and one.canary.state == "sending":
        return f"{words}; {one.canary.batch_id} is being sent"
    if one.state == "circuit_open" and row.next_probe_at:
        return f"{words}; next probe at {stamp(row.next_probe_at)}"
    return words


def _when(moment: float | None, now: float) -> str:
    return "never" if moment is None else f"{stamp(moment)} ({ago(now - moment)} ago)"


@delivery.command()
@config_option
@_ONE
@click.option("--reason", default="by command", show_default=True, help="Shown as the reason why events wait.")
def pause(config_path: Path | None, destination: str | None, reason: str) -> None:
    """Pause delivery until `resume`, also over restarts: events are still stored, none is sent."""
    with installed(config_path) as rt:
        for name in _names(rt, destination):
            is_new = audited(
                rt,
                f"csi delivery pause {name}",
                partial(destinations.pause, rt, name, clean(reason, 200).strip() or "by command"),
                lambda _: f"paused: {reason}",
            )
            note = "" if is_new else " (it was paused already; the reason is replaced)"
            click.echo(f"{plain(name)}: delivery is paused{note}")
        click.echo("a running request is not interrupted; events stay pending until: csi delivery resume", err=True)


@delivery.command()
@config_option
@_ONE
def resume(config_path: Path | None, destination: str | None) -> None:
    """Resume delivery after a pause by the operator, or before the receiver's Retry-After has passed."""
    with installed(config_path) as rt:
        for name in _names(rt, destination):
            was_waiting = audited(
                rt,
                f"csi delivery resume {name}",
                partial(destinations.resume, rt, name),
                lambda was_waiting: "resumed" if was_waiting else "nothing changed",
            )
            click.echo(f"{plain(name)}: delivery {'is resumed' if was_waiting else 'was neither paused nor throttled'}")


@delivery.command()
@config_and_json_options
@_ONE
def test(config_path: Path | None, as_json: bool, destination: str | None) -> None:
    """Send a signed empty batch and explain the answer. Exit code 1 when a receiver rejects it.

    Works before the first start, too: without a database nothing is recorded.
    """
    with _installed_or_new(config_path) as rt:
        done = [destination_check.check(rt, name) for name in _names(rt, destination)]
        if as_json:
            echo_json({"destinations": [api_models.DestinationTest.of(one) for one in done]})
        else:
            click.echo("\n\n".join("\n".join(_checkup_lines(one)) for one in done))
        sys.exit(0 if all(one.is_good for one in done) else 1)


@contextmanager
def _installed_or_new(config_path: Path | None) -> Iterator[Runtime]:
    wanted = runtime.load_settings(config_path)
    url = wanted.csi.database_url
    if settings.looks_like_postgres(url) or Path(url).exists():
        with opened(wanted) as rt:
            yield rt
        return
    loader.require_delivery(wanted)
    logs.setup(level="WARNING", format=wanted.csi.log_format, secrets=runtime.secret_values(wanted))
    with runtime.configured_net(wanted) as net:
        rt = runtime.Runtime(wanted, net)
        with run_checks.scratch_database(rt):
            yield rt


def _checkup_lines(one: Checkup) -> Iterator[str]:
    status = f"http {one.status}" if one.status is not None else "no answer"
    yield f"{plain(one.destination)}  {safe(one.url)}"
    yield f"  answer  {status} after {one.seconds:.2f} s"
    yield f"  means   {safe(one.text)}"
    yield f"  json    {plain(one.forms_text)}"
    yield f"  clock   {one.clock_text}"


def _names(rt: Runtime, destination: str | None) -> list[str]:
    if destination is None:
        return list(rt.destinations)
    return [csi.status.destinations.configured_name(rt, destination)]
