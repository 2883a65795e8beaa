"""Rows as JSON, for the admin API and for the commands' --json alike. Shapes only ever grow."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from csi import clock
from csi.admin.watches import AddWatchResult, ImportLineResult
from csi.catalog.data_api import CatalogShare
from csi.dlq.dead_letters import StoredDeadLetter
from csi.dlq.replay import RequeueResult
from csi.dlq.search import DeadLetterGroup
from csi.doctor.destination import Checkup
from csi.doctor.finding import Finding, Level
from csi.logs import redact
from csi.pipeline.quota_schedule import Forecast, sentence
from csi.status import slo
from csi.status.backlog import Waiting
from csi.status.destinations import Standing
from csi.status.overview import Overview, SourceState
from csi.status.slo import Report, Spread, Success, TierLatency
from csi.status.timeline import Story
from csi.status.upcoming import Agenda
from csi.store import audit, events
from csi.store.alerts import Noted
from csi.store.models import Event
from csi.store.queries.timeline import Request
from csi.worker.alerting import Lookout
from csi.worker.retention import Pruned


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


def letter(one: StoredDeadLetter) -> dict[str, Any]:
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


def group(one: DeadLetterGroup) -> dict[str, Any]:
    return {
        "key": redact(one.key),
        "count": one.count,
        "causes": list(one.causes),
        "first_died_at": iso(one.first_died_at),
        "last_died_at": iso(one.last_died_at),
        "example": one.example,
    }


def outcome(one: RequeueResult) -> dict[str, Any]:
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


def catalogue_share(found: CatalogShare) -> dict[str, Any]:
    return {"limit": found.limit, "used": found.used, "needed_a_day": found.needed, "short": found.is_short}


def added(one: AddWatchResult, *, dry_run: bool) -> dict[str, Any]:
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


def imported(lines: list[ImportLineResult], *, dry_run: bool) -> dict[str, Any]:
    counted = {word: sum(line.result == word for line in lines) for word in ("added", "known", "invalid")}
    return {**counted, "dry_run": dry_run, "lines": [vars(line) for line in lines]}


def act(one: audit.AuditRecord) -> dict[str, Any]:
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


def status(found: Overview) -> dict[str, Any]:
    beat = found.beat
    return {
        "at": iso(found.now),
        "version": found.version,
        "instance_id": found.instance,
        "worker": {
            "alive": found.worker_trouble is None,
            "trouble": found.worker_trouble,
            "clock_hold": found.clock_hold,
            "started_at": iso(beat.started_at) if beat else None,
            "heartbeat_age_seconds": round(found.now - beat.beat_at, 1) if beat else None,
        },
        "sources": [_source(one) for one in found.sources],
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
        "last_hour": _flow(found.hour),
        "last_day": _flow(found.day),
        "delivery": {
            "enabled": found.delivery_is_on,
            "destinations": [_gate(one) for one in found.destinations],
        },
        "waiting": [waiting(one) for one in found.waiting],
        "dead_letters": found.dead_letters,
        "quota": _units(found.quota),
    }


def _source(one: SourceState) -> dict[str, Any]:
    times = ("last_success_at", "last_new_at", "next_poll_at")
    found = asdict(one) | {name: iso(getattr(one, name)) for name in times}
    return {"source": found.pop("name"), "enabled": found.pop("is_enabled"), **found}


def _flow(one: Success) -> dict[str, int]:
    return {"seen": one.seen, "delivered": one.delivered, "dead": one.dead, "waiting": one.waiting}


def _gate(one: Standing) -> dict[str, Any]:
    return {
        "destination": one.name,
        "gate": one.gate,
        "reason": hidden(one.endpoint.held or one.endpoint.reason),
        "pending": one.pending,
        "in_flight": one.in_flight,
        "dead_letters": one.dead,
        "last_success_at": iso(one.endpoint.last_success_at),
    }


def _units(found: Forecast | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"day": found.day, "limit": found.limit, "used": found.used, "left": found.left, "low": found.is_low}


def waiting(one: Waiting) -> dict[str, Any]:
    return asdict(one) | {"since": iso(one.since), "until": iso(one.until)}


def report(found: Report) -> dict[str, Any]:
    success, repeats, attendance = found.success, found.duplicates.repeats, found.uptime.attendance
    return {
        "since": iso(found.since),
        "until": iso(found.until),
        "rows_since": iso(found.rows_since),
        "met": found.is_met,
        "delivery": {
            "target": slo.SUCCESS_TARGET,
            "value": _rounded(success.value),
            "met": success.is_met,
            **_flow(success),
        },
        "duplicates": {
            "target": slo.REPEAT_TARGET,
            "value": _rounded(found.duplicates.value),
            "met": found.duplicates.is_met,
            "sent": repeats.sent,
            "reported": repeats.reported,
            "possible": repeats.possible,
        },
        "uptime": {
            "target": slo.UPTIME_TARGET,
            "value": _rounded(found.uptime.value),
            "met": found.uptime.is_met,
            "known_since": iso(attendance.since),
            "interruptions": len(attendance.gaps),
            "down_seconds": round(attendance.down_seconds, 1),
        },
        "latency": [_tier(tier) for tier in found.latencies],
        "notes": list(found.notes),
    }


def _tier(tier: TierLatency) -> dict[str, Any]:
    return {
        "tier": tier.tier,
        "target_p95_seconds": tier.target,
        "met": tier.is_met,
        "events": tier.events,
        "old_items": tier.old_items,
        "late": tier.late,
        "occurred_to_seen": _spread(tier.to_seen),
        "seen_to_accepted": _spread(tier.to_accepted),
        "occurred_to_accepted": _spread(tier.total),
    }


def _spread(one: Spread) -> dict[str, float | None]:
    return {name: _rounded(getattr(one, name), 3) for name in ("p50", "p95", "p99")}


def _rounded(value: float | None, places: int = 6) -> float | None:
    return None if value is None else round(value, places)


def examination(found: Sequence[Finding]) -> dict[str, Any]:
    counted = Counter(one.level for one in found)
    return {
        "ok": not counted["fail"],
        "counts": {level: counted[level] for level in get_args(Level)},
        "checks": [
            {"check": one.check, "level": one.level, "text": redact(one.text), "remedy": hidden(one.remedy)}
            for one in found
        ],
    }


def pruned(found: Pruned, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "tables": found.removed,
        "total": found.total,
        "complete": found.complete,
        "open_letters_past_their_time": found.open_letters,
    }


def lookout(found: Lookout) -> dict[str, Any]:
    return {
        "services": found.services,
        "heartbeat": found.heartbeat,
        "current": [asdict(one) | {"text": redact(one.text)} for one in found.current],
        "noted": [_noted(one) for one in found.noted],
    }


def _noted(one: Noted) -> dict[str, Any]:
    return {
        "trouble": one.name,
        "subject": one.subject,
        "text": redact(one.text),
        "since": iso(one.since),
        "told_at": iso(one.told_at),
        "ended_at": iso(one.ended_at),
    }


def title(subject_json: str) -> str:
    """The title of an event's subject, or nothing."""
    found = json.loads(subject_json)
    text = found.get("title") if isinstance(found, dict) else None
    return text if isinstance(text, str) else ""
