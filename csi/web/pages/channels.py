"""`/channels/{id}`: the figures of a tracked channel, and the hot videos. The list is that of `/sources`."""

from collections.abc import Callable
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from csi import clock
from csi.catalog import channel_admin, comparison
from csi.errors import CsiError
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, movers, stats, videos
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
VIDEO_SPANS = (2, 7, 30, 365)
VIDEO_CURVES = (
    ("Views", "view_count"),
    ("Views an hour", "hourly_views"),
    ("Views a day", "daily_views"),
    ("Likes", "like_count"),
    ("Comments", "comment_count"),
)
COUNTING = "YouTube counts views differently"
MOST_CHOICES = 500
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


@PAGE.view("/channels/movers", "movers.html")
def show_movers(rt: Runtime, request: Request) -> Context:
    since = rt.now() - comparison.MOVERS_DAYS * DAY
    rows = movers.videos(since, 50)
    titles = channels.titles({video.channel_id for video in rows})
    return {"videos": rows, "channels": movers.channels(since, 25), "titles": titles}


@PAGE.view("/channels/compare", "compare.html")
def show_comparison(rt: Runtime, request: Request) -> Context:
    wanted = list(dict.fromkeys(request.query_params.getlist("id")))[: comparison.MOST_CHANNELS]
    rows = [row for row in map(channels.find, wanted) if row is not None]
    given, measure = request.query_params.get("days", ""), request.query_params.get("measure", "")
    span = int(given) if given in map(str, SPANS) else 30
    name = measure if measure in comparison.MEASURES else "daily_views"
    found = comparison.compare(rt, rows, name, span) if len(rows) > 1 else None
    curves = [
        svg_charts.curve(
            row.title or row.id,
            [(day_starts(day.date), day.values[place]) for day in found.days],
            is_gain=name.startswith("daily_"),
            note=_counting_change(rt, name),
        )
        for place, row in enumerate(rows)
        if found is not None
    ]
    every = channels.dashboard(stats.day_of(rt.now()))[:MOST_CHOICES]
    return {
        "rows": rows,
        "every": every,
        "curves": curves,
        "found": found,
        "span": span,
        "spans": SPANS,
        "measure": name,
        "measures": comparison.MEASURES,
    }


@PAGE.view("/videos/{id}", "video.html")
def show_video(rt: Runtime, request: Request) -> Context:
    video, given = videos.find(request.path_params["id"]), request.query_params.get("days", "")
    if video is None:
        raise HTTPException(404)
    span = int(given) if given in map(str, VIDEO_SPANS) else 7
    captures = stats.since(video.id, rt.now() - span * DAY)
    return {
        "video": video,
        "channel": channels.find(video.channel_id),
        "span": span,
        "spans": VIDEO_SPANS,
        "newest": captures[-1] if captures else None,
        "curves": [
            svg_charts.curve(
                title,
                [(one.captured_at, getattr(one, name)) for one in captures],
                is_gain=name.endswith("ly_views"),
                note=_counting_change(rt, name),
            )
            for title, name in VIDEO_CURVES
        ],
        "captures": captures[::-1][:24],
    }


def day_starts(day: str) -> float:
    return clock.parse(f"{day}T00:00:00Z")


def _counting_change(rt: Runtime, name: str) -> tuple[float, str] | None:
    """Where YouTube began to count views in another way: a step there is not popularity."""
    changed = rt.settings.catalog.counting_changed_on
    return (day_starts(changed), COUNTING) if changed is not None and "view" in name else None


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
            svg_charts.curve(
                title,
                [(day.captured_at, getattr(day, name)) for day in days],
                is_gain=name.startswith("daily_"),
                note=_counting_change(rt, name),
            )
            for title, name in CURVES
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
