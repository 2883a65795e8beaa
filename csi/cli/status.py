"""`csi status`, `csi top`, `csi health` and `csi slo`: what the installation does, and whether that is enough."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

import csi.status.slo
import csi.web.health
from csi import api_models, logs, net, runtime
from csi.cli.command import DurationType, config_and_json_options, installed, opened, sidecar_url
from csi.cli.output import ago, echo_json, echo_lines, echo_table, plain, plural, safe, stamp, styled, table
from csi.config import loader
from csi.errors import UNHEALTHY, ConfigError, CsiError, NetError
from csi.pipeline import quota_schedule
from csi.status import destinations, facts, overview, sidecar, worker_problems

if TYPE_CHECKING:
    from csi.config.settings import Settings
    from csi.status.overview import Overview, SourceStatus
    from csi.status.problems import Problem
    from csi.status.slo import LatencyPercentiles, Success
    from csi.status.verdict import StatusVerdict


COLORS = {"ok": "green", "degraded": "yellow", "down": "red"}
SOURCE_HEAD = ("SOURCE", "WATCHES", "PAUSED", "FAILING", "LAST POLL", "LAST NEW", "NEXT", "")


@click.command()
@config_and_json_options
def status(config_path: Path | None, as_json: bool) -> None:
    """Show a one-page status: problems, worker, destinations, events, backlog with reasons, dead letters, API units.

    Always exit code 0; `csi health` and `csi doctor` end with an exit code that tells whether something is wrong.
    """
    with installed(config_path) as rt:
        found = overview.overview(rt)
    if as_json:
        echo_json(api_models.StatusJson.of_overview(found))
    else:
        first, *rest = lines(found)
        echo_lines([styled(first, COLORS.get(found.verdict.status)), *rest])


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
    for pace in found.host_paces:
        yield f"host      {pace.host}: {pace.sentence}"
    yield ""
    yield from table(SOURCE_HEAD, [source_row(one, found.now) for one in found.sources])
    for host in found.hosts:
        yield f"{plain(host.host)}: {host.kind}: {safe(host.reason)}"
    yield ""
    yield "waiting" if found.backlog else "nothing is waiting"
    for entry in found.backlog:
        yield f"  {plain(entry.words(found.now))}"


def problem_lines(verdict: StatusVerdict) -> Iterator[str]:
    if number := len(verdict.attention):
        yield f"{plural(number, 'problem')} {'needs' if number == 1 else 'need'} attention."
    for one in verdict.attention:
        yield from _problem(one)
    if verdict.consequences:
        yield f"From this follows: {', '.join(dict.fromkeys(one.id for one in verdict.consequences))}."
    if verdict.notices:
        yield f"{plural(len(verdict.notices), 'notice')}:"
    for one in verdict.notices:
        yield from _problem(one)


def _problem(one: Problem) -> Iterator[str]:
    yield f"  {safe(one.what_and_why)}; {plain(one.effect)}"
    since = None if one.since is None else f"since {stamp(one.since)}"
    if since or one.affected:
        yield f"    {'; '.join(text for text in (since, one.affected) if text)}"
    yield f"    → {plain(one.remedy)}"
    yield f"    {one.where_to_read}"


def source_row(one: SourceStatus, now: float) -> list[str]:
    unknown = one.states.get("unknown", 0)
    counts = [f"{one.active:,}", f"{one.paused:,}", "?" if unknown else f"{one.failing:,}"]
    next_in = "–" if one.next_poll_at is None or not one.is_enabled else ago(one.next_poll_at - now)
    times = [_age(one.last_success_at, now), _age(one.last_new_at, now), next_in]
    words = [f"{one.states[state]:,} {state}" for state in ("unknown", "new", "quiet") if one.states.get(state)]
    return [one.name, *counts, *times, ", ".join(words) if one.is_enabled else "switched off"]


def worker_words(found: Overview) -> str:
    worker = found.worker
    if worker.problem or worker.heartbeat is None:
        return f"{worker.problem}; {worker_problems.worker_remedy(worker)}".replace("`", "")
    age = max(found.now - worker.heartbeat.beat_at, 0.0)
    return f"running for {ago(found.now - worker.heartbeat.started_at)}, last heartbeat {age:.0f} s ago"


def delivery_words(found: Overview) -> str:
    if not found.delivery_is_on:
        return "switched off (features.delivery)"
    return "; ".join(
        f"{plain(one.name)}: {destinations.STATE_TEXTS[one.state]}{f' ({safe(one.cause)})' if one.cause else ''}"
        for one in found.destinations
    )


def flow_words(one: Success) -> str:
    return f"{one.seen:,} seen, {one.delivered:,} delivered, {one.dead:,} dead, {one.waiting:,} waiting"


def _age(moment: float | None, now: float) -> str:
    return "never" if moment is None else f"{ago(now - moment)} ago"


ASK_SECONDS = 4.0


@click.command()
@config_and_json_options
@click.option("--ready", is_flag=True, help="Check readiness (/readyz) instead of liveness (/livez).")
@click.option("--http", "over_http", is_flag=True, help="Ask the sidecar instead of the database.")
def health(config_path: Path | None, as_json: bool, ready: bool, over_http: bool) -> None:
    """Check liveness, or readiness with --ready: exit code 0 or 1, nothing else.

    The check reads the database, as the sidecar does, and works where only the worker runs. With --http the sidecar
    itself has to answer. A configuration file that is not valid is a note: the worker runs with the one from before.
    """
    try:
        report = _ask_sidecar(config_path, ready) if over_http else _ask_rows(config_path, ready)
    except CsiError as error:
        report = csi.web.health.HealthReport(False, {"status": "unknown", "reasons": [logs.redact(str(error))]})
    if as_json:
        reasons = report.body.get("reasons", [])
        problems = report.body.get("problems", [])
        found = {"ok": report.is_good, "status": report.body.get("status"), "reasons": reasons, "problems": problems}
        click.echo(json.dumps(found | ({"note": report.body["note"]} if "note" in report.body else {})))
    else:
        reasons = [plain(str(reason)) for reason in report.body.get("reasons", [])]
        problems = report.body.get("problems", [])  # none where the database cannot be read, or by an older sidecar
        affected = [one["events"] for one in problems] if len(problems) == len(reasons) else [None] * len(reasons)
        texts = "; ".join(
            f"{reason} ({plural(events, 'event')})" if events else reason
            for reason, events in zip(reasons, affected, strict=True)
        )
        note = f"; {plain(report.body['note'])}" if "note" in report.body else ""
        words = f"{plain(report.body.get('status', 'unknown'))}{f': {texts}' if texts else ''}{note}"
        click.echo(words)
    sys.exit(0 if report.is_good else 1)


def _ask_rows(config_path: Path | None, ready: bool) -> csi.web.health.HealthReport:
    settings, note = _settings_or_note(config_path)
    try:
        with opened(settings) as rt:
            found = facts.gather(rt)
    except CsiError as error:
        if note is None:
            raise
        raise CsiError(f"{error}; perhaps it is elsewhere: {note}; ask the sidecar with `csi health --http`") from error
    report = csi.web.health.readiness(found) if ready else csi.web.health.liveness(found)
    return replace(report, body=report.body | {"note": note}) if note else report


def _settings_or_note(config_path: Path | None) -> tuple[Settings, str | None]:
    """The settings; with a note, only where the database is: the file is not valid."""
    try:
        return runtime.load_settings(config_path), None
    except ConfigError as error:
        first = logs.redact(str(error)).splitlines()[0]
        note = f"the configuration file is not valid, so only the stored state was checked ({first})"
        return loader.minimal_settings(config_path, os.environ), note


def _ask_sidecar(config_path: Path | None, ready: bool) -> csi.web.health.HealthReport:
    """At the address that the sidecar recorded; otherwise as configured."""
    settings, _ = _settings_or_note(config_path)
    base = sidecar_url(settings)
    with suppress(CsiError), opened(settings) as rt:
        base = sidecar.sidecar_address(rt) or base
    url = f"{base}/{'readyz' if ready else 'livez'}"
    with net.Net(limits=net.HttpLimits(total=ASK_SECONDS), allow_insecure_http=True) as client:
        answer = client.get(url)
    try:
        body = json.loads(answer.body)
        return csi.web.health.HealthReport(answer.status == 200, body if isinstance(body, dict) else {})
    except ValueError as error:
        raise NetError(f"{url} did not answer in JSON; does something else listen there?", kind="malformed") from error


_WORDS = {True: "met", False: "MISSED", None: "–"}


@click.command()
@config_and_json_options
@click.option("--since", type=DurationType(ago=True), default="24h", show_default=True, help="How far back: 1h, 7d.")
@click.option("--check", is_flag=True, help="Exit code 6 when an objective was missed.")
def slo(config_path: Path | None, as_json: bool, since: float, check: bool) -> None:
    """Show delivery success, duplicates, uptime and both latencies against their objectives.

    All figures are counted from rows, in events: events first seen in the window, attempts begun in it, and the
    worker's heartbeats. A note says where the window reaches beyond what is stored.
    """
    with installed(config_path) as rt:
        found = csi.status.slo.report(rt, since)
    if as_json:
        echo_json(api_models.SloReport.of(found))
    else:
        click.echo(f"{stamp(found.since)} to {stamp(found.until)} ({ago(found.until - found.since)})")
        click.echo("")
        rows = []
        for one in csi.status.slo.objectives(found):
            target, reached = ago(one.target), _seconds(one.value)
            if one.kind == "share":
                target, reached = f"{100 * one.target:.0f} %", "–" if one.value is None else f"{100 * one.value:.2f} %"
            rows.append([one.name, f"{'≥' if one.at_least else '<'} {target}", reached, _WORDS[one.is_met], one.detail])
        echo_table(("OBJECTIVE", "TARGET", "REACHED", "", "FROM"), rows)
        click.echo("")
        rows = []
        for tier in found.latencies:
            target = "–" if tier.target is None else ago(tier.target)
            left_out = f", {tier.old_items:,} older than their watch, left out" if tier.old_items else ""
            late = f", {tier.late:,} late and still waiting" if tier.late else ""
            events = f"{tier.events:,}{left_out}{late}"
            rows.append([f"{tier.tier}: total", target, *_cells(tier.total), _WORDS[tier.is_met], events])
            rows.append(["  occurred → seen", "", *_cells(tier.to_seen), "", ""])
            rows.append(["  seen → accepted", "", *_cells(tier.to_accepted), "", ""])
        echo_table(("LATENCY", "P95 TARGET", "P50", "P95", "P99", "", "EVENTS"), rows)
        for note in found.notes:
            click.echo(f"note: {note}")
    sys.exit(UNHEALTHY if check and found.is_met is False else 0)


def _cells(one: LatencyPercentiles) -> list[str]:
    return [_seconds(value) for value in (one.p50, one.p95, one.p99)]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} s"
