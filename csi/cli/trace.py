"""`csi trace`: the whole story of one item."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, clock, logs
from csi.cli.installation import installed
from csi.cli.options import config_option, json_option
from csi.cli.output import echo_json
from csi.cli.terminal import plain
from csi.status import item_lookup

if TYPE_CHECKING:
    from csi.status.timeline import Step, Story

ANSWER_COLUMNS = 200


@click.command()
@config_option
@json_option
@click.option("--full", is_flag=True, help="Show answers whole.")
@click.argument("what", metavar="VIDEO_ID | EVENT_ID | DEDUPE_KEY")
def trace(config_path: Path | None, as_json: bool, full: bool, what: str) -> None:
    """Tell what became of one item, from the first sighting to the receipt, and why it was not sent where it was not.

    Exit code 1 when nothing is known of it.
    """
    with installed(config_path) as rt:
        found = item_lookup.trace(rt, what)
    if as_json:
        count = len(found.stories)
        echo_json(api_models.Trace.of(query=found.query, found=count, more=found.is_cut, items=found.stories))
    elif found.stories:
        click.echo("\n\n".join("\n".join(_lines(story, full=full)) for story in found.stories))
        if found.is_cut:
            click.echo("\nthere are more; ask by dedupe key or event_id", err=True)
    else:
        looked = "looked for it as an event_id, a dedupe key, and an id within keys and dead letters"
        click.echo(f"nothing is known of {plain(found.query, 80)!r}; {looked}", err=True)
    sys.exit(0 if found.stories else 1)


def _lines(story: Story, *, full: bool) -> Iterator[str]:
    yield f"{plain(story.key)}  {story.state}"
    facts = {"title": story.title, "url": story.url, "event": story.event_id, "watch": story.watch}
    for name, value in facts.items():
        if value:
            yield f"  {name:<6}{plain(value, 160)}"
    if not story.legs and story.reason:
        yield f"  why   {_safe(story.reason)}"
    for leg in story.legs:
        yield f"  to    {plain(leg.destination)}: {leg.state}; {_safe(leg.reason)}"
    yield ""
    for step in story.steps:
        yield from _step_lines(step, full=full)


def _step_lines(step: Step, *, full: bool) -> Iterator[str]:
    yield f"  {clock.iso_precise(step.at)}  {step.what:<10}{_safe(step.text)}"
    answer = step.details.get("answer")
    if answer:
        yield f"{'':36}{plain(logs.redact(answer), None if full else ANSWER_COLUMNS)}"


def _safe(text: str) -> str:
    return plain(logs.redact(text))
