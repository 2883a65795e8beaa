"""The ASGI app of the receiver: `POST /api/v1/signals/ingest` verifies, stores and answers. It processes nothing."""

import hashlib
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi import clock
from csi.ingester.signature import InvalidSignature, verify
from csi.logs import log
from csi.receiver.batch import EventVerdict, read_batch, status_of
from csi.receiver.request import AuthHeaders, RequestBody, RequestError, check_bearer, check_length, read_auth_headers
from csi.receiver.settings import ReceiverSettings
from csi.receiver.store import DeliveryLedger, SignalStore, VerifiedRequest

INGEST_PATH = "/api/v1/signals/ingest"
_LOG_INTERVAL_SECONDS = 10
_REASONS = {404: "not_found", 405: "method_not_allowed"}
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_ERRORS: dict[EventVerdict, str] = {"invalid": "invalid_schema", "duplicate": "duplicate_event"}


class ReceiverService:
    """The state of one running receiver, and what it does with a body once it has one."""

    def __init__(self, settings: ReceiverSettings, now: Callable[[], float]) -> None:
        self.settings = settings
        self.now = now
        self.store = SignalStore(
            settings.db_path,
            busy_timeout=settings.busy_timeout_seconds,
            # A timestamp may be this far ahead when it arrives, and this far behind when it is replayed.
            remember=2 * settings.tolerance_seconds + 60,
            retention_days=settings.retention_days,
        )
        self.ledger = DeliveryLedger(settings.ledger_path) if settings.ledger_path else None
        self._in_flight = 0
        self._logged_at: dict[str, float] = {}

    def accept(self, auth: AuthHeaders, body: bytes) -> Response:
        """Verify and store one request; runs in a thread. The response exists only after the commit."""
        now = self.now()
        result = verify(
            self.settings.secrets,
            signature=auth.signature,
            timestamp=auth.timestamp,
            request_id=auth.request_id,
            body=body,
            now=now,
            tolerance=self.settings.tolerance_seconds,
        )
        if isinstance(result, InvalidSignature):
            raise RequestError(401, result.reason)
        batch = read_batch(body, self.settings.allowed_instances)
        request = VerifiedRequest(auth.request_id, hashlib.sha256(body).hexdigest(), now)
        verdicts = self.store.accept(batch, request)
        if self.ledger:
            self.ledger.write(batch, request, verdicts)
        log.info(
            "batch received",
            batch_id=batch.batch_id,
            request_id=request.request_id,
            instance_id=batch.instance_id,
            accepted=verdicts.count("accepted"),
            duplicate=verdicts.count("duplicate"),
            invalid=verdicts.count("invalid"),
        )
        return batch_response(verdicts)

    def check_enabled(self) -> None:
        if not self.settings.enabled:
            raise RequestError(503, "ingest_disabled", retry_after=60)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """One of the `max_in_flight` slots for requests. RequestError 503 when all are taken."""
        if self._in_flight >= self.settings.max_in_flight:
            raise RequestError(503, "ua_overloaded", retry_after=5)
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def log_refusal(self, error: RequestError) -> None:
        """Log each reason at most once in ten seconds: a client that repeats bad requests must not fill the disk."""
        now = self.now()
        if abs(now - self._logged_at.get(error.reason, 0)) >= _LOG_INTERVAL_SECONDS:
            self._logged_at[error.reason] = now
            cause = getattr(error.__cause__, "sqlite_errorname", None)
            log.warning("request refused", status=error.status, reason=error.reason, cause=cause)

    def close(self) -> None:
        self.store.close()
        if self.ledger:
            self.ledger.close()


def create_app(
    settings: ReceiverSettings, *, now: Callable[[], float] = clock.now, extra_routes: Sequence[Route] = ()
) -> Starlette:
    """The receiver as an ASGI app. Its database is opened here, so a StoreError comes before any request.

    `extra_routes` are served by the same process, such as processing's dashboard.
    """
    service = ReceiverService(settings, now)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    app = Starlette(
        routes=[
            Route(INGEST_PATH, ingest, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/stats", stats),
            *extra_routes,
        ],
        exception_handlers={HTTPException: _http_error, RequestError: _request_error, Exception: _internal_error},
        lifespan=lifespan,
    )
    # Starlette would build the redirect from the Host header, and no sender follows one.
    app.router.redirect_slashes = False
    app.state.receiver = service
    return app


async def ingest(request: Request) -> Response:
    """The cheapest checks come first: without the bearer token a request gets no slot and its body is not read."""
    service: ReceiverService = request.app.state.receiver
    settings = service.settings
    body = RequestBody(request, cap=settings.max_body_bytes, deadline=settings.body_timeout_seconds)
    try:
        service.check_enabled()
        check_length(request.headers, settings.max_body_bytes)
        auth = read_auth_headers(request.headers)
        check_bearer(auth.authorization, settings.bearer_tokens)
        with service.slot():
            return await to_thread.run_sync(service.accept, auth, await body.read())
    except RequestError as error:
        service.log_refusal(error)
        await body.discard()
        return error_response(error)
    except Exception as error:  # noqa: BLE001 - the edge: the sender gets a 500 and retries
        return await _internal_error(request, error)


async def healthz(request: Request) -> Response:
    return json_response(200, {"ok": True})


async def readyz(request: Request) -> Response:
    """200 when a batch that is sent now would be stored."""
    service: ReceiverService = request.app.state.receiver
    service.check_enabled()
    await to_thread.run_sync(service.store.counts)
    return json_response(200, {"ok": True})


async def stats(request: Request) -> Response:
    """Three counters, for clients with the token of the sender: a proxy may forward this path from outside."""
    service: ReceiverService = request.app.state.receiver
    given = request.headers.getlist("authorization")
    try:
        check_bearer(given[0] if len(given) == 1 else "", service.settings.bearer_tokens)
    except RequestError:
        raise RequestError(404, "not_found") from None
    return json_response(200, {**await to_thread.run_sync(service.store.counts)})


async def _request_error(request: Request, error: Exception) -> Response:
    return error_response(cast("RequestError", error))


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    return json_response(status, {"ok": False, "error": _REASONS.get(status, "refused")}, headers)


async def _internal_error(request: Request, error: Exception) -> Response:
    """Log where it happened. The exception's message may contain a sender's data and is not logged."""
    where = "".join(traceback.format_tb(error.__traceback__)[-8:])
    log.error("request failed", error=type(error).__name__, where=where)
    return error_response(RequestError(500, "internal_error"))


# Responses (PRD §8.1): small JSON with one-word reasons, never a part of the input


def json_response(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(body, status, headers={**_HEADERS, **(headers or {})})


def batch_response(verdicts: list[EventVerdict]) -> JSONResponse:
    """How many events were accepted, and which were not, by index."""
    errors = [
        {"index": index, "error": _ERRORS[verdict]} for index, verdict in enumerate(verdicts) if verdict != "accepted"
    ]
    body = {"ok": not errors, "accepted": len(verdicts) - len(errors), "rejected": len(errors), "errors": errors}
    status = status_of(verdicts)
    return json_response(status, body | ({"error": "duplicate_batch"} if status == 409 else {}))


def error_response(error: RequestError) -> JSONResponse:
    body: dict[str, Any] = {"ok": False, "error": error.reason}
    if error.retry_after is not None:
        body["retry_after_seconds"] = error.retry_after
        return json_response(error.status, body, {"Retry-After": str(error.retry_after)})
    return json_response(error.status, body, {"WWW-Authenticate": "Bearer"} if error.status == 401 else {})
