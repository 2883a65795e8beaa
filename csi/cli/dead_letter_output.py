"""Print dead letters: a list, groups, one in full, the result of a replay; as text or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.cli.output import echo_json, echo_table, plain, plural, stamp

if TYPE_CHECKING:
    from csi.admin.replay_by_command import ReplayResult
    from csi.dlq.dead_letters import StoredDeadLetter
    from csi.dlq.replay import RequeueResult
    from csi.dlq.search import DeadLetterGroup
    from csi.store.queries.timeline_rows import AttemptRow

SHOWN_FAILURES = 20
LOOK_FIRST = 10
WIDEST = 70

CAUSES: dict[str, str] = {
    "transient": "three attempts failed, for a reason that may pass",
    "endpoint": "the receiver or its authentication is misconfigured",
    "event": "the receiver refused this event",
    "malformed": "the item cannot be normalized",
    "crash": "handling it ended the process three times",
}


def show_list(letters: Sequence[StoredDeadLetter], total: int, *, as_json: bool) -> None:
    if as_json:
        echo_json(api_models.DeadLetterList.of(total=total, dead_letters=letters))
        return
    if letters:
        rows = [
            [
                str(letter.id),
                stamp(letter.died_at),
                letter.state,
                letter.source,
                letter.destination or "–",
                letter.cause,
                str(letter.retry_count),
                letter.event_id,
                logs.redact(letter.reason or ""),
            ]
            for letter in letters
        ]
        head = ("ID", "DIED", "STATE", "SOURCE", "TO", "CAUSE", "TRIES", "EVENT", "ERROR")
        echo_table(head, rows, WIDEST)
    more = f", the newest {len(letters):,} shown" if total > len(letters) else ""
    click.echo(f"{plural(total, 'dead letter')}{more}", err=True)


def show_groups(groups: Sequence[DeadLetterGroup], group_by: str, *, as_json: bool) -> None:
    total = sum(group.count for group in groups)
    if as_json:
        echo_json(api_models.DeadLetterGroups.of(group_by=group_by, total=total, groups=groups))
        return
    if groups:
        rows = []
        for group in groups:
            times = stamp(group.first_died_at), stamp(group.last_died_at)
            key = logs.redact(group.key) or "–"
            rows.append([f"{group.count:,}", ",".join(group.causes), *times, str(group.example), key])
        echo_table(("COUNT", "CAUSE", "FIRST", "LAST", "NEWEST ID", group_by.upper()), rows, WIDEST)
    click.echo(plural(total, "dead letter"), err=True)


def show_dead_letter(letter: StoredDeadLetter, attempts: Sequence[AttemptRow], *, as_json: bool) -> None:
    if as_json:
        echo_json(api_models.DeadLetterDetail.of(letter, attempts=attempts))
        return
    for name, value in _facts(letter):
        click.echo(f"{name:<12}{plain(logs.redact(value))}")
    if letter.kind == "event":
        click.echo(f"\nattempts    {len(attempts) or 'none: retention deleted the event'}")
    for attempt in attempts:
        took = f"{attempt.finished_at - attempt.started_at:.1f} s" if attempt.finished_at is not None else "no end"
        why = f": {attempt.reason}" if attempt.reason else ""
        click.echo(plain(logs.redact(f"  {stamp(attempt.started_at)}  {attempt.outcome} after {took}{why}")))
        if attempt.answer:
            click.echo(f"      {plain(logs.redact(attempt.answer))}")
    click.echo("\npayload")
    for line in json.dumps(letter.payload, indent=2, ensure_ascii=False).splitlines():
        click.echo(f"  {plain(line)}")


def show_plan(what: str, letters: Sequence[StoredDeadLetter], *, as_json: bool) -> None:
    """Show what a command would do."""
    if as_json:
        echo_json(api_models.DeadLetterPlan.of(chosen=len(letters), dead_letters=letters))
        return
    click.echo(f"{plural(len(letters), 'dead letter')} {what}")
    if letters:
        rows = [
            [str(letter.id), stamp(letter.died_at), letter.state, letter.event_id, logs.redact(letter.reason or "")]
            for letter in letters[:LOOK_FIRST]
        ]
        echo_table(("ID", "DIED", "STATE", "EVENT", "ERROR"), rows, WIDEST)
    if len(letters) > LOOK_FIRST:
        click.echo(f"… and {len(letters) - LOOK_FIRST:,} more")


def show_replay(
    outcomes: Sequence[RequeueResult],
    results: Sequence[ReplayResult],
    failures: dict[int, str],
    hints: Sequence[str],
    *,
    as_json: bool,
) -> None:
    if as_json:
        ended = {one.letter_id: one.result for one in results}
        echo_json(
            {
                "chosen": len(outcomes),
                "sent": sum(outcome.is_sent for outcome in outcomes),
                "failed": len(failures),
                "letters": [
                    {"id": one.letter_id, "event_id": one.event_id or None, "sent": one.is_sent, "note": one.note}
                    | ({"result": ended.get(one.letter_id)} if results else {})
                    for one in outcomes
                ],
                "notes": [logs.redact(hint) for hint in hints],
            }
        )
        return
    if not outcomes:
        click.echo("no open dead letter matches")
        return
    sent = sum(outcome.is_sent for outcome in outcomes)
    click.echo(f"{sent:,} of {plural(len(outcomes), 'dead letter')} pending again; the worker sends them")
    if results:
        click.echo(f"{sum(one.is_good for one in results):,} of {len(results):,} delivered")
    for hint in hints:
        click.echo(f"note: {plain(logs.redact(hint))}", err=True)
    show_failures(failures)


def show_failures(failures: dict[int, str]) -> None:
    for number, why in list(failures.items())[:SHOWN_FAILURES]:
        click.echo(f"failed: {number}: {plain(logs.redact(why))}", err=True)
    if len(failures) > SHOWN_FAILURES:
        reasons = "; ".join(f"{count} × {why}" for why, count in Counter(failures.values()).most_common(5))
        click.echo(f"failed: {len(failures):,} in total: {plain(logs.redact(reasons))}", err=True)


def _facts(letter: StoredDeadLetter) -> list[tuple[str, str]]:
    closed = f" at {stamp(letter.closed_at)}: {letter.result or ''}" if letter.closed_at is not None else ""
    again = f", replayed {plural(letter.rounds, 'time')}" if letter.rounds else ""
    return [
        ("dead letter", f"{letter.id} ({letter.kind})"),
        ("state", f"{letter.state}{closed}"),
        ("event", letter.event_id),
        ("source", letter.source),
        ("to", letter.destination or "–"),
        ("cause", f"{letter.cause}: {CAUSES[letter.cause]}"),
        ("error", letter.reason or ""),
        ("status", "–" if letter.status is None else str(letter.status)),
        ("tries", f"{letter.retry_count}{again}"),
        ("first seen", stamp(letter.first_seen_at)),
        ("died", stamp(letter.died_at)),
    ]
