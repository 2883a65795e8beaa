"""Rows as JSON, for the admin API and for the commands' --json alike. Shapes only ever grow."""

import json
from typing import Any

from csi import clock
from csi.dlq.replay import Outcome
from csi.dlq.search import Group
from csi.dlq.store import Letter
from csi.flow.agenda import Agenda
from csi.flow.checkup import Checkup
from csi.flow.glance import Goal, Latency, Overview, Window
from csi.flow.pace import Forecast, sentence
from csi.flow.sources import Added, Imported
from csi.flow.standing import Standing
from csi.flow.story import Story
from csi.logs import redact
from csi.store import audit, events
from csi.store.models import Event
from csi.store.stories import Request


def iso(moment: float | None) -> str | None:
    return None if moment is None else clock.iso(moment)


def precise(moment: float) -> str:
    """With milliseconds, where it matters which came first."""
    return f"{clock.iso(moment)[:-1]}.{int(moment % 1 * 1000):03d}Z"


def hidden(text: str | None) -> str | None:
    """Without secrets; None for nothing."""
    return redact(text) if text else None


def event(row: Event) -> dict[str, Any]:
    return events.as_contract(row, row.emitted_at) | {
        "id": row.id,
        "state": row.state,
        "tier": row.tier,
        "first_seen_at": clock.iso(row.first_seen_at),
        "delivered_at": iso(row.delivered_at),
    }


def story(told: Story) -> dict[str, Any]:
    return {
        "dedupe_key": told.key,
        "event_id": told.event_id,
        "state": told.state,
        "reason": redact(told.reason),
        "source": told.source,
        "event_type": told.event_type,
        "title": told.title,
        "url": told.url,
        "watch": told.watch,
        "destinations": [
            {"destination": leg.destination, "state": leg.state, "reason": redact(leg.reason)} for leg in told.legs
        ],
        "steps": [
            {"at": precise(step.at), "what": step.what, "text": redact(step.text), "details": _clean(step.details)}
            for step in told.steps
        ],
    }


def _clean(details: dict[str, Any]) -> dict[str, Any]:
    return {name: redact(value) if isinstance(value, str) else value for name, value in details.items()}


def letter(one: Letter) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "event_id": one.event_id,
        "source": one.source,
        "destination": one.destination or None,
        "cause": one.cause,
        "error": redact(one.reason or ""),
        "status": one.status,
        "retry_count": one.retry_count,
        "rounds": one.rounds,
        "state": one.state,
        "first_seen_at": iso(one.first_seen_at),
        "died_at": iso(one.died_at),
        "closed_at": iso(one.closed_at),
        "result": one.result,
    }


def attempt(one: Request) -> dict[str, Any]:
    return {
        "started_at": iso(one.started_at),
        "finished_at": iso(one.finished_at),
        "attempt": one.attempt,
        "request_id": one.request_id,
        "form": one.form,
        "outcome": one.outcome,
        "status": one.status,
        "reason": hidden(one.reason),
        "answer": hidden(one.answer),
    }


def group(one: Group) -> dict[str, Any]:
    return {
        "key": redact(one.key),
        "count": one.count,
        "causes": list(one.causes),
        "first_died_at": iso(one.first_died_at),
        "last_died_at": iso(one.last_died_at),
        "example": one.example,
    }


def outcome(one: Outcome) -> dict[str, Any]:
    return {"id": one.letter_id, "event_id": one.event_id or None, "sent": one.is_sent, "note": redact(one.note)}


def standing(one: Standing) -> dict[str, Any]:
    endpoint = one.endpoint
    return {
        "destination": one.name,
        "configured": one.is_configured,
        "gate": one.gate,
        "held": redact(endpoint.held) if endpoint.held is not None else None,
        "held_at": iso(endpoint.held_at),
        "breaker": endpoint.breaker,
        "breaker_reason": hidden(endpoint.reason),
        "opened_at": iso(endpoint.opened_at),
        "next_probe_at": iso(endpoint.next_probe_at),
        "paused_until": iso(endpoint.paused_until) if one.gate == "paused" else None,
        "canonical_json": one.form,
        "last_success_at": iso(endpoint.last_success_at),
        "last_failure_at": iso(endpoint.last_failure_at),
        "last_error": hidden(endpoint.last_error),
        "pending": one.pending,
        "in_flight": one.in_flight,
        "dead_letters": one.dead,
        "lanes": [
            {
                "lane": lane.name,
                "pending": lane.pending,
                "in_flight": lane.in_flight,
                "oldest_seen_at": iso(lane.oldest_seen_at),
                "next_due_at": iso(lane.next_due_at),
            }
            for lane in one.lanes
        ],
    }


def checkup(one: Checkup) -> dict[str, Any]:
    return {
        "ok": one.is_good,
        "destination": one.destination,
        "url": redact(one.url),
        "status": one.status,
        "seconds": round(one.seconds, 3),
        "text": redact(one.text),
        "forms": one.forms,
        "forms_text": one.forms_text,
        "clock_ahead": one.clock_ahead,
        "clock_text": one.clock_text,
    }


def forecast(found: Forecast | None) -> dict[str, Any]:
    if found is None:
        return {"enabled": False}
    return {
        "enabled": True,
        "day": found.day,
        "limit": found.limit,
        "used": found.used,
        "left": found.left,
        "buffer": found.buffer,
        "low": found.is_low,
        "ends_at": clock.iso(found.ends_at),
        "lasts_until": clock.iso(found.lasts_until),
        "units_per_hour": round(found.per_hour, 1),
        "planned_units": found.planned_units,
        "intervals": [
            {
                "seconds": one.seconds if one.seconds != float("inf") else None,
                "watches": one.watches,
                "as_wished": one.is_fast,
            }
            for one in found.groups
        ],
        "forecast": sentence(found),
        "warning": found.warning,
    }


def added(one: Added, *, dry_run: bool) -> dict[str, Any]:
    quote = one.quote
    return {
        "result": one.result,
        "dry_run": dry_run,
        "id": one.watch_id,
        "source": one.target.source,
        "ref": one.target.ref,
        "name": one.name,
        "first_poll": one.first_poll,
        "lookup_units": one.target.units,
        "interval_seconds": round(quote.seconds, 1),
        "units_per_day": {"least": quote.least_units, "most": quote.most_units},
        "remark": one.remark,
    }


def imported(lines: list[Imported], *, dry_run: bool) -> dict[str, Any]:
    counted = {word: sum(line.result == word for line in lines) for word in ("added", "known", "invalid")}
    return {**counted, "dry_run": dry_run, "lines": [vars(line) for line in lines]}


def act(one: audit.Entry) -> dict[str, Any]:
    return {
        "id": one.id,
        "at": iso(one.at),
        "via": one.via,
        "role": one.role,
        "client": one.client,
        "action": one.action,
        "detail": one.detail,
        "status": one.status,
        "finished_at": iso(one.finished_at),
    }


def agenda(found: Agenda) -> dict[str, Any]:
    return {
        "worker": {
            "beat_at": iso(found.worker.beat_at if found.worker else None),
            "started_at": iso(found.worker.started_at if found.worker else None),
            "queued": found.worker.queued if found.worker else None,
        },
        "due": found.due,
        "due_within_a_minute": found.soon,
        "being_read": found.reading,
        "inbox": {
            "waiting": found.inbox.waiting,
            "quarantined": found.inbox.quarantined,
            "oldest_seen_at": iso(found.inbox.oldest_at),
        },
        "batches": [
            {
                "batch_id": one.batch_id,
                "destination": one.destination,
                "lane": one.lane,
                "size": one.size,
                "state": one.state,
                "attempts": one.attempts,
                "next_attempt_at": iso(one.next_attempt_at),
            }
            for one in found.batches
        ],
        "unsettled": found.unsettled,
        "reads": [
            {
                "id": one.id,
                "source": one.source,
                "ref": one.ref,
                "name": one.name,
                "next_poll_at": iso(one.next_poll_at),
            }
            for one in found.reads
        ],
    }


def goal(one: Goal) -> dict[str, Any]:
    return {
        "name": one.name,
        "unit": one.kind,
        "value": None if one.value is None else round(one.value, 4),
        "target": one.target,
        "verdict": one.verdict,
        "detail": one.detail,
    }


def latency(one: Latency) -> dict[str, Any]:
    names = ("p50", "p95", "p99")
    spans = {"occurred_to_seen": one.seen, "seen_to_accepted": one.accepted, "occurred_to_accepted": one.total}
    return {
        "tier": one.tier,
        "deliveries": one.count,
        **{
            span: {name: round(value, 3) for name, value in zip(names, values, strict=True)}
            for span, values in spans.items()
        },
    }


def window(found: Window) -> dict[str, int]:
    return {"seen": sum(found.seen), "delivered": sum(found.arrived), "dead": sum(found.died)}


def overview(found: Overview) -> dict[str, Any]:
    return {
        "last_hour": window(found.hour),
        "last_day": window(found.day),
        "waiting": [
            {"what": one.what, "count": one.count, "since": iso(one.since), "why": redact(one.why)}
            for one in found.waiting
        ],
        "dead_letters": found.letters,
        "sources": [{"source": one.source, "state": one.state, "watches": one.watches} for one in found.health],
        "outages": [
            {"host": one.host, "since": iso(one.outage_since), "watches": one.outage_watches}
            for one in found.troubled
            if one.outage_since is not None
        ],
    }


def title(subject_json: str) -> str:
    """The title of an event's subject, or nothing."""
    found = json.loads(subject_json)
    text = found.get("title") if isinstance(found, dict) else None
    return text if isinstance(text, str) else ""
