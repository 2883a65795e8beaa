"""The audit log: written with what it tells about, never changed, deleted only when its time is over."""

import json
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.logs import redact
from csi.processing.documents import AuditLogDocument
from csi.processing.sensitive_actions import is_sensitive
from csi.processing.store.db import changed, dump, fetch, new_id, one, run

RETENTION_DAYS = 365
_SHORT = 2_000


@dataclass(frozen=True)
class Scope:
    """What an entry belongs to: the event's whole way has one correlation id, and each entry its parent."""

    agent: str
    correlation_id: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    retention_days: int = RETENTION_DAYS


def write(
    scope: Scope,
    action: str,
    outcome: str,
    now: float,
    *,
    event_type: str = "agent_action",
    **fields: Any,
) -> str:
    """One entry; returns its id. Every text goes through the redactor: no secret is ever stored."""
    correlation = _safe(scope.correlation_id)
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
        parent_log_id=last_of(correlation) if correlation else None,
        sensitive_data=is_sensitive(action),
        retention_period_days=scope.retention_days,
        **{name: _safe(value) for name, value in fields.items()},
    )
    _insert(doc, now)
    return doc.log_id


def _safe(value: Any) -> Any:
    if isinstance(value, list):
        return [_safe(item) for item in value]
    return redact(value)[:_SHORT] if isinstance(value, str) else value


def last_of(correlation_id: str) -> str | None:
    """The entry before this one on the same way."""
    sql = "SELECT log_id FROM audit_logs WHERE correlation_id = ? ORDER BY at DESC, seq DESC LIMIT 1"
    found = one(sql, correlation_id)
    return str(found[0]) if found else None


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
    named = {"agent": agent, "outcome": outcome, "resource_id": video, "correlation_id": correlation}
    wanted = {column: value for column, value in named.items() if value is not None}
    where = "".join(f" AND {column} = ?" for column in wanted)
    sql = f"SELECT doc FROM audit_logs WHERE at >= ?{where} ORDER BY at DESC, seq DESC LIMIT ?"
    return [AuditLogDocument.model_validate(json.loads(row[0])) for row in fetch(sql, since, *wanted.values(), limit)]


def prune(now: float, limit: int = 1000) -> int:
    """Entries whose own retention is over. The database refuses any other deletion."""
    sql = "DELETE FROM audit_logs WHERE log_id IN (SELECT log_id FROM audit_logs WHERE expires_at <= ? LIMIT ?)"
    return changed(sql, now, limit)


def _insert(doc: AuditLogDocument, now: float) -> None:
    columns = "log_id, at, event_type, agent, action, outcome, error_code, duration_ms, resource_id, correlation_id"
    sql = f"INSERT INTO audit_logs ({columns}, expires_at, doc) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
    what = (doc.log_id, now, doc.event_type, doc.agent_name, doc.action, doc.outcome, doc.error_code)
    expires = now + 86_400 * doc.retention_period_days
    run(sql, *what, doc.duration_ms, doc.resource_id, doc.correlation_id, expires, dump(doc.shape()))
