"""`/sources`: every watch, how it is and why; read it now, pause it, add one."""

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.admin import watches as steps
from csi.api_models import WatchJson
from csi.errors import CsiError
from csi.runtime import Runtime
from csi.status.search import search
from csi.store import watch_admin, watches
from csi.store.models import Watch
from csi.store.queries import charts
from csi.store.queries.event_search import EventQuery
from csi.web.api.sources import refuse_poll
from csi.web.page_rendering import Facts, Page, back, present
from csi.web.responses import HttpProblem
from csi.web.runtime_access import Sidecar

UNWELL = ("backing_off", "throttled", "outage", "suspect", "dead")
RECENT = 20


async def show(request: Request) -> Response:
    words = request.query_params.get("q", "").strip()[:200]
    view = request.query_params.get("show", "")
    return await present(request, "sources.html", lambda rt: _facts(rt, words, view))


def _facts(rt: Runtime, words: str, view: str) -> Facts:
    rows = watch_admin.every()
    counts = {"": len(rows), "unwell": sum(map(_is_unwell, rows)), "paused": sum(row.state == "paused" for row in rows)}
    shown = [row for row in rows if _fits(row, words.casefold(), view)]
    shown.sort(key=lambda row: (not _is_unwell(row), row.source, (row.name or row.ref).casefold()))
    return {
        "rows": shown,
        "notes": steps.notes_of(shown),
        "q": words,
        "show": view if view in counts else "",
        "counts": counts,
        "on": set(rt.enabled_sources()) if rt.settings.features.polling else set(),
    }


def _is_unwell(row: Watch) -> bool:
    return row.state == "active" and row.health in UNWELL


def _fits(row: Watch, words: str, view: str) -> bool:
    is_wanted = _is_unwell(row) if view == "unwell" else row.state == "paused" if view == "paused" else True
    return is_wanted and words in f"{row.name or ''} {row.ref} {row.source} {row.last_error or ''}".casefold()


async def show_one(request: Request) -> Response:
    number = int(request.path_params["id"])
    return await present(request, "source.html", lambda rt: _one(rt, number))


def _one(rt: Runtime, number: int) -> Facts:
    row = _find(number)
    recent = search(EventQuery(watch_id=number), RECENT).events
    watch = WatchJson.of_rows(rt, [row])[0]
    return {"row": row, "watch": watch, "recent": recent, "waiting": watch_admin.waiting_items(number)}


def _find(number: int) -> Watch:
    row = watches.find(number) if number < 2**62 else None
    if row is None:
        raise HTTPException(404)
    return row


# ── acts ────────────────────────────────────────────────────────────────────────────────────────────────


async def poll(request: Request) -> Response:
    return await _act(request, _poll)


def _poll(rt: Runtime, row: Watch) -> str:
    refuse_poll(rt.settings, row.source)
    found = steps.poll_now(rt, row)
    if found.is_busy:
        raise HttpProblem(409, "it is being read already, or its host asked for a pause")
    if found.error:
        raise HttpProblem(409, found.error)
    cost = f" ({found.units} API units)" if found.units else ""
    return f"was read: {found.new_items} new{cost}."


async def pause(request: Request) -> Response:
    return await _act(request, lambda rt, row: "is paused." if steps.pause(rt, row) else "was paused already.")


async def resume(request: Request) -> Response:
    return await _act(
        request, lambda rt, row: "is read again, at once." if steps.resume(rt, row) else "was not paused."
    )


async def reset(request: Request) -> Response:
    emit = request.state.form.get("emit", "")

    def act(rt: Runtime, row: Watch) -> str:
        if emit not in ("all", "none"):
            raise HttpProblem(400, "say what the next read should emit")
        steps.reset(rt, row, "all" if emit == "all" else "none")
        return f"was reset: its next read is like the first, and emits {emit} of what is there."

    return await _act(request, act)


async def remove(request: Request) -> Response:
    if request.state.form.get("sure") != "yes":
        return back(request, _page_of(request), "Nothing was removed: tick the box to say that you are sure.", "bad")

    def act(rt: Runtime, row: Watch) -> str:
        steps.remove(rt, row)
        return "is not watched any more."

    return await _act(request, act, path="/sources")


async def add(request: Request) -> Response:
    what, name = request.state.form.get("what", "").strip(), request.state.form.get("name", "").strip()
    sidecar: Sidecar = request.app.state.sidecar
    try:
        done = await sidecar.work(lambda rt: steps.add(rt, what, steps.WatchOptions({"name": name or None})))
    except CsiError as error:
        return back(request, "/sources", f"Not added: {error}", "bad")
    if done.result == "known":
        return back(request, f"/sources/{done.watch_id}", done.remark or "It is watched already.")
    title = done.name or done.target.ref
    return back(request, f"/sources/{done.watch_id}", f"{title} is watched. Its first read decides what is new.")


async def _act(request: Request, act: Callable[[Runtime, Watch], str], path: str | None = None) -> Response:
    """Do something to one watch, and tell what came of it where it was asked for."""
    sidecar: Sidecar = request.app.state.sidecar
    number = int(request.path_params["id"])
    row = await sidecar.ask(lambda rt: _find(number))
    title, target = row.name or row.ref, path or _page_of(request)
    try:
        text = await sidecar.work(lambda rt: act(rt, row))
    except CsiError as error:
        return back(request, target, f"{title}: {error}", "bad")
    return back(request, target, f"{title} {text}")


def _page_of(request: Request) -> str:
    is_list = request.state.form.get("from") == "list"
    return "/sources" if is_list else f"/sources/{request.path_params['id']}"


def _count(rt: Runtime) -> int:
    found = charts.watch_counts(list(rt.settings.sources))
    return sum(one.watches for one in found if one.state in UNWELL)


_ACTS = {"poll": poll, "pause": pause, "resume": resume, "reset": reset, "remove": remove}

PAGE = Page(
    "/sources",
    "Sources",
    20,
    [
        Route("/sources", show, methods=["GET"]),
        Route("/sources", add, methods=["POST"]),
        Route("/sources/{id:int}", show_one, methods=["GET"]),
        *(Route(f"/sources/{{id:int}}/{name}", act, methods=["POST"]) for name, act in _ACTS.items()),
    ],
    _count,
)
