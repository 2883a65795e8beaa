"""The routes of processing's dashboard, which the receiver serves below /ui."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from csi import clock, web_assets
from csi.errors import StoreError
from csi.local_login import COOKIE, LocalLogin
from csi.logs import log, redact
from csi.processing import status
from csi.processing.assemblyai_webhook import WEBHOOK_PATH, webhook
from csi.processing.collection_models import DeadLetterJobDocument
from csi.processing.ingester_dead_letters import EventDeadLetter, IngesterClient
from csi.processing.pages import summary_feed, video_json
from csi.processing.pages.dead_job_buttons import act_on_dead_job
from csi.processing.pages.health import LIVE_PATH, METRICS_PATH, READY_PATH, Handler, health, metrics
from csi.processing.pages.password import DashboardPassword
from csi.processing.pages.reading import render_markdown, transcript_lines, with_times
from csi.processing.pages.video_list import video_list_facts
from csi.processing.pipeline.digests import make_digest, whole_day
from csi.processing.pipeline.runs import describe_run
from csi.processing.problems import judge
from csi.processing.runtime import Processing
from csi.processing.store import artifacts, audit, db, dead_jobs, jobs, paid_calls, received_events, runs, videos
from csi.server import is_local_client

LOGIN_PATH = "/ui/login"
NO_PAGES = (
    "the pages need a password: set UA_SIGNALS_DASHBOARD_PASSWORD; on this machine `csi receiver login-link` makes a "
    "link that works once"
)
TEMPLATES = Path(__file__).parent / "templates"
THUMBNAIL_HOST = "https://i.ytimg.com"
MAX_ROWS = 50
MAX_DEAD_JOBS = 200
SUMMARIES = {"summary", "summary_detailed"}
MAX_TEXT = 200_000
THREADS_PER_PAGE = 4
"""Many readers, or a slow ingester, must not use up the threads in which the receiver stores signals."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")

# The color class of each status, as in the sidecar's dashboard
STATUS_COLORS = {
    "summarized": "good", "completed": "good", "resolved": "good", "replayed": "good", "success": "good",
    "discovered": "wait", "transcription_queued": "wait", "transcribed": "wait", "queued": "wait", "submitted": "wait",
    "processing": "wait", "running": "wait", "replaying": "wait", "process": "wait", "retrying": "warn",
    "investigating": "warn", "partial": "warn", "unrouted": "warn", "failed": "bad", "failure": "bad", "pending": "bad",
    "open": "bad", "unusable": "bad",
}  # fmt: skip

PageFacts = Callable[[Request], dict[str, Any] | None]


def routes(rt: Processing, password: str | None = None, login: LocalLogin | None = None) -> list[Route]:
    """Pages, health, metrics, and the webhook if it has a secret. The caller has opened and migrated the database.

    Without a password the pages are served to browsers that `login` has signed in.
    """
    settings, secrets = rt.settings, rt.secrets
    door = None if password is None else DashboardPassword(password)
    ingester = IngesterClient(rt.net, settings.ingester_url, secrets.ingester, rt.now, settings.ingester_token_env)
    pages: dict[str, tuple[str, PageFacts]] = {
        "/ui": ("overview.html", lambda request: overview(rt)),
        "/ui/videos": ("videos.html", lambda request: video_list_facts(rt, request)),
        "/ui/videos/{video_id}": ("video.html", lambda request: video_facts(rt, request)),
        "/ui/run": ("run.html", lambda request: run_facts(rt, rt.today())),
        "/ui/runs/{day}": ("run.html", lambda request: run_facts(rt, request.path_params["day"])),
        "/ui/digests/{day}": ("digest.html", lambda request: digest_facts(rt, request.path_params["day"])),
        "/ui/deadletters": ("dead_letters.html", lambda request: dead_letter_facts(rt, ingester, request)),
    }
    found = [Route(path, _page(rt, door, login, template, facts)) for path, (template, facts) in pages.items()]
    if password is None and login is not None:
        found.append(Route(LOGIN_PATH, sign_in(login)))
    if secrets.admin:
        act = act_on_dead_job(rt, secrets.admin, lambda text, status: _html(str(escape(text)), status))
        found.append(Route("/ui/deadletters", _guarded(act, door, login), methods=["POST"]))
    if secrets.webhook:
        found.append(Route(WEBHOOK_PATH, webhook(rt, secrets.webhook), methods=["POST"]))
    found += [
        Route(READY_PATH, health(rt, "ready")),
        Route(LIVE_PATH, health(rt, "live")),
        Route(METRICS_PATH, metrics(rt, _is_local if door is None else door.is_given)),
        *summary_feed.routes(rt, None if door is None else door.is_given),
        *video_json.routes(rt, None if door is None else door.is_given),
    ]
    return [*found, Route("/ui/static/{name}", static_file)]


def overview(rt: Processing) -> dict[str, Any]:
    return {
        "signals": received_events.recent(MAX_ROWS),
        "videos": videos.page(MAX_ROWS),
        "counts": videos.counts(),
        "unknown": received_events.unknown_pipelines(),
        "used": paid_calls.used(rt.today()),
        "reserved": paid_calls.reserved(rt.today()),
        "budget": rt.settings.budget.daily_usd,
    }


def run_facts(rt: Processing, day: str) -> dict[str, Any] | None:
    """None: there was no run on that day."""
    if day != rt.today() and runs.find(day) is None:
        return None
    return {"run": describe_run(rt, day), "past": runs.page(60)}


def digest_facts(rt: Processing, day: str) -> dict[str, Any] | None:
    if day != rt.today() and runs.find(day) is None:
        return None
    return {"day": day, "digest": render_markdown(make_digest(rt, whole_day(day))[0])}


def video_facts(rt: Processing, request: Request) -> dict[str, Any] | None:
    video = videos.find(request.path_params["video_id"])
    if video is None:
        return None
    files = {one.kind: one for one in artifacts.of_video(video.id)}
    full = files.get("transcript_json")
    order = sorted(files, key=lambda kind: (kind == "transcript", kind != "summary", kind))
    texts = {kind: rt.artifacts.read(files[kind]) for kind in order if "json" not in kind}
    lines = transcript_lines(video.id, rt.artifacts.read(full) if full else None)
    for kind in SUMMARIES & texts.keys():
        texts[kind] = with_times(texts[kind] or "", lines) or None
    return {
        "video": video,
        "steps": [(name, clock.iso(at)) for name, at in videos.steps(video.id)],
        "jobs": [(job, paid_calls.spent_on(job.id)) for job in jobs.of_video(video.id)],
        "entries": audit.search(limit=100, correlation=video.correlation_id),
        "texts": {
            kind: render_markdown((text or "the file no longer exists")[:MAX_TEXT]) for kind, text in texts.items()
        },
        "lines": lines,
        "waits": jobs.wait_of(video.id),
        "thumbnails": rt.settings.pages.thumbnails,
    }


def dead_letter_facts(rt: Processing, ingester: IngesterClient, request: Request) -> dict[str, Any]:
    """Dead jobs of processing and dead letters of the ingester in one table, newest first.

    The ingester is called before the first statement, so that no read transaction waits for it.
    """
    state = "all" if request.query_params.get("state") == "all" else "open"
    events = ingester.letters(state)
    found = dead_jobs.search(status="all" if state == "all" else None, limit=MAX_DEAD_JOBS)
    rows = [_job_row(job.doc) for job in found] + [_event_row(letter, ingester.url or "") for letter in events.letters]
    return {
        "shown": state,
        "can_act": rt.secrets.admin is not None,
        "rows": sorted(rows, key=lambda row: row["died_at"] or 0.0, reverse=True),
        "jobs": len(found),
        "events": events.total,
        "problem": events.problem,
        "more": max(events.total - len(events.letters), 0),
        "ingester": rt.settings.ingester_url,
        "refused": received_events.recent(MAX_ROWS, action="unusable")
        + received_events.recent(MAX_ROWS, action="unrouted"),
    }


def _job_row(doc: DeadLetterJobDocument) -> dict[str, Any]:
    return {
        "kind": "job",
        "name": doc.job_id,
        "link": f"/ui/videos/{doc.video_id}" if doc.video_id else None,
        "state": doc.dlq_status,
        "cause": doc.failure_type,
        "about": ", ".join(filter(None, (doc.priority, f"level {doc.escalation_level}", doc.assigned_to))),
        "attempts": doc.total_attempts,
        "died_at": clock.parse(doc.moved_to_dlq_at),
        "error": doc.final_error,
        "command": f"csi processing dlq {'retry' if doc.can_retry else 'show'} {doc.job_id}",
    }


def _event_row(letter: EventDeadLetter, url: str) -> dict[str, Any]:
    return letter.model_dump(include={"state", "cause", "died_at", "error"}) | {
        "kind": "event",
        "name": letter.event_id or f"letter {letter.id}",
        # Built from our own setting and a number: a URL that the ingester sends is never linked.
        "link": f"{url}/dead-letters/{letter.id}",
        "about": " → ".join(filter(None, (letter.source, letter.destination))),
        "attempts": letter.retry_count,
        "command": f"csi dlq show {letter.id}",
    }


def sign_in(login: LocalLogin) -> Handler:
    async def serve(request: Request) -> Response:
        cookie = login.redeem(request.query_params.get("key", "")) if _is_local(request) else None
        if cookie is None:
            return _html("this link was used already, or is too old; make another one: csi receiver login-link", 403)
        response = RedirectResponse("/ui", 303, _HEADERS)
        response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict")
        return response

    return serve


def _page(
    rt: Processing, door: DashboardPassword | None, login: LocalLogin | None, template: str, facts: PageFacts
) -> Handler:  # fmt: skip
    threads = CapacityLimiter(THREADS_PER_PAGE)

    def render(request: Request) -> Response:
        try:
            with db.reading():
                found = facts(request)
                facts_now = status.gather(rt)
                shared = {
                    "path": request.url.path,
                    "dead": dead_jobs.open_count(),
                    "problems": judge(facts_now),
                    "heartbeat": facts_now.heartbeat,
                }
        except StoreError as error:
            log.warning("dashboard cannot read processing's database", error=str(error))
            return _html("the database cannot be read; see the receiver's log", 503)
        if found is None:
            return _html("there is no such page", 404)
        page = _html(_templates().get_template(template).render(found | shared), 200)
        if rt.settings.pages.thumbnails:
            policy = _HEADERS["Content-Security-Policy"].replace("img-src 'self'", f"img-src 'self' {THUMBNAIL_HOST}")
            page.headers["Content-Security-Policy"] = policy
        return page

    async def serve(request: Request) -> Response:
        return await to_thread.run_sync(render, request, limiter=threads)

    return _guarded(serve, door, login)


def _guarded(handler: Handler, door: DashboardPassword | None, login: LocalLogin | None) -> Handler:
    """For browsers that `login` has signed in, and for those that know the password."""

    async def serve(request: Request) -> Response:
        if login is not None and login.is_signed_in(request.cookies.get(COOKIE, "")) and _is_local(request):
            return await handler(request)
        if door is None:
            return _html(NO_PAGES, 403)
        if door.is_given(request):
            return await handler(request)
        return Response("401", 401, {**_HEADERS, "WWW-Authenticate": 'Basic realm="csi"'}, media_type="text/plain")

    return serve


def _is_local(request: Request) -> bool:
    """The Host is checked against DNS rebinding: a foreign page whose name resolves to this machine."""
    hosts = request.headers.getlist("host")
    return is_local_client(request) and len(hosts) == 1 and bool(_LOCAL_HOST.fullmatch(hosts[0].lower()))


def _html(text: str, status: int) -> Response:
    return Response(text, status, {**_HEADERS}, media_type="text/html; charset=utf-8")


async def static_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in web_assets.shared_files():
        return _html("there is no such page", 404)
    headers = {**_HEADERS, **web_assets.CACHE_HEADERS}
    return Response(web_assets.shared_files()[name], 200, headers, media_type=web_assets.media_type(name))


def _mark_commands(text: str) -> Markup:
    """Text in backticks is a command or a setting, shown as code."""
    parts = redact(text).split("`")  # the environment redacts text only, and the result is HTML
    shown = (Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts))
    return Markup("").join(shown)


@cache
def _templates() -> Environment:
    """Every value is redacted and escaped. A missing name is an error, not an empty string."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: redact(value) if type(value) is str else value,
    )
    environment.filters["when"] = lambda moment: clock.iso(moment) if moment is not None else "never"
    environment.filters["commands"] = _mark_commands
    environment.filters["color"] = lambda status: STATUS_COLORS.get(status, "idle")
    environment.filters["plain"] = lambda word: word.replace("_", " ")
    environment.globals["asset"] = lambda name: web_assets.versioned_url(
        "/ui/static", name, web_assets.shared_files()[name]
    )
    return environment
