"""Videos, transcripts and summaries as JSON, for the ingester's admin API and its MCP server. It only reads."""

from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi.errors import StoreError
from csi.processing.pages.health import Handler
from csi.processing.pages.video_list import MAX_FOUND, bullets_of, wanted_videos
from csi.processing.runtime import Processing
from csi.processing.states import STATUSES
from csi.processing.store import artifacts, db, texts, videos

LIST_PATH, VIDEO_PATH = "/processing/videos", "/processing/videos/{video_id}"
KINDS = ("summary", "transcript")
MAX_ROWS = 100
MAX_TEXT = 50_000
SHOWN = {"video_id", "title", "published_at", "channel_id", "channel_title", "duration_sec", "status", "updated_at"}
THREADS = 4
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Facts = Callable[[Request], dict[str, Any] | None]


class _WrongParameter(Exception):
    """A parameter that is not what it has to be. The text says what it may be."""


def routes(rt: Processing, has_password: Callable[[Request], bool] | None) -> list[Route]:
    """For clients with the dashboard's password; None: there is no password, and nothing is served."""
    threads = CapacityLimiter(THREADS)

    def handler(facts: Facts) -> Handler:
        def read(request: Request) -> Response:
            try:
                with db.reading():
                    found = facts(request)
            except StoreError:
                return JSONResponse({"error": "processing's database cannot be used"}, 503, _HEADERS)
            except _WrongParameter as error:
                return JSONResponse({"error": str(error)}, 400, _HEADERS)
            if found is None:
                return JSONResponse({"error": "there is no video with this id"}, 404, _HEADERS)
            return JSONResponse(found, 200, _HEADERS)

        async def serve(request: Request) -> Response:
            if has_password is None:
                return JSONResponse({"error": "a password of the dashboard has to be set"}, 403, _HEADERS)
            if not has_password(request):
                return JSONResponse({"error": "the password of the dashboard is needed"}, 401, _HEADERS)
            return await to_thread.run_sync(read, request, limiter=threads)

        return serve

    return [
        Route(LIST_PATH, handler(lambda request: _page(rt, request))),
        Route(VIDEO_PATH, handler(lambda request: _video(rt, request))),
    ]


def _page(rt: Processing, request: Request) -> dict[str, Any]:
    status = request.query_params.get("status")
    if status is not None and status not in STATUSES:
        raise _WrongParameter(f"status: must be one of {', '.join(STATUSES)}")
    limit, offset = _whole(request, "limit", 50, MAX_ROWS), _whole(request, "offset", 0, 10**9)
    given = dict(request.query_params)
    try:
        words = given.get("text")
        ids = tuple(one.video_id for one in texts.search(words, MAX_FOUND)) if words else None
        wanted = wanted_videos(rt, given, ids)
    except ValueError as error:
        raise _WrongParameter("day: must be YYYY-MM-DD; since: a duration such as 24h") from error
    found = videos.page(limit + 1, wanted=wanted, offset=offset)
    shown = [_described(one) | {"kind": one.kind, "bullets": bullets_of(one)} for one in found[:limit]]
    return {"videos": shown, "next": offset + limit if len(found) > limit else None}


def _described(video: videos.ProcessingVideo) -> dict[str, Any]:
    return video.doc.model_dump(mode="json", include=SHOWN) | {"url": video.url}


def _video(rt: Processing, request: Request) -> dict[str, Any] | None:
    """One video, and a part of its summary or transcript: long texts are read in several requests."""
    kind, offset = request.query_params.get("text", KINDS[0]), _whole(request, "offset", 0, 10**9)
    if kind not in KINDS:
        raise _WrongParameter(f"text: must be one of {', '.join(KINDS)}")
    video = videos.find(request.path_params["video_id"])
    if video is None:
        return None
    texts = [rt.artifacts.read(one) for one in artifacts.of_video(video.id) if one.kind == kind]
    text = texts[0] if texts else None
    end = offset + MAX_TEXT
    return _described(video) | {
        "kind": kind,
        "text": None if text is None else text[offset:end],
        "characters": 0 if text is None else len(text),
        "next": None if text is None or len(text) <= end else end,
    }


def _whole(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= most):
        raise _WrongParameter(f"{name}: must be a whole number of at most {most}")
    return int(text)
