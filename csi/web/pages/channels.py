"""`/channels/{id}`: the figures of a tracked channel, and the hot videos. The list is that of `/sources`."""

from collections.abc import Callable
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from csi.catalog import channel_admin
from csi.errors import CsiError
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.channels import Channel
from csi.web import svg_charts
from csi.web.page_rendering import Context, DashboardPage, change, redirect
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
PAGE = DashboardPage("/channels", "Channels", 25, is_listed=False)
LIST = "/sources?show=tracked"


@PAGE.endpoint("GET", "/channels")
async def show_list(request: Request) -> Response:
    return RedirectResponse(LIST, 303)


@PAGE.view("/channels/hot", "hot_videos.html")
def show_hot(rt: Runtime, request: Request) -> Context:
    rows = videos.hottest(100)
    return {"rows": rows, "titles": channels.titles({video.channel_id for video, _, _ in rows})}


@PAGE.view("/channels/{id}", "channel.html")
def show_one(rt: Runtime, request: Request) -> Context:
    row, given = _find(request.path_params["id"]), request.query_params.get("days", "")
    span = int(given) if given in map(str, SPANS) else 90
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
            svg_charts.curve(title, [(day.captured_at, getattr(day, name)) for day in days]) for title, name in CURVES
        ],
        "videos": videos.of_channel(row.id, limit=RECENT),
        "jobs": jobs.page(channel_id=row.id, limit=5),
    }


def _find(ref: str) -> Channel:
    row = channels.find(ref)
    if row is None:
        raise HTTPException(404)
    return row


# ── changes ────────────────────────────────────────────────────────────────────────────────────────────────


@PAGE.endpoint("POST", "/channels")
async def add(request: Request) -> Response:
    what = request.state.form.get("what", "").strip()
    sidecar: Sidecar = request.app.state.sidecar
    try:
        done = await sidecar.run(lambda rt: channel_admin.register(rt, what))
    except CsiError as error:
        return redirect(request, LIST, f"Not added: {error}", "bad")
    text = done.remark if done.result == "known" else "is tracked; its videos are being fetched."
    return redirect(request, f"/channels/{done.channel.id}", f"{done.channel.title or done.channel.id}: {text}")


@PAGE.endpoint("POST", "/channels/{id}/pause")
async def pause(request: Request) -> Response:
    return await _change(
        request, lambda rt, row: "is paused." if channel_admin.pause(rt, row) else "is paused already."
    )


@PAGE.endpoint("POST", "/channels/{id}/resume")
async def resume(request: Request) -> Response:
    return await _change(request, lambda rt, row: "is resumed." if channel_admin.resume(rt, row) else "was not paused.")


@PAGE.endpoint("POST", "/channels/{id}/remove")
async def remove(request: Request) -> Response:
    ref = request.path_params["id"]
    own = f"/channels/{quote(ref, safe='')}"
    if request.state.form.get("sure") != "yes":
        return redirect(request, own, "Nothing was removed: tick the box to confirm.", "bad")
    sidecar: Sidecar = request.app.state.sidecar
    try:
        removed = await sidecar.run(lambda rt: channel_admin.remove(rt, _find(ref)))
    except CsiError as error:
        return redirect(request, own, f"Not removed: {error}", "bad")
    return redirect(request, LIST, f"The channel is removed with {removed['videos']:,} videos and their statistics.")


@PAGE.endpoint("POST", "/channels/{id}/backfill")
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

    is_list = request.state.form.get("from") == "list"
    return await change(request, LIST if is_list else f"/channels/{quote(ref, safe='')}", task)
