"""The audit log of the sidecar: a row before each action, completed with its result. The newest are kept."""

from csi.store.db import number, run, writing

KEPT = 10_000
"""Changes, and as many reads."""
READ = "GET "


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


def finish(
    audit_id: int, now: float, *, status: int | None, detail: str | None = None, outcome: str | None = None,
    result: str | None = None,
) -> None:  # fmt: skip
    sql = "UPDATE audit SET status = ?, detail = ?, finished_at = ?, outcome = ?, result = ? WHERE id = ?"
    with writing():
        run(sql, status, detail, now, outcome, result, audit_id)
