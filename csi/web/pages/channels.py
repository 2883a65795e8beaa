"""`/channels`: the tracked channels, the figures of each, and the hot videos."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.catalog import channel_admin, data_api
from csi.errors import CsiError
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.channels import Channel
from csi.store.catalog.stats import day_of
from csi.web import svg_charts
from csi.web.page_rendering import Context, DashboardPage, change, redirect, render_page
from csi.web.shared_state import Sidecar

DAY = 86_400.0
SPANS = (30, 90, 365)
CURVES = (
    ("Subscribers", "subscriber_count"),
    ("Views", "view_count"),
    ("Views a day", "daily_views"),
    ("Videos", "video_count"),
)
RECENT = 20


async def show(request: Request) -> Response:
    def context(rt: Runtime) -> Context:
        rows, share = channels.dashboard(day_of(rt.now())), data_api.share_of(rt)
        return {"rows": rows, "share": share, "too_much": data_api.TOO_MUCH}

    return await render_page(request, "channels.html", context)


async def show_hot(request: Request) -> Response:
    return await render_page(request, "hot_videos.html", lambda rt: {"rows": videos.hottest(100)})


async def show_one(request: Request) -> Response:
    ref, given = request.path_params["id"], request.query_params.get("days", "")
    span = int(given) if given in map(str, SPANS) else 90

    def context(rt: Runtime) -> Context:
        row = _find(ref)
        total, missing = videos.count_of(row.id)
        days = stats.trend(row.id, rt.now() - span * DAY)
        return {
            "row": row,
            "feed": channels.feed_of(row.id),
            "total": total,
            "missing": missing,
            "span": span,
            "spans": SPANS,
            "curves": [
                svg_charts.curve(title, [(day.captured_at, getattr(day, name)) for day in days])
                for title, name in CURVES
            ],
            "videos": videos.of_channel(row.id, limit=RECENT),
            "jobs": jobs.page(channel_id=row.id, limit=5),
        }

    return await render_page(request, "channel.html", context)


def _find(ref: str) -> Channel:
    row = channels.find(ref)
    if row is None:
        raise HTTPException(404)
    return row


# ── changes ────────────────────────────────────────────────────────────────────────────────────────────────


async def add(request: Request) -> Response:
    what = request.state.form.get("what", "").strip()
    sidecar: Sidecar = request.app.state.sidecar
    try:
        done = await sidecar.run(lambda rt: channel_admin.register(rt, what))
    except CsiError as error:
        return redirect(request, "/channels", f"Not added: {error}", "bad")
    text = done.remark if done.result == "known" else "is tracked; its videos are being fetched."
    return redirect(request, f"/channels/{done.channel.id}", f"{done.channel.title or done.channel.id}: {text}")


async def pause(request: Request) -> Response:
    return await _change(
        request, lambda rt, row: "is paused." if channel_admin.pause(rt, row) else "is paused already."
    )


async def resume(request: Request) -> Response:
    return await _change(request, lambda rt, row: "is resumed." if channel_admin.resume(rt, row) else "was not paused.")


async def backfill(request: Request) -> Response:
    def fetch(rt: Runtime, row: Channel) -> str:
        found = channel_admin.backfill(rt, row)
        return "is being fetched already." if found.is_duplicate else "is fetched again."

    return await _change(request, fetch)


async def _change(request: Request, act: Callable[[Runtime, Channel], str]) -> Response:
    ref = request.path_params["id"]

    def task(rt: Runtime) -> str:
        row = _find(ref)
        return f"{row.title or row.id} {act(rt, row)}"

    return await change(request, f"/channels/{quote(ref, safe='')}", task)


_CHANGES: dict[str, Any] = {"pause": pause, "resume": resume, "backfill": backfill}

PAGE = DashboardPage(
    "/channels",
    "Channels",
    25,
    [
        Route("/channels", show, methods=["GET"]),
        Route("/channels", add, methods=["POST"]),
        Route("/channels/hot", show_hot, methods=["GET"]),
        Route("/channels/{id}", show_one, methods=["GET"]),
        *(Route(f"/channels/{{id}}/{name}", endpoint, methods=["POST"]) for name, endpoint in _CHANGES.items()),
    ],
)
