"""`csi dlq`: search, replay, discard and delete dead letters."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from csi import api_models, logs
from csi.admin import replay_by_command
from csi.cli.command import DurationType, audited, config_and_json_options, dry_run_option, installed, yes_option
from csi.cli.output import confirm, echo_json, echo_lines, echo_table, is_terminal, plain, plural, progress, safe, stamp
from csi.dlq import dead_letters, discard_and_prune, search
from csi.emitter.failure_cause import without_code
from csi.errors import SOME_FAILED
from csi.ingester.text import clean
from csi.store.queries import timeline_rows

if TYPE_CHECKING:
    from csi.runtime import Runtime


F = TypeVar("F", bound=Callable[..., Any])

STATES = ("open", "replaying", "replayed", "discarded")
_NUMBER = click.IntRange(1, 2**63 - 1)
SHOWN_FAILURES = 20
LOOK_FIRST = 10
WIDEST = 70

CAUSES: dict[str, str] = {
    "transient": "three attempts failed, for a reason that may pass",
    "destination": "the receiver or its authentication is misconfigured",
    "event": "the receiver refused this event",
    "malformed": "the item cannot be normalized",
    "crash": "handling it ended the process three times",
}


def _filters(command: F) -> F:
    """Options that select dead letters; all given conditions must hold."""
    since = click.option("--since", type=DurationType(ago=True), help='Died within this time: 1h, "1 hour ago", 2d.')
    source = click.option("--source", help="Only from this source.")
    to = click.option("--destination", help="Only for this destination.")
    like = click.option("--error-like", metavar="TEXT", help="Only with this text in the error, in any case.")
    return since(source(to(like(command))))


@click.group()
def dlq() -> None:
    """Search, replay, discard and delete dead letters.

    A dead letter is an event that could not be delivered, or an item that could not become an event. Auto-redrive
    sends events again that died because the receiver failed; all others wait for a command.
    """


@dlq.command("list")
@config_and_json_options
@_filters
@click.option("--state", type=click.Choice(["all", *STATES]), default="open", show_default=True)
@click.option("--group-by", type=click.Choice(["error", "cause", "source", "destination"]), help="Count by this.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
def list_dead_letters(
    config_path: Path | None, as_json: bool, state: str, group_by: str | None, limit: int, **filters: Any
) -> None:
    """List dead letters, the newest first, or count them by group."""
    with installed(config_path) as rt:
        chosen = _filter(rt, filters, states=STATES if state == "all" else (state,))
        if group_by:
            groups = search.groups(chosen, cast(search.GroupBy, group_by))
            total = sum(group.count for group in groups)
            if as_json:
                echo_json(api_models.DeadLetterGroups.of(group_by=group_by, total=total, groups=groups))
            else:
                if groups:
                    rows = []
                    for group in groups:
                        times = stamp(group.first_died_at), stamp(group.last_died_at)
                        key = logs.redact(group.key) or "–"
                        rows.append([f"{group.count:,}", ",".join(group.causes), *times, str(group.example), key])
                    echo_table(("COUNT", "CAUSE", "FIRST", "LAST", "NEWEST ID", group_by.upper()), rows, WIDEST)
                click.echo(plural(total, "dead letter"), err=True)
            return
        letters, total = search.newest(chosen, limit), search.count(chosen)
        if as_json:
            echo_json(api_models.DeadLetterList.of(total=total, dead_letters=letters))
            return
        if letters:
            rows = []
            for one in letters:
                what = [str(one.id), stamp(one.died_at), one.state, one.source, one.destination or "–"]
                why = [one.cause, str(one.retry_count), one.event_id, logs.redact(one.reason or "")]
                rows.append([*what, *why])
            echo_table(("ID", "DIED", "STATE", "SOURCE", "TO", "CAUSE", "TRIES", "EVENT", "ERROR"), rows, WIDEST)
        more = f", the newest {len(letters):,} shown" if total > len(letters) else ""
        click.echo(f"{plural(total, 'dead letter')}{more}", err=True)


@dlq.command()
@config_and_json_options
@click.argument("letter_id", type=_NUMBER, metavar="ID")
def show(config_path: Path | None, as_json: bool, letter_id: int) -> None:
    """Show one dead letter: its cause, every attempt with its response, and its payload."""
    with installed(config_path):
        letter = dead_letters.find(letter_id)
        if letter is None:
            click.echo(f"there is no dead letter {letter_id}", err=True)
            sys.exit(1)
        attempts = timeline_rows.attempts_for(letter.event_id, letter.destination) if letter.kind == "event" else []
        if as_json:
            echo_json(api_models.DeadLetterDetail.of(letter, attempts=attempts))
            return
        closed = f" at {stamp(letter.closed_at)}: {letter.result or ''}" if letter.closed_at is not None else ""
        again = f", replayed {plural(letter.rounds, 'time')}" if letter.rounds else ""
        facts = {
            "dead letter": f"{letter.id} ({letter.kind})",
            "state": f"{letter.state}{closed}",
            "event": letter.event_id,
            "source": letter.source,
            "to": letter.destination or "–",
            "cause": f"{letter.cause}: {CAUSES[letter.cause]}",
            "error": letter.reason or "",
            "status": "–" if letter.status is None else str(letter.status),
            "tries": f"{letter.retry_count}{again}",
            "first seen": stamp(letter.first_seen_at),
            "died": stamp(letter.died_at),
        }
        echo_lines(f"{name:<12}{safe(value)}" for name, value in facts.items())
        if letter.kind == "event":
            click.echo(f"\nattempts    {len(attempts) or 'none: retention deleted the event'}")
        for attempt in attempts:
            took = f"{attempt.finished_at - attempt.started_at:.1f} s" if attempt.finished_at is not None else "no end"
            why = f": {without_code(attempt.reason)}" if attempt.reason else ""
            click.echo(safe(f"  {stamp(attempt.started_at)}  {attempt.outcome} after {took}{why}"))
            if attempt.answer:
                click.echo(f"      {safe(attempt.answer)}")
        click.echo("\npayload")
        echo_lines(f"  {plain(line)}" for line in json.dumps(letter.payload, indent=2, ensure_ascii=False).splitlines())


@dlq.command()
@config_and_json_options
@click.option("--id", "ids", type=_NUMBER, multiple=True, help="A dead letter's number; repeatable.")
@_filters
@click.option("--all", "everything", is_flag=True, help="Every open dead letter.")
@click.option(
    "--wait", "seconds", type=DurationType(), is_flag=False, flag_value="2m", help="Wait for the result.  [2m]"
)
@dry_run_option
@yes_option
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

    The events become pending; the worker sends them within two seconds, or when the receiver has recovered. With
    --wait the command returns when each was delivered or died again. Exit code 5 when some failed.
    """
    has_filter = any(value is not None for value in filters.values())
    if not (ids or everything or has_filter):
        raise click.UsageError("choose with --id, --since, --error-like, --source, --destination or --all.")
    if ids and (everything or has_filter):
        raise click.UsageError("--id cannot be combined with --all or a filter.")
    with installed(config_path) as rt:
        chosen = list(dict.fromkeys(ids)) or search.ids(_filter(rt, filters))
        if dry_run:
            sys.exit(_show_plan("would be replayed", chosen, as_json=as_json))
        if len(chosen) > 1 and is_terminal():
            confirm(f"Replay {plural(len(chosen), 'dead letter')}?", yes=yes)
        sys.exit(_replay(rt, chosen, seconds, as_json=as_json))


def _show_plan(what: str, chosen: list[int], *, as_json: bool) -> int:
    """Show what would happen. Returns exit code 5, as the command itself would, when some are not open."""
    found = [letter for letter in dead_letters.by_ids(chosen) if letter.state == "open"]
    if as_json:
        echo_json(api_models.DeadLetterPlan.of(chosen=len(found), dead_letters=found))
    else:
        click.echo(f"{plural(len(found), 'dead letter')} {what}")
        if found:
            rows = [
                [str(one.id), stamp(one.died_at), one.state, one.event_id, logs.redact(one.reason or "")]
                for one in found[:LOOK_FIRST]
            ]
            echo_table(("ID", "DIED", "STATE", "EVENT", "ERROR"), rows, WIDEST)
        if len(found) > LOOK_FIRST:
            click.echo(f"… and {len(found) - LOOK_FIRST:,} more")
    failures = _not_open(chosen, [letter.id for letter in found])
    _show_failures(failures)
    return SOME_FAILED if failures else 0


def _replay(rt: Runtime, chosen: list[int], seconds: float | None, *, as_json: bool) -> int:
    with progress(len(chosen), "replaying") as notice:
        outcomes = audited(
            rt,
            "csi dlq replay",
            lambda: replay_by_command.replay_all(rt, chosen, notice),
            lambda outcomes: f"{sum(one.is_sent for one in outcomes)} of {len(outcomes)} pending again",
        )
    sent = [outcome.letter_id for outcome in outcomes if outcome.is_sent]
    hints = replay_by_command.obstacles(rt, outcomes)
    results = []
    if sent and seconds is not None:
        with progress(len(sent), "waiting for the receiver") as notice:
            results = replay_by_command.wait_for_results(sent, seconds, notice)
    failures = {one.letter_id: one.note for one in outcomes if not one.is_sent}
    failures |= {one.letter_id: one.result or "not finished yet" for one in results if not one.is_good}
    if as_json:
        ended = {one.letter_id: one.result for one in results}
        letters = [
            {"id": one.letter_id, "event_id": one.event_id or None, "sent": one.is_sent, "note": one.note}
            | ({"result": ended.get(one.letter_id)} if results else {})
            for one in outcomes
        ]
        counts = {"chosen": len(outcomes), "sent": len(sent), "failed": len(failures)}
        echo_json({**counts, "letters": letters, "notes": [logs.redact(hint) for hint in hints]})
    elif not outcomes:
        click.echo("no open dead letter matches")
    else:
        click.echo(f"{len(sent):,} of {plural(len(outcomes), 'dead letter')} pending again; the worker sends them")
        if results:
            click.echo(f"{sum(one.is_good for one in results):,} of {len(results):,} delivered")
        for hint in hints:
            click.echo(f"note: {safe(hint)}", err=True)
        _show_failures(failures)
    return SOME_FAILED if failures else 0


@dlq.command()
@config_and_json_options
@click.option("--id", "ids", type=_NUMBER, multiple=True, required=True, help="A dead letter's number; repeatable.")
@click.option("--reason", default="by command", show_default=True, help="Stored with the dead letter.")
@dry_run_option
@yes_option
def discard(
    config_path: Path | None, as_json: bool, ids: tuple[int, ...], reason: str, dry_run: bool, yes: bool
) -> None:
    """Close dead letters without delivery. They can be viewed until retention deletes them."""
    with installed(config_path) as rt:
        found = dead_letters.by_ids(ids)
        if dry_run:
            sys.exit(_show_plan("would be discarded", list(dict.fromkeys(ids)), as_json=as_json))
        if found:
            confirm(f"Discard {plural(len(found), 'dead letter')}? The content is not delivered.", yes=yes)
        days, result = rt.settings.retention.dedupe_days, clean(reason, 200)
        closed = audited(
            rt,
            "csi dlq discard",
            lambda: discard_and_prune.discard(found, rt.now(), result=result, key_days=days),
            lambda closed: f"{plural(len(closed), 'dead letter')} discarded: {result}",
        )
        failures = _not_open(ids, closed)
        if as_json:
            echo_json({"discarded": closed, "failed": {str(number): why for number, why in failures.items()}})
        else:
            click.echo(f"{plural(len(closed), 'dead letter')} discarded")
            _show_failures(failures)
        sys.exit(SOME_FAILED if failures else 0)


def _not_open(ids: Sequence[int], done: list[int]) -> dict[int, str]:
    """For each id that is not in `done`: the reason."""
    rest = sorted(set(ids) - set(done))
    states = {letter.id: f"it is {letter.state}" for letter in dead_letters.by_ids(rest)}
    return {number: states.get(number, "this dead letter does not exist") for number in rest}


def _delete_old(rt: Runtime, before: float, notice: Callable[[int], None]) -> int:
    gone, days = 0, rt.settings.retention.dedupe_days
    while deleted := discard_and_prune.prune(before, rt.now(), key_days=days):
        gone += deleted
        notice(deleted)
    return gone


@dlq.command()
@config_and_json_options
@click.option("--older-than", type=DurationType(), required=True, help="Unchanged for this long: 90d, 12h.")
@dry_run_option
@yes_option
def prune(config_path: Path | None, as_json: bool, older_than: float, dry_run: bool, yes: bool) -> None:
    """Delete old dead letters, open ones too. Those being replayed are kept."""
    with installed(config_path) as rt:
        before, gone = rt.now() - older_than, 0
        old = discard_and_prune.count_old(before)
        if old.count and not dry_run:
            lost = f" {old.open:,} of them are open: their content was never delivered." if old.open else ""
            confirm(f"Delete {plural(old.count, 'dead letter')} permanently?{lost}", yes=yes)
        if not dry_run:
            with progress(old.count, "deleting") as notice:
                gone = audited(
                    rt,
                    "csi dlq prune",
                    lambda: _delete_old(rt, before, notice),
                    lambda gone: f"{plural(gone, 'dead letter')} deleted",
                )
        if as_json:
            echo_json({"old": old.count, "open": old.open, "deleted": gone, "dry_run": dry_run})
        elif dry_run:
            click.echo(f"{plural(old.count, 'dead letter')} would be deleted, {old.open:,} of them open")
        else:
            click.echo(f"{plural(gone, 'dead letter')} deleted")


def _filter(rt: Runtime, filters: dict[str, Any], states: tuple[str, ...] = ("open",)) -> search.DeadLetterFilter:
    since = filters.pop("since")
    texts: dict[str, Any] = {name: text and clean(text, 500) for name, text in filters.items()}
    return search.DeadLetterFilter(states=states, since=None if since is None else rt.now() - since, **texts)


def _show_failures(failures: dict[int, str]) -> None:
    for number, why in list(failures.items())[:SHOWN_FAILURES]:
        click.echo(f"failed: {number}: {safe(why)}", err=True)
    if len(failures) > SHOWN_FAILURES:
        reasons = "; ".join(f"{count} × {why}" for why, count in Counter(failures.values()).most_common(5))
        click.echo(f"failed: {len(failures):,} in total: {safe(reasons)}", err=True)
