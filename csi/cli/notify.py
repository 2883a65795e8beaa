"""`csi notify`: what is wrong, what was told, and whether telling works."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from csi.cli.config import config_option, json_option
from csi.cli.output import echo_json, iso, plural, stamp
from csi.cli.session import installed
from csi.cli.terminal import plain, table
from csi.errors import MissingSetting
from csi.flow import notify as lookout
from csi.flow import troubles as judgement
from csi.logs import redact
from csi.runtime import Runtime
from csi.scheduling.troubles import Trouble
from csi.store import troubles
from csi.store.troubles import Noted

HISTORY = 20


@click.group()
def notify() -> None:
    """Show troubles, and try out how people are told of them.

    CSI_NOTIFY_URLS says where to (apprise URLs), CSI_HEARTBEAT_URL whom to ping while the worker is well.
    """


@notify.command()
@config_option
@json_option
def status(config_path: Path | None, as_json: bool) -> None:
    """What is wrong at this moment, and the last troubles that were noted."""
    with installed(config_path) as rt:
        now, noted = judgement.current(rt), troubles.latest(HISTORY)
        urls, heartbeat = len(lookout.urls(rt)), rt.settings.secrets.heartbeat_url is not None
    if as_json:
        current = [vars(trouble) | {"text": redact(trouble.text)} for trouble in now]
        echo_json(
            {"services": urls, "heartbeat": heartbeat, "current": current, "noted": [_plain(one) for one in noted]}
        )
        return
    click.echo(f"told through {plural(urls, 'service')}; heartbeat URL {'is' if heartbeat else 'is not'} set")
    click.echo(_lines(now))
    if noted:
        rows = [[one.name, one.subject, stamp(one.since), stamp(one.told_at), stamp(one.ended_at)] for one in noted]
        click.echo("\n" + "\n".join(table(("TROUBLE", "OF", "SINCE", "TOLD", "OVER"), rows)))


@notify.command()
@config_option
def test(config_path: Path | None) -> None:
    """Send one message through every service, and ping the heartbeat URL, now."""
    with installed(config_path) as rt:
        _require_something(rt)
        fine = [_try_post(rt), _try_ping(rt)]
    sys.exit(0 if all(fine) else 1)


@notify.command()
@config_option
def check(config_path: Path | None) -> None:
    """One round of the lookout, from outside the worker: for a timer on hosts where the worker itself may be dead."""
    with installed(config_path) as rt:
        found = lookout.look(rt, ours=False)
    click.echo(_lines(found))


def _lines(found: Sequence[Trouble | Noted]) -> str:
    return "\n".join(f"{one.name}: {plain(redact(one.text))}" for one in found) or "nothing is wrong"


def _require_something(rt: Runtime) -> None:
    if not lookout.urls(rt) and rt.settings.secrets.heartbeat_url is None:
        raise MissingSetting(
            "neither CSI_NOTIFY_URLS nor CSI_HEARTBEAT_URL is set. Set one in the environment or in /etc/csi/env."
        )


def _try_post(rt: Runtime) -> bool:
    if not lookout.urls(rt):
        return True
    lookout.require_post(rt)
    sent = lookout.say(rt, "test", "This is a test: notifications work.")
    click.echo(
        "the message was sent" if sent else "a service did not take the message; is its URL right?", err=not sent
    )
    return sent


def _try_ping(rt: Runtime) -> bool:
    if rt.settings.secrets.heartbeat_url is None:
        return True
    heard = lookout.ping(rt)
    click.echo(
        "the heartbeat URL answered" if heard else "the heartbeat URL did not answer as it should", err=not heard
    )
    return heard


def _plain(noted: Noted) -> dict[str, Any]:
    return {
        "trouble": noted.name,
        "subject": noted.subject,
        "text": redact(noted.text),
        "since": iso(noted.since),
        "told_at": iso(noted.told_at),
        "ended_at": iso(noted.ended_at),
    }
