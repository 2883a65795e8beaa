"""The rows of the audit log, newest first. Reads only."""

from dataclasses import dataclass

from csi.store.db import columns, fetch_all


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
    outcome: str | None = None
    """`done` or `failed`, where the status alone does not say it."""
    result: str | None = None
    """What the operator read."""


def page(limit: int, before: int | None = None, *, via: str | None = None) -> list[AuditRecord]:
    """Newest first; `before` is the id of the last row of the previous page. `via`: only what was done there."""
    where, values = ("AND via = ?", [via]) if via else ("", [])
    sql = f"SELECT {columns(AuditRecord)} FROM audit WHERE id < ? {where} ORDER BY id DESC LIMIT ?"
    return fetch_all(AuditRecord, sql, before or 2**62, *values, limit)
