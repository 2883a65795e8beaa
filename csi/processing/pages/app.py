"""The receiver's dashboard as routes: signals, a video's way, today's run and budget, dead letters. Reading only."""

import hmac
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi import clock, web_assets
from csi.errors import StoreError
from csi.logs import log
from csi.processing.ingester_dead_letters import Sender
from csi.processing.pages.auth import may_look
from csi.processing.pages.dead_letters import both_kinds
from csi.processing.pages.status_colors import MOODS
from csi.processing.pipeline.maintenance import WORKER
from csi.processing.pipeline.runs import describe
from csi.processing.providers.assemblyai import HEADER
from csi.processing.runtime import Processing
from csi.processing.store import artifacts, audit, db, dead_jobs, heartbeats, jobs, paid_calls, runs, signals, videos

HERE = Path(__file__).parent
WEBHOOK_PATH = "/api/v1/processing/assemblyai"
MAX_WEBHOOK = 16 * 1024
QUIET_SECONDS = 10.0
SHOWN = 50
READERS = 4
"""Threads for each page: however many look, and however slow the sender is, signals are taken in beside them."""
LONGEST = 200_000

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Maker = Callable[[Request], tuple[str, dict[str, Any]] | None]


@dataclass(frozen=True)
class Pages:
    """What the pages are made from."""

    rt: Processing
    password: str | None = None
    webhook_secret: str | None = None


def routes(pages: Pages) -> list[Route]:
    """Everything below /ui, and the door that AssemblyAI knocks at. The database is opened and migrated before."""
    rt = pages.rt
    sender = Sender(rt.net, rt.settings.ingester_url, rt.secrets.ingester, rt.now, rt.settings.ingester_token_env)
    found = [
        Route("/ui", _page(pages, lambda request: ("overview.html", overview(pages.rt)))),
        Route("/ui/videos/{video_id}", _page(pages, lambda request: _video(pages.rt, request))),
        Route("/ui/run", _page(pages, lambda request: ("run.html", run_facts(pages.rt)))),
        Route(
            "/ui/deadletters",
            _page(pages, lambda request: ("dead_letters.html", both_kinds(pages.rt, sender, request))),
        ),
        Route("/ui/static/{name}", _file),
    ]
    if pages.webhook_secret:
        found.append(Route(WEBHOOK_PATH, _webhook(pages), methods=["POST"]))
    return found


def overview(rt: Processing) -> dict[str, Any]:
    return {
        "signals": signals.recent(SHOWN),
        "videos": videos.page(SHOWN),
        "counts": videos.counts(),
        "unknown": signals.unknown_pipelines(),
        "used": paid_calls.used(rt.today()),
        "budget": rt.settings.budget.daily_usd,
        "beat": heartbeats.last_beat(WORKER),
        "now": rt.now(),
    }


def run_facts(rt: Processing) -> dict[str, Any]:
    return {"run": describe(rt, rt.today()), "past": runs.page(30)}


def _video(rt: Processing, request: Request) -> tuple[str, dict[str, Any]] | None:
    video = videos.find(request.path_params["video_id"])
    if video is None:
        return None
    files = {found.kind: rt.artifacts.read(found) for found in artifacts.of_video(video.id)}
    facts = {
        "video": video,
        "steps": [(name, clock.iso(at)) for name, at in videos.steps(video.id)],
        "jobs": [(job, paid_calls.spent_on(job.id)) for job in jobs.of_video(video.id)],
        "entries": audit.search(limit=100, correlation=video.correlation_id),
        "signals": signals.of_video(video.id),
        "texts": {kind: (text or "the file is gone")[:LONGEST] for kind, text in files.items() if "json" not in kind},
    }
    return "video.html", facts


def _page(pages: Pages, make: Maker) -> Callable[[Request], Awaitable[Response]]:
    threads = CapacityLimiter(READERS)

    async def serve(request: Request) -> Response:
        if not may_look(request, pages.password):
            return _closed(pages)
        return await to_thread.run_sync(_render, make, request, limiter=threads)

    return serve


def _render(make: Maker, request: Request) -> Response:
    try:
        with db.reading():
            found = make(request)
            shared = {"path": request.url.path, "dead": dead_jobs.open_count()}
    except StoreError:
        log.warning("dashboard cannot read processing's database")
        return _answer("the database cannot be read; the log says more", 503)
    if found is None:
        return _answer("there is no such page", 404)
    name, facts = found
    return _answer(_templates().get_template(name).render(facts | shared), 200)


def _answer(text: str, status: int) -> Response:
    return Response(text, status, {**_HEADERS}, media_type="text/html; charset=utf-8")


def _closed(pages: Pages) -> Response:
    if pages.password is None:
        return _answer("there is no such page", 404)
    return Response("401", 401, {**_HEADERS, "WWW-Authenticate": 'Basic realm="csi"'}, media_type="text/plain")


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in web_assets.shared_files():
        return _answer("there is no such page", 404)
    return Response(
        web_assets.shared_files()[name],
        200,
        {**_HEADERS, **web_assets.CACHE_HEADERS},
        media_type=web_assets.media_type(name),
    )


@cache
def _asset(name: str) -> str:
    return web_assets.versioned_url("/ui/static", name, web_assets.shared_files()[name])


@cache
def _templates() -> Environment:
    made = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined)
    made.filters["when"] = lambda moment: clock.iso(moment) if moment is not None else "never"
    made.filters["mood"] = lambda word: MOODS.get(word, "idle")
    made.filters["plain"] = lambda word: word.replace("_", " ")
    made.globals["asset"] = _asset
    return made


def _webhook(pages: Pages) -> Callable[[Request], Awaitable[Response]]:
    """AssemblyAI says that a job is ready. The row is the truth: this only makes it due, and the worker looks."""
    said: dict[str, float] = {}

    def refuse(reason: str, status: int) -> Response:
        """Each reason is logged once in ten seconds: whoever knocks a thousand times must not fill the disk."""
        now = time.monotonic()
        if now - said.get(reason, -QUIET_SECONDS) >= QUIET_SECONDS:
            said[reason] = now
            log.warning("webhook refused", status=status, reason=reason)
        return JSONResponse({"ok": False, "error": reason}, status)

    async def hear(request: Request) -> Response:
        given = request.headers.getlist(HEADER)
        expected = (pages.webhook_secret or "").encode()
        if len(given) != 1 or not hmac.compare_digest(given[0].encode("utf-8", "replace"), expected):
            return refuse("bad_credentials", 401)
        name = await _job_named(request)
        if name is None:
            return refuse("invalid_body", 400)
        try:
            known = await to_thread.run_sync(_wake, pages, name)
        except StoreError:
            return refuse("storage_failed", 503)
        return JSONResponse({"ok": True}) if known else refuse("unknown_job", 404)

    return hear


def _wake(pages: Pages, name: str) -> bool:
    """False when no job of ours, open or done, has this id."""
    with db.reading(), db.writing():
        woken = jobs.wake_provider_job(name, pages.rt.now())
        return woken is not None or jobs.is_known_provider_job(name)


async def _job_named(request: Request) -> str | None:
    """None for a body that is too long, cut off, or names no job."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_WEBHOOK:
                return None
        data = json.loads(bytes(body))
    except (ValueError, RecursionError, ClientDisconnect):
        return None
    name = data.get("transcript_id") if isinstance(data, dict) else None
    return name if isinstance(name, str) and 0 < len(name) <= 200 else None
