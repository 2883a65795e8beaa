"""The audit log: a row before a change, its status after it, and one log line."""

import time
from typing import Literal

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Send

from csi.errors import CsiError
from csi.ingester.text import clean
from csi.logs import log, redact
from csi.store import audit
from csi.web.auth import Role
from csi.web.shared_state import Sidecar

DETAIL_CHARS = 300


async def run_audited(
    sidecar: Sidecar, inner: ASGIApp, request: Request, receive: Receive, send: Send,
    *, via: Literal["api", "dashboard"], role: Role, detail: str,
) -> None:  # fmt: skip
    """Executes a request that changes something, and stores its status also where it fails.

    Without its row in the audit log it is not executed.
    """
    action = redact(f"{request.method} {clean(request.scope['path'], 200)}"[:200])
    client = request.client.host if request.client else None
    number = await sidecar.read(lambda rt: audit.begin(rt.now(), via=via, role=role, client=client, action=action))
    started, status = time.monotonic(), None

    async def observed(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await inner(request.scope, receive, observed)
    finally:
        seconds = round(time.monotonic() - started, 3)
        log.info("admin action", action=action, client=client, status=status, seconds=seconds)
        shown = clean(redact(detail), DETAIL_CHARS) or None
        try:
            await sidecar.read(lambda rt: audit.finish(number, rt.now(), status=status, detail=shown))
        except CsiError as error:
            sidecar.warn("audit record not completed", error)
