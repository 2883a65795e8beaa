"""The webhook that AssemblyAI calls when a transcript is ready."""

import hmac
import json
import time
from collections.abc import Awaitable, Callable

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from csi.errors import StoreError
from csi.logs import log
from csi.processing.providers.assemblyai import WEBHOOK_HEADER
from csi.processing.runtime import Processing
from csi.processing.store import db, jobs

WEBHOOK_PATH = "/api/v1/processing/assemblyai"
MAX_BODY = 16 * 1024
LOG_INTERVAL_SECONDS = 10.0


def webhook(rt: Processing, secret: str) -> Callable[[Request], Awaitable[Response]]:
    """The request only makes the job due: the worker polls the provider, and nothing in the body is believed."""
    logged_at: dict[str, float] = {}

    def refuse(reason: str, status: int) -> Response:
        """Log each reason at most once in ten seconds: a client that repeats bad requests must not fill the disk."""
        now = time.monotonic()
        if now - logged_at.get(reason, -LOG_INTERVAL_SECONDS) >= LOG_INTERVAL_SECONDS:
            logged_at[reason] = now
            log.warning("webhook refused", status=status, reason=reason)
        return JSONResponse({"ok": False, "error": reason}, status)

    def wake_job(name: str) -> bool:
        """False when no job, open or completed, has this provider id."""
        with db.reading(), db.writing():
            return jobs.wake_provider_job(name, rt.now())

    async def receive(request: Request) -> Response:
        given = request.headers.getlist(WEBHOOK_HEADER)
        if len(given) != 1 or not hmac.compare_digest(given[0].encode("utf-8", "replace"), secret.encode()):
            return refuse("bad_credentials", 401)
        name = await _read_job_name(request)
        if name is None:
            return refuse("invalid_body", 400)
        try:
            known = await to_thread.run_sync(wake_job, name)
        except StoreError:
            return refuse("storage_failed", 503)
        return JSONResponse({"ok": True}) if known else refuse("unknown_job", 404)

    return receive


async def _read_job_name(request: Request) -> str | None:
    """None for a body that is too long, incomplete, or names no job."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return None
        data = json.loads(bytes(body))
    except (ValueError, RecursionError, ClientDisconnect):
        return None
    name = data.get("transcript_id") if isinstance(data, dict) else None
    return name if isinstance(name, str) and 0 < len(name) <= 200 else None
