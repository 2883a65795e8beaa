"""The book of acts: a row before something is done and its end after it, and one line in the log."""

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
from csi.web.runtime_access import Sidecar

DETAIL_CHARS = 300


@dataclass
class Act:
    """One act of somebody who was let in. An act that cannot be written down is not done."""

    sidecar: Sidecar
    request: Request
    number: int
    action: str
    detail: str
    started: float = field(default_factory=time.monotonic)
    status: int | None = None

    @classmethod
    async def begin(
        cls, sidecar: Sidecar, request: Request, *, via: Literal["api", "dashboard"], role: Role, detail: str
    ) -> "Act":
        action = f"{request.method} {clean(request.scope['path'], 200)}"[:200]
        client = request.client.host if request.client else None
        number = await sidecar.ask(
            lambda rt: audit.begin(rt.now(), via=via, role=role, client=client, action=redact(action))
        )
        return cls(sidecar, request, number, action, clean(redact(detail), DETAIL_CHARS))

    async def witness(self, inside: ASGIApp, receive: Receive, send: Send) -> None:
        """Let it happen, and write down what came of it."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            await send(message)

        try:
            await inside(self.request.scope, receive, watched)
        finally:
            await self._end()

    async def _end(self) -> None:
        client = self.request.client.host if self.request.client else None
        seconds = round(time.monotonic() - self.started, 3)
        log.info("admin action", action=self.action, client=client, status=self.status, seconds=seconds)
        status, detail = self.status, self.detail or None
        try:
            await self.sidecar.ask(lambda rt: audit.finish(self.number, rt.now(), status=status, detail=detail))
        except CsiError as error:
            self.sidecar.say("the end of an action could not be written down", error)
