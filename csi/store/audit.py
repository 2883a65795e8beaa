"""The audit log of the sidecar: a row before each action, completed with its result. The newest are kept."""

from dataclasses import dataclass

from csi.store.db import columns, fetch_all, number, run, writing

KEPT = 10_000
"""Changes, and as many reads."""
READ = "GET "


@dataclass(frozen=True)
class AuditRecord:
    """One action. `status` None: the process ended before the action did."""

    id: int
    at: float
    via: str
    role: str
    client: str | None
    action: str
    detail: str | None
    status: int | None
    finished_at: float | None


def begin(now: float, *, via: str, role: str, client: str | None, action: str) -> int:
    """Record an action before it is done. StoreError when that fails: the action must then not be done."""
    sql = "INSERT INTO audit (at, via, role, client, action) VALUES (?, ?, ?, ?, ?) RETURNING id"
    # Reads are recorded for agents only, and by the thousand: they must not push out the changes.
    same = f"action {'' if action.startswith(READ) else 'NOT '}LIKE '{READ}%'"
    old = f"SELECT id FROM audit WHERE {same} ORDER BY id DESC LIMIT 1 OFFSET ?"
    # A transaction of its own: the row remains when the action fails and is rolled back.
    with writing():
        audit_id = number(sql, now, via, role, client, action)
        run(f"DELETE FROM audit WHERE {same} AND id <= ({old})", KEPT)
    return audit_id


def finish(audit_id: int, now: float, *, status: int | None, detail: str | None = None) -> None:
    with writing():
        run("UPDATE audit SET status = ?, detail = ?, finished_at = ? WHERE id = ?", status, detail, now, audit_id)


def page(limit: int, before: int | None = None) -> list[AuditRecord]:
    """Newest first; `before` is the id of the last row of the previous page."""
    sql = f"SELECT {columns(AuditRecord)} FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"
    return fetch_all(AuditRecord, sql, before or 2**62, limit)
