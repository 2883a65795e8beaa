"""`csi inbound`: who pushes to this installation, senders of webhooks, and the messages that arrived."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models
from csi.admin import inbound as admin
from csi.cli.command import DurationType, audited, config_and_json_options, config_option, installed
from csi.cli.output import echo_json, echo_table, plural, safe, stamp
from csi.status import push
from csi.store import inbound_messages

if TYPE_CHECKING:
    from csi.admin.inbound import SenderAccess

OFF = "/hooks is not served: set inbound.enabled: true in the configuration, and restart the sidecar"


@click.group()
def inbound() -> None:
    """Receive pushes of hubs, of Composio and of your own scripts.

    Addresses and secrets are derived from a key file, and shown only when a sender is added or rotated.
    """


@inbound.command("list")
@config_and_json_options
def list_all(config_path: Path | None, as_json: bool) -> None:
    """List subscriptions at hubs, with missed pushes, and senders of webhooks."""
    with installed(config_path) as rt:
        found, served = push.push_facts(rt), rt.settings.serves_hooks
    if as_json:
        echo_json(api_models.InboundStatus.of_facts(found, served=served))
        return
    if not served:
        click.echo(OFF)
    if found.subscriptions:
        rows = [
            [one.watch, one.row.kind, one.row.state, stamp(one.row.expires_at), str(one.row.pushes),
             str(one.row.misses), str(one.row.near_misses), "yes" if one.row.stretched else "no",
             safe(one.row.last_error or "–")]
            for one in found.subscriptions
        ]  # fmt: skip
        head = ("WATCH", "KIND", "STATE", "LEASE UNTIL", "PUSHES", "MISSES", "NEAR", "STRETCHED", "LAST ERROR")
        echo_table(head, rows)
    if found.senders:
        senders = [
            [one.name, one.kind, one.source or "–", str(one.accepted), stamp(one.last_accepted_at), str(one.refused)]
            for one in found.senders
        ]
        echo_table(("SENDER", "KIND", "SOURCE", "ACCEPTED", "LAST", "REFUSED SINCE"), senders)
    if not found.subscriptions and not found.senders:
        click.echo("there are no senders and no subscriptions; `csi inbound add NAME` adds a sender")


@inbound.command()
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(["events", "items", "composio"]), default="events", show_default=True,
    help="events: ready CreatorSignalEvents; items: raw items of a source; composio: webhooks of Composio.",
)  # fmt: skip
@click.option("--source", help="With --kind items: the source whose adapter normalizes them.")
@click.option("--watch", "ref", help="With --kind items: the watch that they belong to, if they name none.")
@click.option("--tier", default="standard", show_default=True, help="The tier of events that name none.")
@click.option("--secret-env", metavar="VARIABLE", help="The variable of the sidecar that holds the sender's secret.")
@config_and_json_options
def add(
    config_path: Path | None, as_json: bool, name: str, kind: str, source: str | None, ref: str | None, tier: str,
    secret_env: str | None,
) -> None:  # fmt: skip
    """Add a sender: its address and its secret are shown once."""
    with installed(config_path) as rt:
        made = audited(
            rt,
            f"csi inbound add {name[:40]}",
            lambda: admin.add(rt, name, kind, source=source, ref=ref, tier=tier, secret_env=secret_env),
            lambda one: f"{one.name} ({one.kind})",
        )
    _show_access(made, as_json)


@inbound.command()
@click.argument("name")
@click.option("--grace", type=DurationType(), default="1d", show_default=True, help="The old secret stays valid: 1d.")
@click.option("--address", "new_address", is_flag=True, help="Replace the address, too; the old one ends at once.")
@config_and_json_options
def rotate(config_path: Path | None, as_json: bool, name: str, grace: float, new_address: bool) -> None:
    """Give a sender a new secret."""
    with installed(config_path) as rt:
        made = audited(
            rt,
            f"csi inbound rotate {name[:40]}",
            lambda: admin.rotate(rt, name, grace=grace, new_address=new_address),
            lambda one: one.name,
        )
    _show_access(made, as_json)


@inbound.command()
@click.argument("name")
@config_option
def remove(config_path: Path | None, name: str) -> None:
    """Remove a sender: its address ends at once; its messages are kept."""
    with installed(config_path) as rt:
        gone = audited(rt, f"csi inbound remove {name[:40]}", lambda: admin.remove(name), str)
    click.echo(f"{name} is removed" if gone else "there is no such sender", err=not gone)
    sys.exit(0 if gone else 1)


@inbound.command()
@click.argument("name")
@config_option
def test(config_path: Path | None, name: str) -> None:
    """Print a signed curl command with a test message, valid for five minutes."""
    with installed(config_path) as rt:
        command, served = admin.signed_request(rt, name), rt.settings.serves_hooks
    if not served:
        click.echo(OFF, err=True)
    click.echo(command)


@inbound.command()
@click.argument("message", type=click.IntRange(min=1), required=False, metavar="[ID]")
@click.option("--sender", help="Only messages of this sender.")
@click.option("--state", type=click.Choice(["new", "done", "failed"]), help="Only messages in this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@config_and_json_options
def messages(
    config_path: Path | None, as_json: bool, message: int | None, sender: str | None, state: str | None, limit: int
) -> None:
    """List the newest messages, or print the content of one."""
    with installed(config_path):
        if message is not None:
            content = inbound_messages.body_of(message)
            click.echo("there is no such message" if content is None else safe(content.decode("utf-8", "replace")))
            sys.exit(0 if content is not None else 1)
        found = inbound_messages.newest(limit, sender=sender, state=state)
    if as_json:
        echo_json(api_models.InboundMessageList.of(messages=found))
    elif found:
        rows = [
            [str(one.id), stamp(one.received_at), one.sender, one.state, str(one.bytes), safe(one.result or "–")]
            for one in found
        ]
        echo_table(("MESSAGE", "RECEIVED", "SENDER", "STATE", "BYTES", "RESULT"), rows)
    else:
        click.echo("no messages")


@inbound.command()
@click.argument("ids", type=click.IntRange(min=1), nargs=-1, metavar="ID...")
@click.option("--failed", "all_failed", is_flag=True, help="All messages that could not be handled.")
@click.option("--sender", help="With --failed: only those of this sender.")
@config_option
def replay(config_path: Path | None, ids: tuple[int, ...], all_failed: bool, sender: str | None) -> None:
    """Handle messages again. What they brought before is known and not delivered again."""
    if bool(ids) == all_failed:
        raise click.UsageError("name the messages, or pass --failed")
    with installed(config_path) as rt:
        done = audited(
            rt,
            f"csi inbound replay {'--failed' if all_failed else f'{len(ids)} messages'}",
            lambda: admin.replay(rt, list(ids), sender=sender, all_failed=all_failed),
            lambda found: plural(len(found), "message"),
        )
    click.echo(f"{plural(len(done), 'message')} will be handled again" if done else "there is no such message")
    sys.exit(0 if done or all_failed else 1)


def _show_access(made: SenderAccess, as_json: bool) -> None:
    if as_json:
        echo_json(api_models.SenderAccessJson.of(made, served=made.is_served))
        return
    click.echo(f"address  {made.url}")
    click.echo(f"secret   {made.secret or 'in the variable that you named'}")
    click.echo(f"`csi inbound test {made.name}` prints a signed request")
    if not made.is_served:
        click.echo(OFF, err=True)
