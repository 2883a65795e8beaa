"""`csi events`: list, show and follow events. `csi trace`: the timeline of one item."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import csi.store.events
from csi import api_models, clock
from csi.admin import resend_by_command, watches
from csi.cli.command import DurationType, audited, config_and_json_options, dry_run_option, installed, yes_option
from csi.cli.output import ago, confirm, echo_json, echo_lines, echo_table, iso, plain, plural, progress, safe, stamp
from csi.errors import SOME_FAILED
from csi.ingester.text import clean
from csi.status import timeline
from csi.store.queries import destination_attempts, event_search, timeline_rows

if TYPE_CHECKING:
    from csi.status.timeline import Timeline
    from csi.store.queries.event_search import EventQuery, EventRow


F = TypeVar("F", bound=Callable[..., Any])

STATES = ("pending", "in_flight", "delivered", "dead", "quarantined")
FOLLOW_SECONDS = 0.5
AT_ONCE = 500


def _filters(command: F) -> F:
    """Which events are meant; several conditions all hold."""
    state = click.option("--state", type=click.Choice(STATES), help="In this state only.")
    source = click.option("--source", metavar="NAME", help="Of this source only.")
    tier = click.option("--tier", metavar="NAME", help="Of this tier only: urgent, standard, high_volume.")
    text = click.option("--search", "text", metavar="TEXT", help="With this in title, ids or other fields.")
    return state(source(tier(text(command))))


@click.group()
def events() -> None:
    """List, show and follow events.

    An event is one new item as the receiver gets it. `csi trace` shows the timeline of any item.
    """


@events.command("list")
@config_and_json_options
@_filters
@click.option("--since", type=DurationType(ago=True), help='First seen within this time: 1h, "1 hour ago", 2d.')
@click.option(
    "--before", type=click.IntRange(1, 2**62), metavar="ID", help="Only events before this one: the next page."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
def list_events(
    config_path: Path | None, as_json: bool, since: float | None, before: int | None, limit: int, **filters: Any
) -> None:
    """List events, the newest first."""
    with installed(config_path) as rt:
        now = rt.now()
        found = event_search.page(_query(filters, None if since is None else now - since), limit, before)
    if as_json:
        echo_json({"events": [_brief_dict(one) for one in found.events], "next_before": found.next_before})
        return
    rows = []
    for one in found.events:
        seen = f"{ago(now - one.first_seen_at)} ago"
        rows.append([str(one.id), seen, one.state, one.tier, one.source, one.event_id, one.title or one.event_id])
    echo_table(("ID", "SEEN", "STATE", "TIER", "SOURCE", "EVENT_ID", "TITLE"), rows)
    more = f"; more: --before {found.next_before}" if found.next_before else ""
    click.echo(f"{plural(len(found.events), 'event')}{more}", err=True)


@events.command()
@config_and_json_options
@click.argument("what", metavar="ID | EVENT_ID | DEDUPE_KEY")
def show(config_path: Path | None, as_json: bool, what: str) -> None:
    """Show one event: its JSON as the receiver gets it, its state per destination, and every attempt to send it."""
    with installed(config_path) as rt:
        event = event_search.find(clean(what, 600))
        if event is None:
            click.echo(f"there is no event {plain(what, 80)!r}; csi events list shows them", err=True)
            sys.exit(1)
        row, history = csi.store.events.by_ids([event.id])[0], timeline.timeline_of(rt, event.dedupe_key)
        attempts = timeline_rows.attempts_of([event.id])
        found = {
            "id": event.id,
            "state": event.state,
            "tier": event.tier,
            "first_seen_at": iso(event.first_seen_at),
            "delivered_at": iso(event.delivered_at),
            "removed_at": iso(event.removed_at),
            "destinations": api_models.TimelineJson.of(history).model_dump()["destinations"],
            "attempts": [api_models.AttemptJson.of(one).model_dump() for one in attempts],
            "event": csi.store.events.as_contract(row, row.emitted_at),
        }
    if as_json:
        echo_json(found)
    else:
        echo_lines(_event_lines(found))


@events.command()
@config_and_json_options
@click.argument("what", nargs=-1, metavar="[ID | EVENT_ID]...")
@click.option("--since", type=DurationType(ago=True), help='First seen within this time: 1h, "1 hour ago", 2d.')
@click.option("--watch", metavar="WATCH", help="Of this watch: its number, id, name or URL.")
@click.option("--source", metavar="NAME", help="Of this source.")
@click.option("--destination", metavar="NAME", help="Only to this one.  [default: each that got the event]")
@dry_run_option
@yes_option
def resend(
    config_path: Path | None,
    as_json: bool,
    what: tuple[str, ...],
    since: float | None,
    watch: str | None,
    source: str | None,
    destination: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send events again: the same event, the same event_id.

    The worker sends them in batches of their own within two seconds, or when the receiver has recovered. With
    --destination they are also sent where they never were, if its filters accept them. Figures of duplicates and
    latency do not count them. Exit code 5 when some cannot be sent.
    """
    has_filter = any(one is not None for one in (since, watch, source))
    if not what and not has_filter:
        raise click.UsageError("choose with an ID, --since, --watch or --source.")
    if what and has_filter:
        raise click.UsageError("an ID cannot be combined with --since, --watch or --source.")
    with installed(config_path) as rt:
        query = None
        if has_filter:
            watch_id = None if watch is None else watches.find_watch(rt, clean(watch, 200)).id
            begin = None if since is None else rt.now() - since
            query = event_search.EventQuery(source=source and clean(source, 200), watch_id=watch_id, since=begin)
        chosen = resend_by_command.choose(what, query)
        if len(chosen) > resend_by_command.CONFIRM_ABOVE and not dry_run:
            confirm(f"Send {plural(len(chosen), 'event')} again?", yes=yes)
        with progress(0 if dry_run else len(chosen), "queueing") as notice:
            send = partial(resend_by_command.resend, named=bool(what), dry_run=dry_run, notice=notice)
            done = (
                send(rt, chosen, destination)
                if dry_run
                else audited(rt, "csi events resend", lambda: send(rt, chosen, destination), lambda done: done.words)
            )
    if as_json:
        echo_json(api_models.ResendReport.of(done))
    else:
        click.echo(done.words)
        for one in done.results:
            if not one.is_sent:
                click.echo(
                    f"failed: {plain(one.event_id, 120)} to {one.destination or '–'}: {safe(one.note)}", err=True
                )
        for note in done.notes:
            click.echo(f"note: {safe(note)}", err=True)
    sys.exit(SOME_FAILED if done.failed else 0)


def _event_lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"event      {found['id']}  {plain(found['event']['event_id'])}"
    yield f"state      {found['state']}  ({found['tier']})"
    yield f"first seen {found['first_seen_at']}"
    yield f"delivered  {found['delivered_at'] or '–'}"
    if found["removed_at"]:
        yield f"removed    {found['removed_at']}  its video was deleted or made private"
    for leg in found["destinations"]:
        yield f"to         {plain(leg['destination'])}: {leg['state']}; {plain(leg['reason'])}"
    for one in found["attempts"]:
        status = destination_attempts.answer_words(one["outcome"], one["status"])
        partial = "; batch accepted in part" if one["batch_outcome"] == "partial" else ""
        words = f"{one['outcome']}  {status}{partial}  {plain(one['reason'] or '')}"
        yield f"attempt    {one['started_at']}  {words}".rstrip()
    yield ""
    # As ASCII: terminal escapes and direction marks in titles are printed as \u sequences.
    yield from json.dumps(found["event"], indent=2).splitlines()


@events.command()
@config_and_json_options
@_filters
@click.option(
    "-n",
    "--lines",
    "count",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    help="Events to print first.",
)
@click.option("--for", "seconds", type=DurationType(), help="End after this time.  [default: at Ctrl-C]")
def tail(config_path: Path | None, as_json: bool, count: int, seconds: float | None, **filters: Any) -> None:
    """Print the last events, then every new one. With --json one object a line."""
    with installed(config_path), suppress(KeyboardInterrupt):
        query = _query(filters, None)
        end = None if seconds is None else time.monotonic() + seconds
        newest = event_search.newest(event_search.EventQuery(), 1)
        last = newest[0].id if newest else 0
        for one in reversed(event_search.newest(query, count)):
            _print(one, as_json=as_json)
        while end is None or time.monotonic() < end:
            found = event_search.following(query, AT_ONCE, last)
            for one in found:
                _print(one, as_json=as_json)
                last = one.id
            if len(found) < AT_ONCE:
                time.sleep(FOLLOW_SECONDS)


def _print(one: EventRow, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_brief_dict(one)))
    else:
        title = plain(one.title or one.event_id, 100)
        click.echo(f"{stamp(one.first_seen_at)}  {one.tier:<11} {plain(one.event_id, 60)}  {title}")


def _query(filters: dict[str, Any], since: float | None) -> EventQuery:
    given: dict[str, Any] = {name: value and clean(value, 200) for name, value in filters.items()}
    return event_search.EventQuery(since=since, **given)


def _brief_dict(one: EventRow) -> dict[str, Any]:
    return {
        "id": one.id,
        "event_id": one.event_id,
        "source": one.source,
        "event_type": one.event_type,
        "tier": one.tier,
        "state": one.state,
        "occurred_at": one.occurred_at,
        "first_seen_at": iso(one.first_seen_at),
        "delivered_at": iso(one.delivered_at),
        "removed_at": iso(one.removed_at),
        "title": one.subject.get("title"),
        "url": one.subject.get("url"),
    }


ANSWER_COLUMNS = 200


@click.command()
@config_and_json_options
@click.option("--full", is_flag=True, help="Show answers of receivers in full.")
@click.argument("what", metavar="VIDEO_ID | EVENT_ID | DEDUPE_KEY")
def trace(config_path: Path | None, as_json: bool, full: bool, what: str) -> None:
    """Show the timeline of one item, from the first poll that saw it to its delivery, and why it was not sent.

    Exit code 1 when nothing is known of it.
    """
    with installed(config_path) as rt:
        found = timeline.trace(rt, what)
    if as_json:
        count = len(found.timelines)
        echo_json(api_models.Trace.of(query=found.query, found=count, more=found.is_cut, items=found.timelines))
    elif found.timelines:
        click.echo("\n\n".join("\n".join(timeline_lines(one, full=full)) for one in found.timelines))
        if found.is_cut:
            click.echo("\nthere are more; pass a dedupe key or an event_id", err=True)
    else:
        searched = "searched as an event_id, a dedupe key, and an id within keys and dead letters"
        click.echo(f"nothing is known of {plain(found.query, 80)!r}; {searched}", err=True)
    sys.exit(0 if found.timelines else 1)


def timeline_lines(item: Timeline, *, full: bool) -> Iterator[str]:
    yield f"{plain(item.key)}  {item.state}"
    facts = {"title": item.title, "url": item.url, "event": item.event_id, "watch": item.watch}
    yield from (f"  {name:<6}{plain(value, 160)}" for name, value in facts.items() if value)
    if not item.deliveries and item.reason:
        yield f"  why   {safe(item.reason)}"
    for one in item.deliveries:
        yield f"  to    {plain(one.destination)}: {one.state}; {safe(one.reason)}"
    yield ""
    for step in item.steps:
        yield f"  {clock.iso_precise(step.at)}  {step.what:<10}{safe(step.text)}"
        if answer := step.details.get("answer"):
            yield f"{'':36}{safe(answer, None if full else ANSWER_COLUMNS)}"
