"""`csi slo`: the objectives of PRD §6, and what was reached."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import csi.status.slo
from csi import api_models
from csi.cli.command import DurationType, config_option, installed, json_option
from csi.cli.output import ago, echo_json, stamp, table
from csi.errors import UNHEALTHY

if TYPE_CHECKING:
    from csi.status.slo import LatencyPercentiles, Objective, TierLatency, WindowReport

_WORDS = {True: "met", False: "MISSED", None: "–"}


@click.command()
@config_option
@json_option
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
        click.echo("\n".join(_lines(found)))
    sys.exit(UNHEALTHY if check and found.is_met is False else 0)


def _lines(found: WindowReport) -> Iterator[str]:
    yield f"{stamp(found.since)} to {stamp(found.until)} ({ago(found.until - found.since)})"
    yield ""
    yield from table(
        ("OBJECTIVE", "TARGET", "REACHED", "", "FROM"), [_row(one) for one in csi.status.slo.objectives(found)]
    )
    yield ""
    head = ("LATENCY", "P95 TARGET", "P50", "P95", "P99", "", "EVENTS")
    yield from table(head, [row for tier in found.latencies for row in _latency_rows(tier)])
    for note in found.notes:
        yield f"note: {note}"


def _row(one: Objective) -> list[str]:
    bound = "≥" if one.at_least else "<"
    target = f"{100 * one.target:.0f} %" if one.kind == "share" else ago(one.target)
    reached = _percent(one.value) if one.kind == "share" else _seconds(one.value)
    return [one.name, f"{bound} {target}", reached, _WORDS[one.is_met], one.detail]


def _latency_rows(tier: TierLatency) -> Iterator[list[str]]:
    target = "–" if tier.target is None else ago(tier.target)
    left_out = f", {tier.old_items:,} older than their watch, left out" if tier.old_items else ""
    late = f", {tier.late:,} late and still waiting" if tier.late else ""
    events = f"{tier.events:,}{left_out}{late}"
    yield [f"{tier.tier}: total", target, *_cells(tier.total), _WORDS[tier.is_met], events]
    yield ["  occurred → seen", "", *_cells(tier.to_seen), "", ""]
    yield ["  seen → accepted", "", *_cells(tier.to_accepted), "", ""]


def _cells(one: LatencyPercentiles) -> list[str]:
    return [_seconds(value) for value in (one.p50, one.p95, one.p99)]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} s"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"
