"""`csi status`: how it stands, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.cli.installation import installed
from csi.cli.options import config_option, json_option
from csi.cli.output import echo_json, plural
from csi.cli.terminal import ago, plain, table
from csi.pipeline import quota_schedule
from csi.status import backlog, overview

if TYPE_CHECKING:
    from csi.status.destinations import Standing
    from csi.status.overview import Overview, SourceState
    from csi.status.slo import Success


@click.command()
@config_option
@json_option
def status(config_path: Path | None, as_json: bool) -> None:
    """Say how it stands: worker, sources, what flowed, what waits and why, dead letters, API units.

    Always exit code 0; for a verdict there are `csi health` and `csi doctor`.
    """
    with installed(config_path) as rt:
        found = overview.overview(rt)
    if as_json:
        echo_json(api_models.StatusJson.of_overview(found))
        return
    for line in lines(found):
        click.echo(line)


def lines(found: Overview) -> Iterator[str]:
    yield f"csi {found.version}  {plain(found.instance)}"
    yield f"worker    {worker_words(found)}"
    if found.clock_hold is not None:
        yield f"clock     {found.clock_hold}"
    yield f"delivery  {delivery_words(found)}"
    yield f"last hour {flow_words(found.hour)}"
    yield f"last day  {flow_words(found.day)}"
    letters = plural(found.dead_letters, "open dead letter")
    yield f"letters   {letters}{'; csi dlq list --group-by error' if found.dead_letters else ''}"
    if found.quota is not None:
        yield f"quota     {plain(quota_schedule.sentence(found.quota))}"
    yield ""
    yield from table(SOURCE_HEAD, [source_row(one, found.now) for one in found.sources])
    for trouble in found.troubles:
        yield f"{plain(trouble.host)}: {trouble.kind}: {plain(logs.redact(trouble.reason))}"
    yield ""
    yield "waiting" if found.waiting else "nothing waits"
    for one in found.waiting:
        yield f"  {plain(backlog.words(one, found.now))}"


GATES = {"open": "works", "held": "paused by command", "paused": "asked for a pause", "away": "away", "probe": "away"}
SOURCE_HEAD = ("SOURCE", "WATCHES", "PAUSED", "FAILING", "LAST READ", "LAST NEW", "NEXT", "")


def source_row(one: SourceState, now: float) -> list[str]:
    return [
        one.name,
        f"{one.active:,}",
        f"{one.paused:,}",
        f"{one.failing:,}",
        _age(one.last_success_at, now),
        _age(one.last_new_at, now),
        "–" if one.next_poll_at is None or not one.is_enabled else ago(one.next_poll_at - now),
        "" if one.is_enabled else "switched off",
    ]


def worker_words(found: Overview) -> str:
    if found.worker_trouble or found.beat is None:
        return f"{found.worker_trouble}; start it: csi run"
    age = max(found.now - found.beat.beat_at, 0.0)
    return f"runs since {ago(found.now - found.beat.started_at)}, last sign of life {age:.0f} s ago"


def delivery_words(found: Overview) -> str:
    if not found.delivery_is_on:
        return "switched off (features.delivery)"
    return "; ".join(_standing_words(one) for one in found.destinations)


def _standing_words(one: Standing) -> str:
    reason = one.endpoint.held if one.gate == "held" else one.endpoint.reason
    said = f" ({plain(logs.redact(reason))})" if reason and one.gate != "open" else ""
    return f"{plain(one.name)}: {GATES[one.gate]}{said}"


def flow_words(one: Success) -> str:
    return f"{one.seen:,} seen, {one.delivered:,} delivered, {one.dead:,} dead, {one.waiting:,} waiting"


def _age(moment: float | None, now: float) -> str:
    return "never" if moment is None else f"{ago(now - moment)} ago"
