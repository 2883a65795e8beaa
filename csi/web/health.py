"""The bodies of `/readyz` and `/livez`: facts in the shape of PRD §11.2, reasons from the verdict's problems. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.emitter.failure_cause import failure_cause
from csi.errors import CsiError, StoreError
from csi.status.destinations import DestinationState, throttled_text
from csi.status.facts import SourcePlan, SystemFacts
from csi.status.problems import Problem
from csi.status.source_problems import is_on_time
from csi.status.verdict import judge, overdue
from csi.status.watch_states import is_failing, last_poll_failed
from csi.store import database_faults
from csi.store.destinations import DEFAULT, DestinationRow
from csi.store.queries.watch_survey import OrdinaryWatches
from csi.store.watches import WatchTimes


@dataclass(frozen=True)
class HealthReport:
    """The body of a health page, and whether the check passes."""

    is_good: bool
    body: dict[str, Any]


def readiness(facts: SystemFacts) -> HealthReport:
    """PRD §11.2: ready when every source with watches is polled, and every destination accepts events."""
    failing = judge(facts).failing("ready")
    storage = facts.storage
    body = {
        "status": "not_ready" if failing else "ready",
        "timestamp": clock.iso(facts.now),
        "adapters": {plan.name: _adapter(plan, facts) for plan in facts.sources},
        "delivery": _delivery(facts),
        "worker": _worker(facts),
        "database": {
            "ok": not (storage.nearly_full or storage.fault),
            "note": storage.note,
            "free_mb": storage.free_mb,
            "log_mb": storage.log_mb,
        },
        **_failing(failing),
    }
    return HealthReport(not failing, body)


def liveness(facts: SystemFacts) -> HealthReport:
    """A failing source is no reason to restart the worker; a missing heartbeat and overdue watches are."""
    failing = judge(facts).failing("live")
    body = {
        "status": "stalled" if failing else "alive",
        "timestamp": clock.iso(facts.now),
        "worker": _worker(facts),
        "overdue": overdue(facts),
        **_failing(failing),
    }
    return HealthReport(not failing, body)


CANNOT_READ = "the configuration or the database cannot be read; the log says why"


def unreadable(error: CsiError) -> str:
    """Why nothing can be shown, with the remedy. Not the error's own text: it may name paths and hosts, and the pages
    that show this are open."""
    cause = database_faults.identify(error) if isinstance(error, StoreError) else database_faults.UNUSABLE
    return CANNOT_READ if cause is database_faults.UNUSABLE else f"{cause.text}: {cause.remedy}"


def unknown(status: str, reason: str, now: float) -> HealthReport:
    """The database or the configuration cannot be read."""
    body: dict[str, Any] = {"status": status, "timestamp": clock.iso(now)}
    if status == "not_ready":
        body |= {"adapters": {}, "delivery": {"ua_reachable": False, "last_success": None}}
    return HealthReport(False, body | {"database": {"ok": False}, "reasons": [reason], "problems": []})


def _failing(problems: Sequence[Problem]) -> dict[str, Any]:
    """The problems that fail the check, without their remedies, which may name batches: these pages are open."""
    return {
        "reasons": [one.what_and_why for one in problems],
        "problems": [
            {
                "id": one.id,
                "subject": one.subject,
                "severity": one.severity,
                "what": one.what,
                "cause": one.cause,
                "since": _iso(one.since),
                "effect": one.effect,
                "events": one.events,
                "page": one.kind.page,
                "runbook": f"/docs/runbook#{one.runbook}",
            }
            for one in problems
        ],
    }


def _adapter(plan: SourcePlan, facts: SystemFacts) -> dict[str, Any]:
    watches, ordinary = facts.watches_of(plan.name), facts.ordinary_of(plan.name)
    read: list[WatchTimes | OrdinaryWatches] = [*watches, *([ordinary] if ordinary else [])]
    on_time = sum(is_on_time(watch, plan.idle_interval, facts.now) for watch in watches)
    on_time += ordinary.number if ordinary else 0
    return {
        "polling": facts.polling and facts.worker.is_alive and on_time > 0,
        "last_poll": _latest([one.last_poll_at for one in read]),
        "last_success": _latest([one.last_success_at for one in read]),
        "watches": max(plan.watches, facts.number_of_watches(plan.name)),
        "on_time": on_time,
        "failing": sum(is_failing(watch, facts.now) for watch in watches),
        "last_poll_failed": sum(last_poll_failed(watch) for watch in watches),
    }


def _delivery(facts: SystemFacts) -> dict[str, Any]:
    """The destination `default` as PRD §11.2 shows it, further ones by name."""
    others = {
        one.name: {
            "reachable": one.is_reachable,
            "last_success": _iso(one.row.last_success_at),
            "state": one.state,
            "breaker": one.row.circuit,
        }
        for one in facts.destinations
        if one.name != DEFAULT
    }
    found = [one for one in facts.destinations if one.name == DEFAULT]
    default = found[0] if found else DestinationState(DEFAULT, "accepting", DestinationRow(DEFAULT))
    row = default.row
    is_reachable = default.is_reachable if facts.delivery_is_on else None
    body = {
        "ua_reachable": is_reachable,
        "last_success": _iso(row.last_success_at),
        "last_failure": _iso(row.last_failure_at),
        "note": _note(default) if facts.delivery_is_on else None,
        "enabled": facts.delivery_is_on,
        "state": default.state,
        "breaker": row.circuit,
        "paused_until": _iso(row.throttled_until if default.state == "throttled" else None),
        "canonical_json": default.form or "ascii",
        "held": [one.name for one in facts.destinations if one.row.paused_reason is not None],
    }
    return body | ({"destinations": others} if others else {})


def _note(default: DestinationState) -> str | None:
    """What is worth knowing of a receiver that does not count as away."""
    row = default.row
    if row.circuit != "closed":
        return None
    if default.state == "untested":
        return "not contacted yet"
    cause = failure_cause(row.last_error).words
    if default.state == "throttled":
        return throttled_text(cause)
    if (row.last_failure_at or 0) > max(row.last_success_at or 0, row.answered_at or 0):
        return f"the last attempt failed: {cause}; it is retried"
    return None


def _worker(facts: SystemFacts) -> dict[str, Any]:
    age = facts.worker.age
    return {"heartbeat_age_seconds": None if age is None else round(age, 1)}


def _latest(times: Sequence[float | None]) -> str | None:
    return _iso(max((moment for moment in times if moment is not None), default=None))


def _iso(moment: float | None) -> str | None:
    return None if moment is None else clock.iso(moment)
