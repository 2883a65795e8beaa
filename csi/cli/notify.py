"""`csi notify`: alerts, notifications and mutes, and whether notifications work."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, clock, runtime
from csi.admin import mutes
from csi.cli.command import DurationType, audited, config_and_json_options, config_option, installed, user_name
from csi.cli.output import echo_json, echo_table, plural, safe, stamp
from csi.errors import MissingSetting
from csi.notifications import NOT_ACCEPTED
from csi.status import alert_overview
from csi.worker import alerting

if TYPE_CHECKING:
    from csi.store.mutes import Mute


@click.group()
def notify() -> None:
    """Show alerts, test and mute notifications.

    CSI_NOTIFY_URLS holds the targets (apprise URLs), CSI_HEARTBEAT_URL the address that a healthy worker pings.
    """


@notify.command()
@config_and_json_options
def status(config_path: Path | None, as_json: bool) -> None:
    """Show the alerts that fire now, the last recorded ones, the last notifications, and mutes."""
    with installed(config_path) as rt:
        found = alert_overview.alert_overview(rt)
    if as_json:
        echo_json(api_models.AlertStatus.of_overview(found))
        return
    heartbeat = "is" if found.heartbeat else "is not"
    names = f" ({', '.join(found.targets)})" if found.targets else ""
    click.echo(f"notifications go to {plural(found.services, 'service')}{names}; the heartbeat URL {heartbeat} set")
    if found.muting.window_until is not None:
        click.echo(f"a maintenance window mutes notifications until {clock.iso(found.muting.window_until)}")
    for mute in found.muting.mutes:
        click.echo(f"muted: {_mute_line(mute)}")
    click.echo(_lines((one.id, one.what) for one in found.current))
    if found.recorded:
        rows = [
            [
                one.name,
                one.subject,
                stamp(one.since),
                "muted" if found.is_muted(one) else stamp(one.notified_at),
                stamp(one.resolved_at),
            ]
            for one in found.recorded
        ]
        click.echo()
        echo_table(("ALERT", "SUBJECT", "SINCE", "NOTIFIED", "RESOLVED"), rows)
    if found.notifications:
        sent = [
            [stamp(one.last_attempt_at), one.target, one.state, str(one.attempts), safe(one.title)]
            for one in found.notifications
        ]
        click.echo()
        echo_table(("LAST ATTEMPT", "TARGET", "RESULT", "ATTEMPTS", "NOTIFICATION"), sent)


@notify.command()
@config_option
def test(config_path: Path | None) -> None:
    """Send one message through every service, and ping the heartbeat URL, now."""
    fine = []
    with installed(config_path) as rt:
        has_heartbeat = rt.settings.secrets.heartbeat_url is not None
        if not runtime.notification_targets(rt.settings) and not has_heartbeat:
            raise MissingSetting(
                "neither CSI_NOTIFY_URLS nor CSI_HEARTBEAT_URL is set. Set one in the environment or in /etc/csi/env."
            )
        if runtime.notification_targets(rt.settings):
            alerting.check_targets(rt)
            failed = [name for name, accepted in alerting.send_test(rt).items() if not accepted]
            text = f"{', '.join(failed)}: {NOT_ACCEPTED}; check its URL"
            click.echo(text if failed else "the message was sent", err=bool(failed))
            fine.append(not failed)
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
        found = alerting.evaluate(rt, is_worker=False)
    click.echo(_lines((one.name, one.text) for one in found))


@notify.command()
@click.argument("duration", type=DurationType(), metavar="DURATION")
@click.option("--problem", metavar="ID", help="Only the alerts of this name, as `csi notify status` shows it.")
@click.option("--reason", default="", metavar="TEXT", help="Shown where mutes are listed.")
@config_option
def mute(config_path: Path | None, duration: float, problem: str | None, reason: str) -> None:
    """Send no notifications for a time: 30m, 2h, 1d.

    Alerts are recorded and shown meanwhile. What still fires when the mute ends is notified then.
    """
    with installed(config_path) as rt:
        try:
            made = audited(
                rt,
                f"csi notify mute {duration:.0f}s" + (f" --problem {problem}" if problem else ""),
                lambda: mutes.mute(rt, duration, problem=problem, reason=reason, by=f"cli, {user_name()}"),
                lambda one: f"mute {one.id} until {clock.iso(one.until)}",
            )
        except mutes.CannotMute as error:
            raise click.UsageError(str(error)) from error
    click.echo(f"muted: {_mute_line(made)}")


@notify.command()
@click.argument("mute_id", type=click.IntRange(min=1), required=False, metavar="[NUMBER]")
@config_option
def unmute(config_path: Path | None, mute_id: int | None) -> None:
    """End a mute, or every one, before its time."""
    with installed(config_path) as rt:
        ended = audited(
            rt,
            f"csi notify unmute {mute_id or ''}".strip(),
            lambda: mutes.unmute(rt, mute_id, by=f"cli, {user_name()}"),
            lambda number: f"{number} ended",
        )
    click.echo(f"{plural(ended, 'mute')} ended" if ended else "there is no such mute", err=not ended)
    sys.exit(0 if ended or mute_id is None else 1)


@notify.command("mutes")
@config_and_json_options
def list_mutes(config_path: Path | None, as_json: bool) -> None:
    """List the mutes that are active."""
    with installed(config_path) as rt:
        found = alert_overview.alert_overview(rt).muting.mutes
    if as_json:
        echo_json({"mutes": [api_models.MuteJson.of(one) for one in found]})
    elif found:
        rows = [
            [
                str(one.id),
                one.problem or "all",
                stamp(one.since),
                stamp(one.until),
                one.created_by,
                safe(one.reason or ""),
            ]
            for one in found
        ]
        echo_table(("MUTE", "PROBLEM", "SINCE", "UNTIL", "BY", "REASON"), rows)
    else:
        click.echo("nothing is muted")


def _mute_line(one: Mute) -> str:
    reason = f" ({safe(one.reason)})" if one.reason else ""
    what = one.problem or "all notifications"
    return f"{what} until {clock.iso(one.until)}{reason}; `csi notify unmute {one.id}` ends it"


def _lines(alerts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{name}: {safe(text)}" for name, text in alerts) or "no alert fires"
