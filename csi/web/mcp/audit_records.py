"""Who calls the MCP server, and the record of each call in the audit log."""

from dataclasses import dataclass

from csi.errors import CsiError
from csi.ingester.text import clean
from csi.logs import redact
from csi.store import audit
from csi.web.auth import Role
from csi.web.shared_state import Sidecar

DETAIL_CHARS = 300


@dataclass(frozen=True)
class Caller:
    """On whose behalf the server is called."""

    role: Role
    client: str | None
    may_change: bool
    refusal: str
    """Why it may not change anything, where it may not."""


async def begin(sidecar: Sidecar, caller: Caller, action: str, *, must_record: bool) -> int | None:
    """The number of the record; None where a read could not be recorded: it is answered all the same."""
    action = redact(clean(action, 200))
    try:
        return await sidecar.read(
            lambda rt: audit.begin(rt.now(), via="mcp", role=caller.role, client=caller.client, action=action)
        )
    except CsiError as error:
        if must_record:
            raise
        sidecar.warn("mcp call not recorded in the audit log", error)
        return None


async def finish(sidecar: Sidecar, number: int | None, status: int, detail: str) -> None:
    if number is None:
        return
    detail = clean(redact(detail), DETAIL_CHARS)
    try:
        await sidecar.read(lambda rt: audit.finish(number, rt.now(), status=status, detail=detail))
    except CsiError as error:
        sidecar.warn("audit record not completed", error)
