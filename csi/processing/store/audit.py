"""The audit log: written in the transaction of the change it records, append-only, deleted after its retention."""

import json
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.logs import redact
from csi.processing.collection_models import AuditLogDocument
from csi.processing.store.db import changed, dump, fetch, new_id, one, run

RETENTION_DAYS = 365
_MAX_TEXT = 2_000

SPEECH = "speech of people in a video"
DERIVED = "text derived from speech of people in a video"
PEOPLE = "a person's name, or a note that a person wrote"

SENSITIVE_TEXT: dict[str, str | None] = {
    "route": None,  # published titles and ids
    "skip": None,
    "wait": None,
    "step_failed": DERIVED,
    "retry_video": None,
    "add_video": None,
    "summarise_again": None,
    "queue_transcription": None,
    "fetch": SPEECH,
    "upload": SPEECH,
    "submit": SPEECH,
    "find_submitted": None,  # a list of ids
    "look": SPEECH,
    "transcribed": SPEECH,
    "complete": SPEECH,
    "summarized": DERIVED,
    "resume": None,  # names of documents
    "provider_call": SPEECH,  # the call failed, but its text was sent, and the error may quote it
    "dead_letter": None,  # the payload contains no text of the video
    "notify": DERIVED,
    "budget_alert": None,
    "provider_pause": None,  # a status and our own words
    "provider_resume": None,
    "dlq_assign": PEOPLE,
    "dlq_note": PEOPLE,
    "dlq_resolved": PEOPLE,
    "dlq_abandoned": PEOPLE,
    "dlq_retry": None,
    "dlq_reopen": None,
    "notification_resend": None,
    "mute": PEOPLE,  # its reason
    "unmute": None,
    "release": None,
    "run_note": PEOPLE,
}
"""Every action of the audit log without its suffix (`fetch:captions`), and the sensitive text it touches, if any."""


@dataclass(frozen=True)
class AuditScope:
    """What an entry belongs to. All entries about one event share its correlation id."""

    agent: str
    correlation_id: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    retention_days: int = RETENTION_DAYS


def write(
    scope: AuditScope, action: str, outcome: str, now: float, *, event_type: str = "agent_action", **fields: Any
) -> str:
    """Write one entry and return its id. Every text passes the redactor, so no secret is stored."""
    correlation = _safe(scope.correlation_id)
    # The previous entry with this correlation id is the parent of this one.
    newest = "SELECT log_id FROM audit_logs WHERE correlation_id = ? ORDER BY at DESC, seq DESC LIMIT 1"
    parent = one(newest, correlation) if correlation else None
    doc = AuditLogDocument(
        log_id=new_id("log"),
        event_type=event_type,
        action=action,
        outcome=outcome,
        agent_name=scope.agent,
        timestamp=clock.iso(now),
        resource_type=scope.resource_type,
        resource_id=_safe(scope.resource_id),
        correlation_id=correlation,
        parent_log_id=str(parent[0]) if parent else None,
        sensitive_data=is_sensitive(action),
        retention_period_days=scope.retention_days,
        **{name: _safe(value) for name, value in fields.items()},
    )
    columns = "log_id, at, event_type, agent, action, outcome, error_code, duration_ms, resource_id, correlation_id"
    sql = f"INSERT INTO audit_logs ({columns}, expires_at, doc) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
    values = (doc.log_id, now, doc.event_type, doc.agent_name, doc.action, doc.outcome, doc.error_code)
    expires = now + 86_400 * doc.retention_period_days
    run(sql, *values, doc.duration_ms, doc.resource_id, doc.correlation_id, expires, dump(doc.shape()))
    return doc.log_id


def is_sensitive(action: str) -> bool:
    """An action that is missing in the table counts as sensitive."""
    return SENSITIVE_TEXT.get(action.partition(":")[0], SPEECH) is not None


def _safe(value: Any) -> Any:
    if isinstance(value, list):
        return [_safe(item) for item in value]
    return redact(value)[:_MAX_TEXT] if isinstance(value, str) else value


def search(
    *,
    limit: int,
    since: float = 0,
    agent: str | None = None,
    outcome: str | None = None,
    video: str | None = None,
    correlation: str | None = None,
) -> list[AuditLogDocument]:
    """Newest first."""
    columns = {"agent": agent, "outcome": outcome, "resource_id": video, "correlation_id": correlation}
    filters = {column: value for column, value in columns.items() if value is not None}
    where = "".join(f" AND {column} = ?" for column in filters)
    sql = f"SELECT doc FROM audit_logs WHERE at >= ?{where} ORDER BY at DESC, seq DESC LIMIT ?"
    return [AuditLogDocument.model_validate(json.loads(row[0])) for row in fetch(sql, since, *filters.values(), limit)]


def prune(now: float, limit: int = 1000) -> int:
    """Delete entries whose own retention is over. A trigger refuses any other deletion."""
    sql = "DELETE FROM audit_logs WHERE log_id IN (SELECT log_id FROM audit_logs WHERE expires_at <= ? LIMIT ?)"
    return changed(sql, now, limit)
