"""`csi notify`: alerts, and whether notifications work."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from csi import api_models
from csi.cli.command import config_and_json_options, config_option, installed
from csi.cli.output import echo_json, plural, safe, stamp, table
from csi.errors import MissingSetting
from csi.worker import alerting


@click.group()
def notify() -> None:
    """Show alerts, and test notifications.

    CSI_NOTIFY_URLS holds the services (apprise URLs), CSI_HEARTBEAT_URL the address that a healthy worker pings.
    """


@notify.command()
@config_and_json_options
def status(config_path: Path | None, as_json: bool) -> None:
    """Show the alerts that fire now, and the last recorded ones."""
    with installed(config_path) as rt:
        found = alerting.standing(rt)
    if as_json:
        echo_json(api_models.AlertStatus.of(found))
        return
    heartbeat = "is" if found.heartbeat else "is not"
    click.echo(f"notifications go to {plural(found.services, 'service')}; the heartbeat URL {heartbeat} set")
    click.echo(_lines((one.id, one.what) for one in found.current))
    if found.noted:
        rows = [
            [one.name, one.subject, *map(stamp, (one.since, one.notified_at, one.resolved_at))] for one in found.noted
        ]
        click.echo("\n" + "\n".join(table(("ALERT", "SUBJECT", "SINCE", "NOTIFIED", "RESOLVED"), rows)))


@notify.command()
@config_option
def test(config_path: Path | None) -> None:
    """Send one message through every service, and ping the heartbeat URL, now."""
    fine = []
    with installed(config_path) as rt:
        has_heartbeat = rt.settings.secrets.heartbeat_url is not None
        if not alerting.urls(rt) and not has_heartbeat:
            raise MissingSetting(
                "neither CSI_NOTIFY_URLS nor CSI_HEARTBEAT_URL is set. Set one in the environment or in /etc/csi/env."
            )
        if alerting.urls(rt):
            alerting.require_post(rt)
            sent = alerting.say(rt, "test", "This is a test: notifications work.")
            result = "the message was sent" if sent else "a service rejected the message; check its URL"
            click.echo(result, err=not sent)
            fine.append(sent)
        if has_heartbeat:
            heard = alerting.ping(rt)
            result = "answered" if heard else "did not answer with success"
            click.echo(f"the heartbeat URL {result}", err=not heard)
            fine.append(heard)
    sys.exit(0 if all(fine) else 1)


@notify.command()
@config_option
def check(config_path: Path | None) -> None:
    """Evaluate and notify once, outside the worker: for a timer on hosts where the worker itself may be down."""
    with installed(config_path) as rt:
        found = alerting.look(rt, ours=False)
    click.echo(_lines((one.name, one.text) for one in found))


def _lines(alerts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{name}: {safe(text)}" for name, text in alerts) or "no alert fires"
