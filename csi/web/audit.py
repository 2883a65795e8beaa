"""The audit log: a row before a change, its status after it, and one log line."""

import time
from dataclasses import dataclass, field
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


@dataclass
class AuditedRequest:
    """A request that changes something. Without its row in the audit log it is not executed."""

    sidecar: Sidecar
    request: Request
    number: int
    action: str
    detail: str
    client: str | None
    started: float = field(default_factory=time.monotonic)
    status: int | None = None

    @classmethod
    async def begin(
        cls, sidecar: Sidecar, request: Request, *, via: Literal["api", "dashboard"], role: Role, detail: str
    ) -> "AuditedRequest":
        action = redact(f"{request.method} {clean(request.scope['path'], 200)}"[:200])
        client = request.client.host if request.client else None
        number = await sidecar.read(lambda rt: audit.begin(rt.now(), via=via, role=role, client=client, action=action))
        return cls(sidecar, request, number, action, clean(redact(detail), DETAIL_CHARS), client)

    async def run(self, inner: ASGIApp, receive: Receive, send: Send) -> None:
        """Executes the request, and stores its status also where it fails."""

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            await send(message)

        try:
            await inner(self.request.scope, receive, observed)
        finally:
            seconds = round(time.monotonic() - self.started, 3)
            log.info("admin action", action=self.action, client=self.client, status=self.status, seconds=seconds)
            await self._finish()

    async def _finish(self) -> None:
        status, detail = self.status, self.detail or None
        try:
            await self.sidecar.read(lambda rt: audit.finish(self.number, rt.now(), status=status, detail=detail))
        except CsiError as error:
            self.sidecar.warn("audit record not completed", error)
