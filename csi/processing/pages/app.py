"""The routes of processing's dashboard, which the receiver serves below /ui."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi import clock, web_assets
from csi.errors import StoreError
from csi.logs import log
from csi.processing.assemblyai_webhook import WEBHOOK_PATH, webhook
from csi.processing.ingester_dead_letters import IngesterClient
from csi.processing.pages.auth import is_authorized
from csi.processing.pages.dead_letters import dead_letter_facts
from csi.processing.pages.status_colors import STATUS_COLORS
from csi.processing.pipeline.maintenance import WORKER
from csi.processing.pipeline.runs import describe_run
from csi.processing.runtime import Processing
from csi.processing.store import (
    artifacts,
    audit,
    db,
    dead_jobs,
    heartbeats,
    jobs,
    paid_calls,
    received_events,
    runs,
    videos,
)

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 50
MAX_TEXT = 200_000
THREADS_PER_PAGE = 4
"""Many readers, or a slow ingester, must not use up the threads in which the receiver stores signals."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

PageFacts = Callable[[Request], dict[str, Any] | None]


@dataclass(frozen=True)
class DashboardContext:
    """What the dashboard needs. Without a password it is served to clients on this machine only."""

    rt: Processing
    password: str | None = None
    webhook_secret: str | None = None


def routes(context: DashboardContext) -> list[Route]:
    """The routes below /ui, and the webhook if it has a secret. The caller has opened and migrated the database."""
    rt = context.rt
    ingester = IngesterClient(
        rt.net, rt.settings.ingester_url, rt.secrets.ingester, rt.now, rt.settings.ingester_token_env
    )
    found = [
        Route("/ui", _page(context, "overview.html", lambda request: overview(rt))),
        Route("/ui/videos/{video_id}", _page(context, "video.html", lambda request: video_facts(rt, request))),
        Route("/ui/run", _page(context, "run.html", lambda request: run_facts(rt))),
        Route(
            "/ui/deadletters",
            _page(context, "dead_letters.html", lambda request: dead_letter_facts(rt, ingester, request)),
        ),
        Route("/ui/static/{name}", static_file),
    ]
    if context.webhook_secret:
        found.append(Route(WEBHOOK_PATH, webhook(rt, context.webhook_secret), methods=["POST"]))
    return found


def overview(rt: Processing) -> dict[str, Any]:
    return {
        "signals": received_events.recent(MAX_ROWS),
        "videos": videos.page(MAX_ROWS),
        "counts": videos.counts(),
        "unknown": received_events.unknown_pipelines(),
        "used": paid_calls.used(rt.today()),
        "budget": rt.settings.budget.daily_usd,
        "heartbeat": heartbeats.last_heartbeat(WORKER),
        "now": rt.now(),
    }


def run_facts(rt: Processing) -> dict[str, Any]:
    return {"run": describe_run(rt, rt.today()), "past": runs.page(30)}


def video_facts(rt: Processing, request: Request) -> dict[str, Any] | None:
    video = videos.find(request.path_params["video_id"])
    if video is None:
        return None
    texts = {one.kind: rt.artifacts.read(one) for one in artifacts.of_video(video.id) if "json" not in one.kind}
    return {
        "video": video,
        "steps": [(name, clock.iso(at)) for name, at in videos.steps(video.id)],
        "jobs": [(job, paid_calls.spent_on(job.id)) for job in jobs.of_video(video.id)],
        "entries": audit.search(limit=100, correlation=video.correlation_id),
        "texts": {kind: (text or "the file no longer exists")[:MAX_TEXT] for kind, text in texts.items()},
    }


def _page(context: DashboardContext, template: str, facts: PageFacts) -> Callable[[Request], Awaitable[Response]]:
    threads = CapacityLimiter(THREADS_PER_PAGE)

    def render(request: Request) -> Response:
        try:
            with db.reading():
                found = facts(request)
                shared = {"path": request.url.path, "dead": dead_jobs.open_count()}
        except StoreError as error:
            log.warning("dashboard cannot read processing's database", error=str(error))
            return _html("the database cannot be read; see the receiver's log", 503)
        if found is None:
            return _html("there is no such page", 404)
        return _html(_templates().get_template(template).render(found | shared), 200)

    async def serve(request: Request) -> Response:
        if is_authorized(request, context.password):
            return await to_thread.run_sync(render, request, limiter=threads)
        if context.password is None:
            return _html("there is no such page", 404)
        return Response("401", 401, {**_HEADERS, "WWW-Authenticate": 'Basic realm="csi"'}, media_type="text/plain")

    return serve


def _html(text: str, status: int) -> Response:
    return Response(text, status, {**_HEADERS}, media_type="text/html; charset=utf-8")


async def static_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in web_assets.shared_files():
        return _html("there is no such page", 404)
    headers = {**_HEADERS, **web_assets.CACHE_HEADERS}
    return Response(web_assets.shared_files()[name], 200, headers, media_type=web_assets.media_type(name))


@cache
def _templates() -> Environment:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.filters["when"] = lambda moment: clock.iso(moment) if moment is not None else "never"
    environment.filters["mood"] = lambda status: STATUS_COLORS.get(status, "idle")
    environment.filters["plain"] = lambda word: word.replace("_", " ")
    environment.globals["asset"] = lambda name: web_assets.versioned_url(
        "/ui/static", name, web_assets.shared_files()[name]
    )
    return environment
