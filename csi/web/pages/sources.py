"""`/sources`: every watch and every tracked channel; add, change, poll, pause, resume, reset and remove watches."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from csi import clock
from csi.admin import watch_options, watches
from csi.admin.watch_options import WatchChangedMeanwhile
from csi.api_models import WatchJson
from csi.catalog import channel_admin, data_api
from csi.config.source_settings import KINDS
from csi.errors import CsiError
from csi.runtime import Runtime
from csi.status import watch_list, watch_states
from csi.status.read_history import read_summary
from csi.status.watch_list import CHANNEL_SOURCE, WatchListQuery
from csi.status.watch_states import FAILING_STATES
from csi.store import poll_history, watch_admin
from csi.store.catalog import channels
from csi.store.models import Watch
from csi.store.queries import event_search
from csi.store.watches import find
from csi.web import svg_charts, watch_forms
from csi.web.api.sources import refuse_poll
from csi.web.formatting import plural
from csi.web.page_rendering import Context, DashboardPage, change, number_of, redirect, refused_message, render_page
from csi.web.responses import HttpProblem
from csi.web.shared_state import Sidecar

RECENT = 20
PATH = "/sources"
SORTS = {
    "": "failing first", "name": "name", "source": "source", "state": "state", "-last_poll": "last poll",
    "next_poll": "next poll", "-last_new": "last new item", "interval": "interval", "-subscribers": "subscribers",
}  # fmt: skip
BULK = {"pause": "Pause", "resume": "Resume", "poll": "Poll now", "track": "Track statistics",
        "untrack": "Stop statistics", "remove": "Remove"}  # fmt: skip
MOST = 1_000
"""Watches that one click changes."""


def _count(rt: Runtime) -> int:
    return sum(one.watches for one in watch_states.watch_counts(rt) if one.state in FAILING_STATES)


PAGE = DashboardPage(PATH, "Sources", 20, _count, also=("/channels",), key="s")


@PAGE.view(PATH, "sources.html")
def show(rt: Runtime, request: Request) -> Context:
    query = _query(request.query_params)
    found = watch_list.watch_list(rt, query)
    share = data_api.share_of(rt) if found.counts["tracked"] else None
    return {
        "found": found,
        "notes": watches.notes_of([row for row in found.rows if row.id]),
        "given": {"q": query.words, "show": query.view, "source": query.source, "tag": query.tag, "sort": query.sort},
        "sources": sorted({*rt.settings.sources}),
        "sorts": SORTS,
        "bulk": BULK,
        "channel_source": CHANNEL_SOURCE,
        "share": share,
        "too_much": data_api.TOO_MUCH,
        "on": set(rt.enabled_sources()) if rt.settings.features.polling else set(),
    }


def _query(given: Mapping[str, str]) -> WatchListQuery:
    view, sort = given.get("show", ""), given.get("sort", "")
    return WatchListQuery(
        words=given.get("q", "").strip()[:200],
        view=view if view in watch_list.VIEWS else "",
        source=given.get("source", "")[:64],
        tag=given.get("tag", "")[:200],
        sort=sort if sort.removeprefix("-") in watch_list.SORTS else "",
        page=number_of(given.get("page")) or 1,
    )


@PAGE.view(f"{PATH}/add", "source_add.html")
def show_add(rt: Runtime, request: Request) -> Context:
    return _add_form(rt, {}, {})


def _add_form(rt: Runtime, sent: Mapping[str, str], values: Mapping[str, Any]) -> Context:
    shown = {**watch_forms.values_of({}), **values}
    return {"sent": sent, "values": shown, **_choices(rt, None)}


def _choices(rt: Runtime, row: Watch | None) -> Context:
    """What the fields of a watch offer. `row` None: the source is not known yet."""
    has_via = row is None or watch_options.source_has(rt, row, "via")
    return {
        "profiles": sorted(rt.settings.route_profiles),
        "kinds": KINDS,
        "has_via": has_via,
        "may_set_first_poll": row is None or (row.first_read_at is None and row.last_success_at is None),
        "default_interval": rt.settings.sources[row.source].poll_interval_seconds
        if row is not None and row.source in rt.settings.sources
        else None,
    }


@PAGE.view(f"{PATH}/{{id:int}}", "source.html")
def show_one(rt: Runtime, request: Request) -> Context:
    row = _found(request)
    reads, given = poll_history.of_watch(row.id), watch_options.options_of(rt, row)
    texts = {key: watch_options.value_text(given[key]) for key in watch_options.KEYS if key in given}
    return {
        "row": row,
        "state": watch_states.states_of(rt, [row])[0],
        "watch": WatchJson.of_rows(rt, [row])[0],
        "options": [(watch_options.LABELS[key], text) for key, text in texts.items()],
        "changed": [watch_options.LABELS[key] for key in watch_options.changed_options(row)],
        "place": watch_options.place_in_file(rt, row),
        "channel": channels.find(row.ref) if row.source == CHANNEL_SOURCE else None,
        "may_track": row.source == CHANNEL_SOURCE,
        "reads": reads,
        "summary": read_summary(reads),
        "bar": svg_charts.read_bar(reads),
        "times": svg_charts.read_times(reads),
        "recent": event_search.newest(event_search.EventQuery(watch_id=row.id), RECENT),
        "waiting": watch_admin.waiting_items(row.id),
    }


@PAGE.view(f"{PATH}/{{id:int}}/edit", "source_edit.html")
def show_edit(rt: Runtime, request: Request) -> Context:
    return _edit_form(rt, _found(request), None)


def _edit_form(rt: Runtime, row: Watch, sent: Mapping[str, str] | None) -> Context:
    options = watch_options.options_of(rt, row)
    return {
        "row": row,
        "values": watch_forms.values_of(options) if sent is None else watch_forms.values_of_form(sent),
        "revision": watch_options.revision_of(rt, row),
        "seen": json.dumps(options, sort_keys=True),
        "place": watch_options.place_in_file(rt, row),
        "may_change": watch_options.may_change(rt, row),
        "changed": [watch_options.LABELS[key] for key in watch_options.changed_options(row)],
        **_choices(rt, row),
    }


def _found(request: Request) -> Watch:
    number = int(request.path_params["id"])
    row = find(number) if number < 2**62 else None
    if row is None:
        raise HTTPException(404)
    return row


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────────


@PAGE.endpoint("POST", PATH)
async def add(request: Request) -> Response:
    form: dict[str, str] = request.state.form
    what = form.get("what", "").strip()
    options = {key: value for key, value in watch_forms.options_of_form(form).items() if value is not None}
    sidecar: Sidecar = request.app.state.sidecar

    def store(rt: Runtime) -> tuple[watches.AddWatchResult, str]:
        done = watches.add(rt, what, watches.WatchOptions(options))
        return done, _track_too(rt, done) if form.get("track") == "yes" else ""

    try:
        done, tracked = await sidecar.run(store)
    except CsiError as error:
        message = refused_message(request, f"Not added: {error}")

        def again(rt: Runtime, _: Request) -> Context:
            return {**_add_form(rt, form, watch_forms.values_of_form(form)), "message": message}

        return await render_page(request, "source_add.html", again, 400)
    own = f"{PATH}/{done.watch_id}"
    if done.result == "known":
        return redirect(request, own, f"{done.remark or 'It is watched already.'}{tracked}")
    title = done.name or done.target.ref
    return redirect(request, own, f"{title} is watched. Its first poll decides what is new.{tracked}")


def _track_too(rt: Runtime, done: watches.AddWatchResult) -> str:
    if done.target.source != CHANNEL_SOURCE:
        return " Statistics are tracked of YouTube channels only."
    try:
        return " Its statistics are tracked." if channel_admin.track(rt, done.target.ref) else ""
    except CsiError as error:
        return f" Its statistics are not tracked: {error}"


@PAGE.endpoint("POST", f"{PATH}/{{id:int}}")
async def save(request: Request) -> Response:
    """The form of one watch. What another operator changed meanwhile is shown before it is replaced."""
    form: dict[str, str] = request.state.form
    sidecar: Sidecar = request.app.state.sidecar

    def store(rt: Runtime) -> str:
        row = _found(request)
        try:
            seen = json.loads(form.get("seen", ""))
        except ValueError:
            seen = None
        seen = seen if isinstance(seen, dict) else None
        from_file = form.get("from_file") == "yes"
        given = {} if from_file else watch_forms.options_of_form(form)
        revision = form.get("revision", "")
        done = watch_options.change(rt, row, given, revision=revision, seen=seen, from_file=from_file)
        words = "; ".join(one.words for one in done)
        return f"{row.name or row.ref} is changed: {words}." if done else "Nothing was different; nothing changed."

    try:
        text = await sidecar.run(store)
    except CsiError as error:
        again = " Compare, and save again to replace it." if isinstance(error, WatchChangedMeanwhile) else ""
        message = refused_message(request, f"Not saved: {error}.{again}")

        def show_again(rt: Runtime, _: Request) -> Context:
            return {**_edit_form(rt, _found(request), form), "message": message}

        return await render_page(request, "source_edit.html", show_again, 409 if again else 400)
    return redirect(request, f"{PATH}/{request.path_params['id']}", text)


def _poll_now(rt: Runtime, row: Watch) -> str:
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


def _pause(rt: Runtime, row: Watch) -> str:
    return "is paused." if watches.pause(rt, row) else "is paused already."


def _resume(rt: Runtime, row: Watch) -> str:
    return "is resumed and polled at once." if watches.resume(rt, row) else "was not paused."


def _remove(rt: Runtime, row: Watch) -> str:
    watches.remove(rt, row)
    return "is removed."


def _track(rt: Runtime, row: Watch) -> str:
    _refuse_statistics(row)
    return "has its statistics tracked." if channel_admin.track(rt, row.ref) else "is tracked already."


def _untrack(rt: Runtime, row: Watch) -> str:
    _refuse_statistics(row)
    return "has its statistics kept, and not refreshed." if channel_admin.untrack(rt, row.ref) else "was not tracked."


def _refuse_statistics(row: Watch) -> None:
    if row.source != CHANNEL_SOURCE:
        raise HttpProblem(409, "statistics are tracked of YouTube channels only")


ACTS: dict[str, Callable[[Runtime, Watch], str]] = {
    "poll": _poll_now, "pause": _pause, "resume": _resume, "track": _track, "untrack": _untrack, "remove": _remove,
}  # fmt: skip


def _add_endpoint(act: str) -> None:
    @PAGE.endpoint("POST", f"{PATH}/{{id:int}}/{act}")
    async def act_on_one(request: Request) -> Response:
        if act == "remove" and request.state.form.get("sure") != "yes":
            return redirect(request, _page_of(request), "Nothing was removed: tick the box to confirm.", "bad")
        return await _change(request, ACTS[act], path=PATH if act == "remove" else None)


for _act in ACTS:
    _add_endpoint(_act)


@PAGE.endpoint("POST", f"{PATH}/{{id:int}}/reset")
async def reset(request: Request) -> Response:
    emit = request.state.form.get("emit", "")

    def forget_baseline(rt: Runtime, row: Watch) -> str:
        if emit not in ("all", "none"):
            raise HttpProblem(400, "choose what the next poll emits")
        watches.reset(rt, row, "all" if emit == "all" else "none")
        return f"was reset: its next poll is like the first, and emits {emit} of the items that are listed."

    return await _change(request, forget_baseline)


@PAGE.endpoint("POST", f"{PATH}/bulk")
async def change_many(request: Request) -> Response:
    """The ticked watches, or with `all` those that the list shows on every page."""
    form: dict[str, str] = request.state.form
    act = form.get("act", "")
    if act not in ACTS:
        return redirect(request, PATH, "Choose what to do with the ticked watches.", "bad")
    if act == "remove" and form.get("sure") != "yes":
        return redirect(request, PATH, "Nothing was removed: tick “I am sure”, too.", "bad")
    sidecar: Sidecar = request.app.state.sidecar
    done, failed = await sidecar.run(lambda rt: _change_many(rt, form, act))
    if not done and not failed:
        return redirect(request, PATH, "No watch was ticked; nothing changed.", "bad")
    text = f"{BULK[act]}: done for {plural(done, 'watch').replace('watchs', 'watches')}."
    if failed:
        text += f" Refused for {len(failed)}: {failed[0]}" + (" …" if len(failed) > 1 else "")
    return redirect(request, PATH, text, "bad" if failed else "good")


def _change_many(rt: Runtime, form: Mapping[str, str], act: str) -> tuple[int, list[str]]:
    if form.get("all") == "yes":
        ids = list(watch_list.watch_list(rt, _query(form)).ids)[:MOST]
    else:
        numbers = (number_of(name.removeprefix("watch-")) for name in form if name.startswith("watch-"))
        ids = [number for number in numbers if number]
    done, failed = 0, list[str]()
    for number in ids:
        row = find(number)
        if row is None or row.state == "removed":
            continue
        try:
            if act == "poll":  # by the worker: this request must end
                refuse_poll(rt.settings, row.source)
                watch_admin.make_due(row.id, rt.now())
            else:
                ACTS[act](rt, row)
            done += 1
        except CsiError as error:
            failed.append(f"{row.name or row.ref}: {error}.")
    return done, failed


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
    return PATH if is_list else f"{PATH}/{request.path_params['id']}"
