"""The receiving end of `POST /api/v1/signals/ingest`: verify, store, answer. Nothing is processed here."""

import hashlib
import ipaddress
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi import clock as utc
from csi.ingester.signature import InvalidSignature, verify
from csi.logs import log
from csi.receiver import responses
from csi.receiver.batch import Batch, Verdict, read_batch
from csi.receiver.delivery_ledger import Ledger
from csi.receiver.request_body import Upload
from csi.receiver.request_checks import Claims, check_bearer, check_length, read_claims
from csi.receiver.request_error import RefusalError
from csi.receiver.responses import Answer
from csi.receiver.settings import ReceiverSettings
from csi.receiver.store import Arrival, SignalStore

INGEST_PATH = "/api/v1/signals/ingest"
_QUIET_SECONDS = 10
_WORDS = {404: "not_found", 405: "method_not_allowed"}


class Receiver:
    """The parts of one running receiver, and what it does with a body once it has one."""

    def __init__(self, settings: ReceiverSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.clock = clock
        self.store = SignalStore(
            settings.db_path,
            busy_timeout=settings.busy_timeout_seconds,
            # A timestamp may be that far ahead when it arrives, and that far behind when it is replayed.
            remember=2 * settings.tolerance_seconds + 60,
        )
        self.ledger = Ledger(settings.ledger_path) if settings.ledger_path else None
        self._in_flight = 0
        self._last_said: dict[str, float] = {}

    def take(self, claims: Claims, body: bytes) -> Answer:
        """Verify and store one request; runs in a thread. The answer exists only after the commit."""
        now = self.clock()
        self._check_signature(claims, body, now)
        batch = read_batch(body, self.settings.allowed_instances)
        arrival = Arrival(claims.request_id, hashlib.sha256(body).hexdigest(), now)
        verdicts = self.store.accept(batch, arrival)
        if self.ledger:
            self.ledger.write(batch, arrival, verdicts)
        _log_batch(batch, arrival, verdicts)
        return responses.receipt(verdicts)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """A place among the requests being handled, if there is one left."""
        if self._in_flight >= self.settings.max_in_flight:
            raise RefusalError(503, "ua_overloaded", retry_after=5)
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def log_refusal(self, refusal: RefusalError) -> None:
        """Each reason once in ten seconds: whoever knocks a thousand times must not fill the disk."""
        now = self.clock()
        if abs(now - self._last_said.get(refusal.reason, 0)) >= _QUIET_SECONDS:
            self._last_said[refusal.reason] = now
            cause = getattr(refusal.__cause__, "sqlite_errorname", None)
            log.warning("request refused", status=refusal.status, reason=refusal.reason, cause=cause)

    def close(self) -> None:
        self.store.close()
        if self.ledger:
            self.ledger.close()

    def _check_signature(self, claims: Claims, body: bytes, now: float) -> None:
        result = verify(
            self.settings.secrets,
            signature=claims.signature,
            timestamp=claims.timestamp,
            request_id=claims.request_id,
            body=body,
            now=now,
            tolerance=self.settings.tolerance_seconds,
        )
        if isinstance(result, InvalidSignature):
            raise RefusalError(401, result.reason)


def create_app(
    settings: ReceiverSettings, *, clock: Callable[[], float] = utc.now, beside: Sequence[Route] = ()
) -> Starlette:
    """The receiver as an ASGI app. Its database is opened here, so a StoreError comes before any request.

    `beside` are routes of others that live in the same process, such as the dashboard.
    """
    receiver = Receiver(settings, clock)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        receiver.close()

    app = Starlette(
        routes=[
            Route(INGEST_PATH, ingest, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/stats", stats),
            *beside,
        ],
        exception_handlers={HTTPException: _http_error, Exception: _server_error},
        lifespan=lifespan,
    )
    # A redirect would be built from the Host header, and no sender follows one.
    app.router.redirect_slashes = False
    app.state.receiver = receiver
    return app


async def ingest(request: Request) -> Response:
    receiver: Receiver = request.app.state.receiver
    settings = receiver.settings
    upload = Upload(request, cap=settings.max_body_bytes, deadline=settings.body_timeout_seconds)
    try:
        answer = await _admit(receiver, request, upload)
    except RefusalError as refusal:
        receiver.log_refusal(refusal)
        await upload.discard()
        answer = responses.refusal(refusal)
    except Exception as error:  # noqa: BLE001 - the edge: the sender gets a 500 and tries again
        answer = _internal_error(error)
    return answer.response()


async def _admit(receiver: Receiver, request: Request, upload: Upload) -> Answer:
    """Cheapest checks first; nobody without the bearer token gets a slot or has a body read."""
    settings = receiver.settings
    if not settings.enabled:
        raise RefusalError(503, "ingest_disabled", retry_after=60)
    check_length(request.headers, settings.max_body_bytes)
    claims = read_claims(request.headers)
    check_bearer(claims.authorization, settings.bearer_tokens)
    with receiver.slot():
        body = await upload.read()
        return await to_thread.run_sync(receiver.take, claims, body)


async def healthz(request: Request) -> Response:
    return Answer(200, {"ok": True}).response()


async def readyz(request: Request) -> Response:
    """200 when a batch sent now would be stored."""
    receiver: Receiver = request.app.state.receiver
    try:
        if not receiver.settings.enabled:
            raise RefusalError(503, "ingest_disabled", retry_after=60)
        await to_thread.run_sync(receiver.store.counts)
    except RefusalError as refusal:
        return responses.refusal(refusal).response()
    return Answer(200, {"ok": True}).response()


async def stats(request: Request) -> Response:
    """Three numbers, for this machine only: a request that came through a proxy is not from here."""
    if not _is_local(request):
        return responses.refusal(RefusalError(404, "not_found")).response()
    receiver: Receiver = request.app.state.receiver
    try:
        counts = await to_thread.run_sync(receiver.store.counts)
    except RefusalError as refusal:
        return responses.refusal(refusal).response()
    return Answer(200, {**counts}).response()


def _is_local(request: Request) -> bool:
    if request.client is None or "forwarded" in request.headers or "x-forwarded-for" in request.headers:
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _log_batch(batch: Batch, arrival: Arrival, verdicts: list[Verdict]) -> None:
    log.info(
        "batch received",
        batch_id=batch.batch_id,
        request_id=arrival.request_id,
        instance_id=batch.instance_id,
        accepted=verdicts.count("accepted"),
        duplicate=verdicts.count("duplicate"),
        invalid=verdicts.count("invalid"),
    )


def _internal_error(error: Exception) -> Answer:
    """Where it happened goes to the log; what it was about may be somebody's data and goes nowhere."""
    place = "".join(traceback.format_tb(error.__traceback__)[-8:])
    log.error("request failed", error=type(error).__name__, where=place)
    return responses.refusal(RefusalError(500, "internal_error"))


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    return Answer(status, {"ok": False, "error": _WORDS.get(status, "refused")}, headers).response()


async def _server_error(request: Request, error: Exception) -> Response:
    return _internal_error(error).response()
