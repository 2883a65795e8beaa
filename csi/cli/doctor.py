"""`csi doctor`: check the whole installation, with a remedy for every failure."""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.cli.command import config_and_json_options, sidecar_url
from csi.cli.output import echo_json, echo_lines, plain, plural, safe, styled
from csi.doctor import finding, run_checks
from csi.errors import UNHEALTHY

if TYPE_CHECKING:
    from csi.config.settings import Settings
    from csi.doctor.finding import Level

QUEUE_CHECK = "tasks.queue_inspection:examine"
"""By name, as the commands are: the product does not know its task queue."""

COLORS: dict[Level, str | None] = {"ok": "green", "warn": "yellow", "fail": "red", "skip": None}
SHOWN: dict[Level, str] = {"ok": "ok", "warn": "warn", "fail": "FAIL", "skip": "–"}


@click.command()
@config_and_json_options
@click.option("--offline", is_flag=True, help="Contact neither the receiver nor the sources nor the sidecar.")
def doctor(config_path: Path | None, as_json: bool, offline: bool) -> None:
    """Check the whole installation. Exit code 6 when a check fails; every failure has a remedy.

    Checks configuration, secrets, state directory, disk, SQLite, clock, database, receiver (a signed empty batch),
    API key and budget, each source (polled once, which costs one API unit for playlists), the verdict of `csi status`,
    queue and sidecar.

    It writes a row for each request to a receiver, and what the answer shows of the receiver. While no worker is alive,
    it also stores the watches of the configuration, as the worker does at its start.
    """
    logs.setup(level="CRITICAL", format="text")
    options = run_checks.CheckOptions(config_path, os.environ, examine_queue, sidecar_url, online=not offline)
    found = show(run_checks.examine(options), quiet=as_json)
    counted = Counter(one.level for one in found)
    if as_json:
        echo_json(api_models.DoctorReport.of_findings(found))
    else:
        faults = plural(counted["fail"], "fault")
        click.echo(f"{counted['ok']} good, {plural(counted['warn'], 'warning')}, {faults}")
    sys.exit(UNHEALTHY if counted["fail"] else 0)


def examine_queue(settings: Settings) -> Iterable[finding.Finding]:
    module, _, name = QUEUE_CHECK.partition(":")
    found: Iterable[finding.Finding] = getattr(importlib.import_module(module), name)(settings)
    return found


def show(findings: Iterable[finding.Finding], *, quiet: bool = False) -> list[finding.Finding]:
    """Print each result at once: a receiver that does not answer must not delay the others."""
    shown = []
    for one in findings:
        shown.append(one)
        if not quiet:
            lines = logs.redact(one.text).splitlines() or [""]
            level = styled(f"{SHOWN[one.level]:<5}", COLORS[one.level])
            click.echo(f"{level} {one.check:<9} {plain(lines[0])}")
            echo_lines(f"{'':<15} {plain(line)}" for line in lines[1:])
            if one.remedy and one.level in ("warn", "fail"):
                click.echo(f"{'':<15} → {safe(one.remedy)}")
            if one.runbook:
                click.echo(f"{'':<15} more: csi docs runbook {one.runbook}")
    return shown
