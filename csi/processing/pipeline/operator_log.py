"""What an operator changes beside videos and dead jobs, in the audit log."""

from csi.processing.runtime import Processing
from csi.processing.store import audit

AGENT = "operator"


def log_action(rt: Processing, action: str, words: str, *, kind: str = "processing", name: str | None = None) -> None:
    """Within the transaction of the change."""
    scope = rt.audit_scope(AGENT, kind, name)
    audit.write(scope, action, "success", rt.now(), data_summary=words, user_id=rt.operator)
