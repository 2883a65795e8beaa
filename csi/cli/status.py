"""`csi status`: a one-page status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.cli.command import config_option, installed, json_option
from csi.cli.output import ago, echo_json, plain, plural, table
from csi.pipeline import quota_schedule
from csi.status import destinations, overview

if TYPE_CHECKING:
    from csi.status.overview import Overview, SourceStatus
    from csi.status.slo import Success
    from csi.status.verdict import StatusVerdict

SOURCE_HEAD = ("SOURCE", "WATCHES", "PAUSED", "FAILING", "LAST POLL", "LAST NEW", "NEXT", "")


@click.command()
@config_option
@json_option
def status(config_path: Path | None, as_json: bool) -> None:
    """Show a one-page status: problems, worker, destinations, events, backlog with reasons, dead letters, API units.

    Always exit code 0; `csi health` and `csi doctor` end with an exit code that tells whether something is wrong.
    """
    with installed(config_path) as rt:
        found = overview.overview(rt)
    if as_json:
        echo_json(api_models.StatusJson.of_overview(found))
        return
    for line in lines(found):
        click.echo(line)


def lines(found: Overview) -> Iterator[str]:
    yield f"csi {found.version}  {plain(found.instance)}  {found.verdict.status}"
    yield from problem_lines(found.verdict)
    yield f"worker    {worker_words(found)}"
    if found.clock_hold is not None:
        yield f"clock     {found.clock_hold}"
    yield f"delivery  {delivery_words(found)}"
    yield f"last hour {flow_words(found.hour.success)}"
    yield f"last day  {flow_words(found.day.success)}"
    letters = found.open_dead_letters
    yield f"dead letters   {letters:,} open{'; csi dlq list --group-by error' if letters else ''}"
    if found.quota is not None:
        yield f"quota     {plain(quota_schedule.sentence(found.quota))}"
    yield ""
    yield from table(SOURCE_HEAD, [source_row(one, found.now) for one in found.sources])
    for host in found.hosts:
        yield f"{plain(host.host)}: {host.kind}: {plain(logs.redact(host.reason))}"
    yield ""
    yield "waiting" if found.backlog else "nothing is waiting"
    for entry in found.backlog:
        yield f"  {plain(entry.words(found.now))}"


def problem_lines(verdict: StatusVerdict) -> Iterator[str]:
    if verdict.problems:
        number = len(verdict.problems)
        yield f"{plural(number, 'problem')} {'needs' if number == 1 else 'need'} attention."
    for one in verdict.problems:
        yield f"  {plain(logs.redact(one.what))}; {one.effect}"
        yield f"    → {plain(one.remedy)}"


def source_row(one: SourceStatus, now: float) -> list[str]:
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
    worker = found.worker
    if worker.problem or worker.heartbeat is None:
        return f"{worker.problem}; start it: csi run"
    age = max(found.now - worker.heartbeat.beat_at, 0.0)
    return f"runs since {ago(found.now - worker.heartbeat.started_at)}, last heartbeat {age:.0f} s ago"


def delivery_words(found: Overview) -> str:
    if not found.delivery_is_on:
        return "switched off (features.delivery)"
    causes = [f" ({plain(logs.redact(one.cause))})" if one.cause else "" for one in found.destinations]
    states = [f"{plain(one.name)}: {destinations.STATE_TEXTS[one.state]}" for one in found.destinations]
    return "; ".join(f"{state}{cause}" for state, cause in zip(states, causes, strict=True))


def flow_words(one: Success) -> str:
    return f"{one.seen:,} seen, {one.delivered:,} delivered, {one.dead:,} dead, {one.waiting:,} waiting"


def _age(moment: float | None, now: float) -> str:
    return "never" if moment is None else f"{ago(now - moment)} ago"
