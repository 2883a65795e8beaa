"""`csi dlq`: look at dead letters, send them again, discard or delete them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from csi.admin import replay_by_command
from csi.cli import dead_letter_output
from csi.cli.installation import installed
from csi.cli.options import config_option, json_option
from csi.cli.output import SOME_FAILED, AgeType, confirm, echo_json, is_terminal, plural, progress
from csi.dlq import dead_letters as letters
from csi.dlq import discard_and_prune, search
from csi.ingester.text import clean
from csi.store.queries import timeline

if TYPE_CHECKING:
    from csi.runtime import Runtime

F = TypeVar("F", bound=Callable[..., Any])

STATES = ("open", "replaying", "replayed", "discarded")
_NUMBER = click.IntRange(1, 2**63 - 1)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


def _filters(command: F) -> F:
    """Which letters are meant; several conditions all hold."""
    since = click.option("--since", type=AgeType(ago=True), help='Died within this time: 1h, "1 hour ago", 2d.')
    source = click.option("--source", help="Of this source only.")
    to = click.option("--destination", help="On its way to this destination only.")
    like = click.option("--error-like", metavar="TEXT", help="With this in its error, in any case.")
    return since(source(to(like(command))))


@click.group()
def dlq() -> None:
    """Look at dead letters, send them again, discard or delete them.

    A dead letter is an event that could not be delivered, or an item that could not become an event. What died of
    the receiver's fault goes out again by itself when it works; the rest waits for you.
    """


@dlq.command("list")
@config_option
@json_option
@_filters
@click.option("--state", type=click.Choice(["all", *STATES]), default="open", show_default=True)
@click.option("--group-by", type=click.Choice(["error", "cause", "source", "destination"]), help="Count by this.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
def list_letters(
    config_path: Path | None, as_json: bool, state: str, group_by: str | None, limit: int, **filters: Any
) -> None:
    """List dead letters, the newest first, or count them by what they have in common."""
    with installed(config_path) as rt:
        wish = _wish(rt, filters, states=STATES if state == "all" else (state,))
        if group_by:
            dead_letter_output.show_groups(
                search.groups(wish, cast(search.GroupBy, group_by)), group_by, as_json=as_json
            )
        else:
            dead_letter_output.show_list(search.newest(wish, limit), search.count(wish), as_json=as_json)


@dlq.command()
@config_option
@json_option
@click.argument("letter_id", type=_NUMBER, metavar="ID")
def show(config_path: Path | None, as_json: bool, letter_id: int) -> None:
    """Show one dead letter whole: why it died, every attempt with its answer, and its payload."""
    with installed(config_path):
        letter = letters.find(letter_id)
        if letter is None:
            click.echo(f"there is no dead letter {letter_id}", err=True)
            sys.exit(1)
        attempts = timeline.requests_for(letter.event_id, letter.destination) if letter.kind == "event" else []
        dead_letter_output.show_letter(letter, attempts, as_json=as_json)


@dlq.command()
@config_option
@json_option
@click.option("--id", "ids", type=_NUMBER, multiple=True, help="A letter's number; repeatable.")
@_filters
@click.option("--all", "everything", is_flag=True, help="Every open letter.")
@click.option("--wait", "seconds", type=AgeType(), is_flag=False, flag_value="2m", help="Wait for the result.  [2m]")
@_DRY_RUN
@_YES
def replay(
    config_path: Path | None,
    as_json: bool,
    ids: tuple[int, ...],
    everything: bool,
    seconds: float | None,
    dry_run: bool,
    yes: bool,
    **filters: Any,
) -> None:
    """Send dead letters again: the same event, the same id.

    The letters become pending here; the worker sends them within a second or two, or when the receiver is back.
    With --wait the command stays until each has arrived or died again. Exit code 5 when some failed.
    """
    _refuse_vague(ids, everything, filters)
    with installed(config_path) as rt:
        chosen = list(dict.fromkeys(ids)) or search.ids(_wish(rt, filters))
        if dry_run:
            sys.exit(_plan("would be sent again", chosen, as_json=as_json))
        if len(chosen) > 1 and is_terminal():
            confirm(f"Send {plural(len(chosen), 'dead letter')} again?", yes=yes)
        sys.exit(_replay(rt, chosen, seconds, as_json=as_json))


def _plan(what: str, chosen: list[int], *, as_json: bool) -> int:
    """What would happen. Exit code 5, as afterwards, when some of them are not open."""
    found = [letter for letter in letters.by_ids(chosen) if letter.state == "open"]
    dead_letter_output.show_plan(what, found, as_json=as_json)
    failures = _not_open(chosen, [letter.id for letter in found])
    dead_letter_output.show_failures(failures)
    return SOME_FAILED if failures else 0


def _refuse_vague(ids: tuple[int, ...], everything: bool, filters: dict[str, Any]) -> None:
    conditions = any(value is not None for value in filters.values())
    if not (ids or everything or conditions):
        raise click.UsageError("which ones? Give --id, --since, --error-like, --source, --destination or --all.")
    if ids and (everything or conditions):
        raise click.UsageError("--id names the letters already; leave the other conditions out.")


def _replay(rt: Runtime, chosen: list[int], seconds: float | None, *, as_json: bool) -> int:
    with progress(len(chosen), "sending again") as notice:
        outcomes = replay_by_command.replay_all(rt, chosen, notice)
    sent = [outcome.letter_id for outcome in outcomes if outcome.is_sent]
    names = [letter.destination for letter in letters.by_ids(sent) if letter.destination]
    hints = replay_by_command.obstacles(rt, names) if sent else []
    results = _await(sent, seconds)
    failures = {one.letter_id: one.note for one in outcomes if not one.is_sent}
    failures |= {one.letter_id: one.result or "not finished yet" for one in results if not one.is_good}
    dead_letter_output.show_replay(outcomes, results, failures, hints, as_json=as_json)
    return SOME_FAILED if failures else 0


def _await(sent: list[int], seconds: float | None) -> list[replay_by_command.ReplayResult]:
    if seconds is None or not sent:
        return []
    with progress(len(sent), "waiting for the receiver") as notice:
        return replay_by_command.wait_for_results(sent, seconds, notice)


@dlq.command()
@config_option
@json_option
@click.option("--id", "ids", type=_NUMBER, multiple=True, required=True, help="A letter's number; repeatable.")
@click.option("--reason", default="by command", show_default=True, help="Kept with the letter.")
@_DRY_RUN
@_YES
def discard(
    config_path: Path | None, as_json: bool, ids: tuple[int, ...], reason: str, dry_run: bool, yes: bool
) -> None:
    """Close letters for good: what they hold is never delivered. They stay to be looked at until they are old."""
    with installed(config_path) as rt:
        found = letters.by_ids(ids)
        if dry_run:
            sys.exit(_plan("would be discarded", list(dict.fromkeys(ids)), as_json=as_json))
        if found:
            confirm(f"Give up {plural(len(found), 'dead letter')}? What they hold is not delivered.", yes=yes)
        days, result = rt.settings.retention.dedupe_days, clean(reason, 200)
        closed = discard_and_prune.discard(found, rt.now(), result=result, key_days=days)
        failures = _not_open(ids, closed)
        if as_json:
            echo_json({"discarded": closed, "failed": {str(number): why for number, why in failures.items()}})
        else:
            click.echo(f"{plural(len(closed), 'dead letter')} discarded")
            dead_letter_output.show_failures(failures)
        sys.exit(SOME_FAILED if failures else 0)


def _not_open(ids: Sequence[int], done: list[int]) -> dict[int, str]:
    """Why nothing is done with the others."""
    rest = sorted(set(ids) - set(done))
    states = {letter.id: f"it is {letter.state}" for letter in letters.by_ids(rest)}
    return {number: states.get(number, "there is no such dead letter") for number in rest}


@dlq.command()
@config_option
@json_option
@click.option("--older-than", type=AgeType(), required=True, help="Nothing happened to them for so long: 90d, 12h.")
@_DRY_RUN
@_YES
def prune(config_path: Path | None, as_json: bool, older_than: float, dry_run: bool, yes: bool) -> None:
    """Delete old letters, open ones too. What is being sent again stays."""
    with installed(config_path) as rt:
        before = rt.now() - older_than
        old = discard_and_prune.count_old(before)
        if old.count and not dry_run:
            lost = f" {old.open:,} of them are open: what they hold was never delivered." if old.open else ""
            confirm(f"Delete {plural(old.count, 'dead letter')} for ever?{lost}", yes=yes)
        gone = 0 if dry_run else _prune(rt, before, old.count)
        if as_json:
            echo_json({"old": old.count, "open": old.open, "deleted": gone, "dry_run": dry_run})
        elif dry_run:
            click.echo(f"{plural(old.count, 'dead letter')} would be deleted, {old.open:,} of them open")
        else:
            click.echo(f"{plural(gone, 'dead letter')} deleted")


def _prune(rt: Runtime, before: float, expected: int) -> int:
    days, gone = rt.settings.retention.dedupe_days, 0
    with progress(expected, "deleting") as notice:
        while now_gone := discard_and_prune.prune(before, rt.now(), key_days=days):
            gone += now_gone
            notice(now_gone)
    return gone


def _wish(rt: Runtime, filters: dict[str, Any], states: tuple[str, ...] = ("open",)) -> search.DeadLetterFilter:
    since, texts = (
        filters["since"],
        {name: text and clean(text, 500) for name, text in filters.items() if name != "since"},
    )
    return search.DeadLetterFilter(
        states=states,
        since=None if since is None else rt.now() - since,
        source=texts["source"],
        destination=texts["destination"],
        error_like=texts["error_like"],
    )
