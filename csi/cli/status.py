"""`csi status`: how it stands, on one page."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from csi.cli.config import config_option, json_option
from csi.cli.output import echo_json, iso, plural
from csi.cli.session import installed
from csi.cli.terminal import ago, plain, table
from csi.flow import overview as pages
from csi.flow import pace
from csi.flow.overview import Overview, SourceState
from csi.flow.slo import Success
from csi.flow.standing import Standing
from csi.flow.waiting import Waiting, words
from csi.logs import redact


@click.command()
@config_option
@json_option
def status(config_path: Path | None, as_json: bool) -> None:
    """Say how it stands: worker, sources, what flowed, what waits and why, dead letters, API units.

    Always exit code 0; for a verdict there are `csi health` and `csi doctor`.
    """
    with installed(config_path) as rt:
        found = pages.overview(rt)
    if as_json:
        echo_json(as_dict(found))
        return
    for line in lines(found):
        click.echo(line)


def lines(found: Overview) -> Iterator[str]:
    yield f"csi {found.version}  {plain(found.instance)}"
    yield f"worker    {worker_words(found)}"
    yield f"delivery  {delivery_words(found)}"
    yield f"last hour {flow_words(found.hour)}"
    yield f"last day  {flow_words(found.day)}"
    letters = plural(found.dead_letters, "open dead letter")
    yield f"letters   {letters}{'; csi dlq list --group-by error' if found.dead_letters else ''}"
    if found.quota is not None:
        yield f"quota     {plain(pace.sentence(found.quota))}"
    yield ""
    yield from table(SOURCE_HEAD, [source_row(one, found.now) for one in found.sources])
    for trouble in found.troubles:
        yield f"{plain(trouble.host)}: {trouble.kind}: {plain(redact(trouble.reason))}"
    yield ""
    yield "waiting" if found.waiting else "nothing waits"
    for one in found.waiting:
        yield f"  {plain(words(one, found.now))}"


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
    said = f" ({plain(redact(reason))})" if reason and one.gate != "open" else ""
    return f"{plain(one.name)} {one.gate}{said}"


def flow_words(one: Success) -> str:
    return f"{one.seen:,} seen, {one.delivered:,} delivered, {one.dead:,} dead, {one.waiting:,} waiting"


def _age(moment: float | None, now: float) -> str:
    return "never" if moment is None else f"{ago(now - moment)} ago"


def as_dict(found: Overview) -> dict[str, Any]:
    beat = found.beat
    return {
        "at": iso(found.now),
        "version": found.version,
        "instance_id": found.instance,
        "worker": {
            "alive": found.worker_trouble is None,
            "trouble": found.worker_trouble,
            "started_at": iso(beat.started_at) if beat else None,
            "heartbeat_age_seconds": round(found.now - beat.beat_at, 1) if beat else None,
        },
        "sources": [_source_dict(one) for one in found.sources],
        "hosts": [
            {
                "host": one.host,
                "kind": one.kind,
                "since": iso(one.since),
                "until": iso(one.until),
                "reason": redact(one.reason),
            }
            for one in found.troubles
        ],
        "last_hour": _flow_dict(found.hour),
        "last_day": _flow_dict(found.day),
        "delivery": {
            "enabled": found.delivery_is_on,
            "destinations": [_standing_dict(one) for one in found.destinations],
        },
        "waiting": [waiting_dict(one) for one in found.waiting],
        "dead_letters": found.dead_letters,
        "quota": _quota_dict(found.quota),
    }


def _source_dict(one: SourceState) -> dict[str, Any]:
    times = ("last_success_at", "last_new_at", "next_poll_at")
    found = asdict(one) | {name: iso(getattr(one, name)) for name in times}
    return {"source": found.pop("name"), "enabled": found.pop("is_enabled"), **found}


def _flow_dict(one: Success) -> dict[str, int]:
    return {"seen": one.seen, "delivered": one.delivered, "dead": one.dead, "waiting": one.waiting}


def _standing_dict(one: Standing) -> dict[str, Any]:
    return {
        "destination": one.name,
        "gate": one.gate,
        "reason": redact(one.endpoint.held or one.endpoint.reason or "") or None,
        "pending": one.pending,
        "in_flight": one.in_flight,
        "dead_letters": one.dead,
        "last_success_at": iso(one.endpoint.last_success_at),
    }


def waiting_dict(one: Waiting) -> dict[str, Any]:
    return asdict(one) | {"since": iso(one.since), "until": iso(one.until)}


def _quota_dict(found: pace.Forecast | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"day": found.day, "limit": found.limit, "used": found.used, "left": found.left, "low": found.is_low}
