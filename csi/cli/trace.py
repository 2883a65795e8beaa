"""`csi trace`: the timeline of one item."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, clock, logs
from csi.cli.command import config_option, installed, json_option
from csi.cli.output import echo_json, plain
from csi.status import timeline

if TYPE_CHECKING:
    from csi.status.timeline import Timeline, TimelineEntry

ANSWER_COLUMNS = 200


@click.command()
@config_option
@json_option
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
        click.echo("\n\n".join("\n".join(_lines(one, full=full)) for one in found.timelines))
        if found.is_cut:
            click.echo("\nthere are more; pass a dedupe key or an event_id", err=True)
    else:
        searched = "searched as an event_id, a dedupe key, and an id within keys and dead letters"
        click.echo(f"nothing is known of {plain(found.query, 80)!r}; {searched}", err=True)
    sys.exit(0 if found.timelines else 1)


def _lines(item: Timeline, *, full: bool) -> Iterator[str]:
    yield f"{plain(item.key)}  {item.state}"
    facts = {"title": item.title, "url": item.url, "event": item.event_id, "watch": item.watch}
    for name, value in facts.items():
        if value:
            yield f"  {name:<6}{plain(value, 160)}"
    if not item.deliveries and item.reason:
        yield f"  why   {_safe(item.reason)}"
    for one in item.deliveries:
        yield f"  to    {plain(one.destination)}: {one.state}; {_safe(one.reason)}"
    yield ""
    for step in item.steps:
        yield from _step_lines(step, full=full)


def _step_lines(step: TimelineEntry, *, full: bool) -> Iterator[str]:
    yield f"  {clock.iso_precise(step.at)}  {step.what:<10}{_safe(step.text)}"
    answer = step.details.get("answer")
    if answer:
        yield f"{'':36}{plain(logs.redact(answer), None if full else ANSWER_COLUMNS)}"


def _safe(text: str) -> str:
    return plain(logs.redact(text))
