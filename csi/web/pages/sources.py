"""`/sources`: every watch and its health; poll, pause, resume, reset, add and remove watches."""

from collections import Counter
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from csi import clock
from csi.admin import watches
from csi.api_models import WatchJson
from csi.errors import CsiError
from csi.runtime import Runtime
from csi.status import watch_states
from csi.status.watch_states import FAILING_STATES
from csi.store import watch_admin
from csi.store.models import Watch
from csi.store.queries import event_search
from csi.store.watches import find
from csi.web.api.sources import refuse_poll
from csi.web.page_rendering import Context, DashboardPage, change, redirect
from csi.web.responses import HttpProblem
from csi.web.shared_state import Sidecar

RECENT = 20


def _count(rt: Runtime) -> int:
    return sum(one.watches for one in watch_states.watch_counts(rt) if one.state in FAILING_STATES)


PAGE = DashboardPage("/sources", "Sources", 20, _count)


@PAGE.view("/sources", "sources.html")
def show(rt: Runtime, request: Request) -> Context:
    words = request.query_params.get("q", "").strip()[:200]
    view = request.query_params.get("show", "")
    rows = watch_admin.every()
    states = {row.id: state for row, state in zip(rows, watch_states.states_of(rt, rows), strict=True)}

    def is_failing(row: Watch) -> bool:
        return states[row.id] in FAILING_STATES

    def fits(row: Watch) -> bool:
        is_wanted = is_failing(row) if view == "unwell" else view not in ("paused", "quiet") or states[row.id] == view
        text = f"{row.name or ''} {row.ref} {row.source} {row.last_error or ''}"
        return is_wanted and words.casefold() in text.casefold()

    shown = sorted(
        filter(fits, rows), key=lambda row: (not is_failing(row), row.source, (row.name or row.ref).casefold())
    )
    counted = Counter(states.values())
    counts = {
        "": len(rows),
        "unwell": sum(map(is_failing, rows)),
        "quiet": counted["quiet"],
        "paused": counted["paused"],
    }
    return {
        "rows": shown,
        "states": states,
        "notes": watches.notes_of(shown),
        "q": words,
        "show": view if view in counts else "",
        "counts": counts,
        "on": set(rt.enabled_sources()) if rt.settings.features.polling else set(),
    }


@PAGE.view("/sources/{id:int}", "source.html")
def show_one(rt: Runtime, request: Request) -> Context:
    row = _found(request)
    return {
        "row": row,
        "state": watch_states.states_of(rt, [row])[0],
        "watch": WatchJson.of_rows(rt, [row])[0],
        "recent": event_search.newest(event_search.EventQuery(watch_id=row.id), RECENT),
        "waiting": watch_admin.waiting_items(row.id),
    }


def _found(request: Request) -> Watch:
    number = int(request.path_params["id"])
    row = find(number) if number < 2**62 else None
    if row is None:
        raise HTTPException(404)
    return row


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────────


@PAGE.endpoint("POST", "/sources/{id:int}/poll")
async def poll(request: Request) -> Response:
    def poll_now(rt: Runtime, row: Watch) -> str:
        refuse_poll(rt.settings, row.source)
        found = watches.poll_now(rt, row)
        if found.is_busy:
            raise HttpProblem(409, "it is being polled already, or its host rate-limited us")
        if found.error:
            raise HttpProblem(409, found.error)
        if found.waits_until is not None:
            return f"is polled at {clock.iso(found.waits_until)}: its host allows no request before."
        cost = f" ({found.units} API units)" if found.units else ""
        return f"was polled: {found.new_items} new{cost}."

    return await _change(request, poll_now)


@PAGE.endpoint("POST", "/sources/{id:int}/pause")
async def pause(request: Request) -> Response:
    return await _change(request, lambda rt, row: "is paused." if watches.pause(rt, row) else "is paused already.")


@PAGE.endpoint("POST", "/sources/{id:int}/resume")
async def resume(request: Request) -> Response:
    return await _change(
        request, lambda rt, row: "is resumed and polled at once." if watches.resume(rt, row) else "was not paused."
    )


@PAGE.endpoint("POST", "/sources/{id:int}/reset")
async def reset(request: Request) -> Response:
    emit = request.state.form.get("emit", "")

    def forget_baseline(rt: Runtime, row: Watch) -> str:
        if emit not in ("all", "none"):
            raise HttpProblem(400, "choose what the next poll emits")
        watches.reset(rt, row, "all" if emit == "all" else "none")
        return f"was reset: its next poll is like the first, and emits {emit} of the items that are listed."

    return await _change(request, forget_baseline)


@PAGE.endpoint("POST", "/sources/{id:int}/remove")
async def remove(request: Request) -> Response:
    if request.state.form.get("sure") != "yes":
        return redirect(request, _page_of(request), "Nothing was removed: tick the box to confirm.", "bad")

    def stop(rt: Runtime, row: Watch) -> str:
        watches.remove(rt, row)
        return "is removed."

    return await _change(request, stop, path="/sources")


@PAGE.endpoint("POST", "/sources")
async def add(request: Request) -> Response:
    what, name = request.state.form.get("what", "").strip(), request.state.form.get("name", "").strip()
    sidecar: Sidecar = request.app.state.sidecar
    try:
        done = await sidecar.run(lambda rt: watches.add(rt, what, watches.WatchOptions({"name": name or None})))
    except CsiError as error:
        return redirect(request, "/sources", f"Not added: {error}", "bad")
    if done.result == "known":
        return redirect(request, f"/sources/{done.watch_id}", done.remark or "It is watched already.")
    title = done.name or done.target.ref
    return redirect(request, f"/sources/{done.watch_id}", f"{title} is watched. Its first poll decides what is new.")


async def _change(request: Request, act: Callable[[Runtime, Watch], str], path: str | None = None) -> Response:
    def task(rt: Runtime) -> str:
        row = _found(request)
        title = row.name or row.ref
        try:
            return f"{title} {act(rt, row)}"
        except CsiError as error:
            raise HttpProblem(409, f"{title}: {error}") from error

    return await change(request, path or _page_of(request), task)


def _page_of(request: Request) -> str:
    """The page that had the form: the list, or the watch's own."""
    is_list = request.state.form.get("from") == "list"
    return "/sources" if is_list else f"/sources/{request.path_params['id']}"
