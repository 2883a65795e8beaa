"""`csi health`: healthy or not, by exit code, for container engines and scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

import csi.web.health
from csi import logs, net, runtime
from csi.cli.command import config_option, installed, json_option, sidecar_url
from csi.cli.output import plain
from csi.errors import CsiError, NetError
from csi.status import facts

ASK_SECONDS = 4.0


@click.command()
@config_option
@json_option
@click.option("--ready", is_flag=True, help="Check readiness (/readyz) instead of liveness (/livez).")
@click.option("--http", "over_http", is_flag=True, help="Ask the sidecar instead of the database.")
def health(config_path: Path | None, as_json: bool, ready: bool, over_http: bool) -> None:
    """Check liveness, or readiness with --ready: exit code 0 or 1, nothing else.

    The check reads the database, as the sidecar does, and works where only the worker runs. With --http the sidecar
    itself has to answer.
    """
    try:
        report = _ask_sidecar(config_path, ready) if over_http else _ask_rows(config_path, ready)
    except CsiError as error:
        report = csi.web.health.HealthReport(False, {"status": "unknown", "reasons": [logs.redact(str(error))]})
    if as_json:
        click.echo(json.dumps({"ok": report.is_good, **_known(report.body)}))
    else:
        click.echo(_words(report))
    sys.exit(0 if report.is_good else 1)


def _known(body: dict[str, Any]) -> dict[str, Any]:
    return {"status": body.get("status"), "reasons": body.get("reasons", [])}


def _words(report: csi.web.health.HealthReport) -> str:
    reasons = "; ".join(plain(str(reason)) for reason in report.body.get("reasons", []))
    return f"{plain(report.body.get('status', 'unknown'))}{f': {reasons}' if reasons else ''}"


def _ask_rows(config_path: Path | None, ready: bool) -> csi.web.health.HealthReport:
    with installed(config_path) as rt:
        found = facts.gather(rt)
    return csi.web.health.readiness(found) if ready else csi.web.health.liveness(found)


def _ask_sidecar(config_path: Path | None, ready: bool) -> csi.web.health.HealthReport:
    url = f"{sidecar_url(runtime.load_settings(config_path))}/{'readyz' if ready else 'livez'}"
    with net.Net(limits=net.HttpLimits(total=ASK_SECONDS), allow_insecure_http=True) as client:
        answer = client.get(url)
    try:
        body = json.loads(answer.body)
        return csi.web.health.HealthReport(answer.status == 200, body if isinstance(body, dict) else {})
    except ValueError as error:
        raise NetError(f"{url} did not answer in JSON; does something else listen there?", kind="malformed") from error
