"""`csi destinations`: list, add, change, test and remove destinations, and rotate their secrets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import api_models
from csi.admin import destination_settings
from csi.admin import destinations as delivery
from csi.cli.command import DurationType, audited, config_and_json_options, config_option, installed, yes_option
from csi.cli.output import confirm, echo_json, echo_table, plain, plural, safe, stamp
from csi.config import delivery_settings
from csi.doctor import sample_event_test
from csi.ingester.text import clean
from csi.status import destination_details, destinations
from csi.store import managed_destinations
from csi.store.queries import destination_attempts

if TYPE_CHECKING:
    pass

ORIGINS = {"config": "the configuration", "command": "a command", "agent": "a subscription of an agent"}
_NAME = click.argument("name", metavar="NAME")
_PAIRS = click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")


@click.group("destinations")
def destinations_group() -> None:
    """List, add, change, test and remove destinations.

    Destinations come from the configuration file or are added here; the file is never rewritten. A worker and a
    sidecar that run take a change within seconds. KEY is a key of delivery.destinations.<name>, VALUE is written as
    there: tags='[ai, news]'.
    """


@destinations_group.command("list")
@config_and_json_options
def list_destinations(config_path: Path | None, as_json: bool) -> None:
    """List the destinations with origin, state, success rate and latency of a day."""
    with installed(config_path) as rt:
        found = [api_models.DestinationSummaryJson.of(one) for one in destination_details.summaries(rt)]
    if as_json:
        echo_json({"destinations": found})
        return
    rows = []
    for one in found:
        slow = "–" if one.p95_seconds is None else f"{one.p95_seconds:.2f} s"
        counts = [f"{one.requests:,}", _share(one.success), slow, f"{one.pending:,}"]
        rows.append([one.destination, one.origin, one.state, *counts, one.url])
    echo_table(("NAME", "FROM", "STATE", "REQUESTS", "SUCCESS", "P95", "PENDING", "URL"), rows, 60)


@destinations_group.command()
@config_and_json_options
@_NAME
def show(config_path: Path | None, as_json: bool, name: str) -> None:
    """Show one destination: settings without secrets, state, the requests of a day, and the last ones."""
    with installed(config_path) as rt:
        found = api_models.DestinationDetail.of(destination_details.details(rt, name))
    if as_json:
        echo_json(found)
        return
    click.echo(f"{plain(found.destination)}  (from {ORIGINS[found.origin]})")
    if found.expires_at:
        click.echo(f"  expires   {found.expires_at}, unless the agent refreshes it")
    click.echo(f"  state     {found.state}" + (f": {plain(found.reason)}" if found.reason else ""))
    click.echo(f"  url       {plain(found.url)}")
    for key, value in found.settings.items():
        click.echo(f"  setting   {key}: {plain(str(value), 100)}")
    requests = plural(found.requests, "request")
    click.echo(f"  24 hours  {requests}, {_share(found.success)} good, P95 {found.p95_seconds or '–'} s")
    click.echo(f"  queued    {found.pending:,} events, {plural(found.dead_letters, 'open dead letter')}")
    if rotation := found.rotation:
        needed = f"last needed: {rotation.previous_needed_at or 'never since'}"
        if rotation.signs_with_both:
            needed = "requests have both signatures, so when it was last needed is not known"
        click.echo(f"  rotation  the previous secret is used until {rotation.previous_until}; {needed}")
    for one in found.attempts:
        status = destination_attempts.answer_words(one.outcome, one.status)
        took = "no end" if one.seconds is None else f"{one.seconds:.2f} s"
        what = "test" if one.events is None else plural(one.events, "event")
        words = f"{one.outcome}  {status}  {took}  {what}  {plain(one.reason or '')}"
        elsewhere = f"  to {plain(one.url)}" if one.url and one.url != found.url else ""
        click.echo(f"  request   {one.started_at}  {words}{elsewhere}".rstrip())


def _share(success: float | None) -> str:
    return "–" if success is None else f"{success:.1%}"


@destinations_group.command()
@_NAME
@click.argument("endpoint", required=False, metavar="[URL]")
@_PAIRS
@click.option("--secret-stdin", is_flag=True, help="Read the secret of its signature from stdin.  [default: make one]")
@click.option("--endpoint-stdin", is_flag=True, help="Read a URL that is a secret, as of Slack, from stdin.")
@config_and_json_options
def add(
    name: str,
    endpoint: str | None,
    pairs: tuple[str, ...],
    secret_stdin: bool,
    endpoint_stdin: bool,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Add a destination: csi destinations add hook https://example.org/in answers=status body=event.

    Where it is signed and no secret is given, a new one is made and shown this one time. Secrets are kept in a private
    file of the state directory, never in the database.
    """
    if secret_stdin and endpoint_stdin:
        raise click.UsageError("--secret-stdin and --endpoint-stdin cannot be combined.")
    if endpoint is not None and "://" not in endpoint and "=" in endpoint:
        pairs, endpoint = (endpoint, *pairs), None
    given = _given(pairs) | ({"endpoint": endpoint} if endpoint else {})
    kept = {}
    if secret_stdin or endpoint_stdin:
        kept["secret" if secret_stdin else "endpoint"] = sys.stdin.readline().strip()
    with installed(config_path) as rt:
        made, secret = audited(
            rt,
            f"csi destinations add {clean(name, 64)}",
            lambda: destination_settings.add(rt, name, given, kept, _environment(config_path)),
            lambda done: "added",
        )
    if as_json:
        shown = made.model_dump(mode="json", include=made.model_fields_set)
        echo_json(api_models.DestinationChanged.of(destination=name, settings=shown, secret=secret))
        return
    click.echo(f"{name} is added; a running worker uses it within seconds")
    if secret is not None:
        click.echo(f"its secret, shown once: {secret}")
    click.echo(f"test it: csi destinations test {name}", err=True)


@destinations_group.command("set")
@_NAME
@_PAIRS
@config_option
def set_keys(name: str, pairs: tuple[str, ...], config_path: Path | None) -> None:
    """Change settings: KEY=VALUE, or KEY= for the default."""
    if not pairs:
        raise click.UsageError("give KEY=VALUE.")
    with installed(config_path) as rt:
        env, given = _environment(config_path), _given(pairs)
        _, secret = audited(
            rt,
            f"csi destinations set {clean(name, 64)}",
            lambda: destination_settings.change(rt, destination_settings.find(rt, name, env), given, env),
            lambda done: f"keys {', '.join(sorted(given))}",
        )
    click.echo(f"{name} is changed: {', '.join(given)}; a running worker uses it within seconds")
    if secret is not None:
        click.echo(f"its secret, shown once: {secret}")


@destinations_group.command()
@_NAME
@yes_option
@config_option
def remove(name: str, yes: bool, config_path: Path | None) -> None:
    """Remove a destination that was added by command, with what is queued for it."""
    with installed(config_path) as rt:
        row = destination_settings.find(rt, name, _environment(config_path))
        queued = managed_destinations.queued(name)
        lost = f" {plural(queued, 'queued event')} will not be sent there." if queued else ""
        confirm(f"Remove the destination {name}?{lost}", yes=yes)
        audited(
            rt,
            f"csi destinations remove {clean(name, 64)}",
            lambda: destination_settings.remove(rt, row),
            lambda number: f"{number} queued events are not sent there",
        )
    click.echo(f"{name} is removed")


@destinations_group.command()
@_NAME
@config_and_json_options
def test(name: str, config_path: Path | None, as_json: bool) -> None:
    """Send a sample event, and explain the answer. Exit code 1 when it is not accepted."""
    with installed(config_path) as rt:
        destinations.configured_name(rt, name)
        done = sample_event_test.send_sample(rt, name)
    if as_json:
        echo_json(api_models.SampleTestJson.of(done))
    else:
        answer = destination_attempts.answer_words("test_ok" if done.is_good else "test_failed", done.status)
        click.echo(f"{plain(name)}  {safe(done.url)}\n  answer  {answer} after {done.seconds:.2f} s")
        click.echo(f"  means   {safe(done.text)}")
    sys.exit(0 if done.is_good else 1)


@destinations_group.command()
@_NAME
@click.option("--reason", default="by command", show_default=True, help="Shown as the reason why events wait.")
@config_option
def pause(name: str, reason: str, config_path: Path | None) -> None:
    """Pause delivery until `resume`, also over restarts: events wait, none is lost."""
    with installed(config_path) as rt:
        destinations.configured_name(rt, name)
        delivery.pause(rt, name, clean(reason, 200).strip() or "by command")
    click.echo(f"{plain(name)}: delivery is paused")


@destinations_group.command()
@_NAME
@config_option
def resume(name: str, config_path: Path | None) -> None:
    """Resume delivery after a pause by the operator, or before the receiver's Retry-After has passed."""
    with installed(config_path) as rt:
        was_waiting = delivery.resume(rt, destinations.configured_name(rt, name))
    click.echo(f"{plain(name)}: delivery {'is resumed' if was_waiting else 'was neither paused nor throttled'}")


@destinations_group.command()
@_NAME
@click.option("--overlap", type=DurationType(), help="How long the previous one is used, too.  [default: 1d]")
@config_and_json_options
def rotate(name: str, overlap: float | None, config_path: Path | None, as_json: bool) -> None:
    """Make a new secret, shown once. The previous one is used beside it during the overlap.

    Standard Webhooks carries both signatures. Other schemes carry one: a 401 or 403 to the new secret is followed by
    the same request with the previous one, and `show` says when that was last needed.
    """
    with installed(config_path) as rt:
        overlap = destination_settings.OVERLAP_SECONDS if overlap is None else overlap
        row = destination_settings.find(rt, name, _environment(config_path))
        secret = audited(
            rt,
            f"csi destinations rotate {clean(name, 64)}",
            lambda: destination_settings.rotate(rt, row, overlap),
            lambda done: "done",
        )
        until = rt.now() + overlap if overlap else None
    if as_json:
        echo_json(api_models.SecretRotated.of(destination=name, secret=secret, previous_until=until))
        return
    click.echo(f"the new secret of {name}, shown once: {secret}")
    if overlap:
        click.echo(f"give it to the receiver before {stamp(until)}; until then the previous one is used, too", err=True)


def _given(pairs: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or key not in delivery_settings.DestinationSettings.model_fields:
            known = ", ".join(delivery_settings.DestinationSettings.model_fields)
            raise click.UsageError(f"{key[:40]!r} is not KEY=VALUE of a known key; known are {known}.")
        found[key] = destination_settings.value_of(text)
    return found


def _environment(config_path: Path | None) -> dict[str, str]:
    return {**os.environ, **({"CSI_CONFIG_PATH": str(config_path)} if config_path else {})}
