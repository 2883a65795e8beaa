"""The daily runs, and their marks, each set once a day: limits reached, policies applied, alerts, digests."""

import json
from datetime import UTC, datetime
from typing import Any, Literal

from csi.processing.collection_models import RunEventDocument
from csi.processing.store.db import changed, dump, fetch, number, one, run

Mark = Literal["quota", "policy", "alert", "digest"]


def find(run_id: str) -> RunEventDocument | None:
    row = one("SELECT doc FROM runs WHERE run_id = ?", run_id)
    return RunEventDocument.model_validate(json.loads(row[0])) if row else None


def put(doc: RunEventDocument) -> None:
    sql = """INSERT INTO runs (run_id, status, doc) VALUES (?, ?, ?)
             ON CONFLICT (run_id) DO UPDATE SET status = excluded.status, doc = excluded.doc"""
    run(sql, doc.run_id, doc.status, dump(doc.shape()))


def page(limit: int) -> list[RunEventDocument]:
    rows = fetch("SELECT doc FROM runs ORDER BY run_id DESC LIMIT ?", limit)
    return [RunEventDocument.model_validate(json.loads(row[0])) for row in rows]


def unfinished(before: str) -> list[str]:
    sql = "SELECT run_id FROM runs WHERE run_id < ? AND status IN ('planned', 'running', 'paused') ORDER BY run_id"
    return [row[0] for row in fetch(sql, before)]


def mark(run_id: str, kind: Mark, name: str, now: float) -> bool:
    """True when the mark is new in this run."""
    sql = "INSERT INTO run_marks (run_id, kind, name, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return changed(sql, run_id, kind, name, now) == 1


def marks(run_id: str, kind: Mark) -> list[str]:
    return [
        row[0] for row in fetch("SELECT name FROM run_marks WHERE run_id = ? AND kind = ? ORDER BY 1", run_id, kind)
    ]


def marked_at(run_id: str, kind: Mark, name: str) -> float | None:
    row = one("SELECT at FROM run_marks WHERE run_id = ? AND kind = ? AND name = ?", run_id, kind, name)
    return float(row[0]) if row else None


def mark_digest(day: str, name: str, end: float) -> None:
    """The digest of this name was written up to `end`."""
    sql = """INSERT INTO run_marks (run_id, kind, name, at) VALUES (?, 'digest', ?, ?)
             ON CONFLICT (run_id, kind, name) DO UPDATE SET at = excluded.at"""
    run(sql, day, name, end)


def digest_end(name: str) -> float | None:
    """Up to when the digest of this name was written last. Version 1.0.0 wrote one of each whole day."""
    row = one("SELECT MAX(at) FROM run_marks WHERE kind = 'digest' AND name = ?", name)
    if row and row[0] is not None:
        return float(row[0])
    row = one("SELECT MAX(run_id) FROM run_marks WHERE kind = 'digest' AND name = 'written'")
    return day_start(row[0]) + 86_400 if row and row[0] is not None else None


def first_day_start() -> float | None:
    row = one("SELECT MIN(run_id) FROM runs")
    return day_start(row[0]) if row and row[0] is not None else None


def day_start(run_id: str) -> float:
    return datetime.fromisoformat(run_id).replace(tzinfo=UTC).timestamp()


def audit_totals(start: float, end: float) -> dict[str, Any]:
    """API calls, errors by category and the work of each agent, counted from the audit log."""
    where = "at >= ? AND at < ?"
    errors = f"SELECT COALESCE(error_code, 'other'), count(*) FROM audit_logs WHERE {where} AND outcome = 'failure'"
    agents = f"""SELECT agent, count(*), SUM(CASE outcome WHEN 'failure' THEN 1 ELSE 0 END), AVG(duration_ms)
                 FROM audit_logs WHERE {where} GROUP BY agent"""
    api_calls = f"SELECT count(*) FROM audit_logs WHERE {where} AND event_type = 'api_call'"
    return {
        "api_calls": number(api_calls, start, end),
        "errors": {name: int(count) for name, count in fetch(f"{errors} GROUP BY 1", start, end)},
        "agents": {
            name: {"actions_taken": int(total), "errors": int(failed), "avg_response_time_ms": round(time or 0.0, 3)}
            for name, total, failed, time in fetch(agents, start, end)
        },
    }


def average_seconds(start: float, end: float) -> float:
    sql = """SELECT AVG(completed_at - discovered_at) FROM videos
             WHERE status = 'summarized' AND completed_at >= ? AND completed_at < ?"""
    return float(fetch(sql, start, end)[0][0] or 0.0)
