"""`/admin/sources`, `/admin/adapters`: what is watched. What `csi sources` can do."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from csi.adapters.youtube.references import UnknownReference
from csi.admin import watches as steps
from csi.admin.watches import PollNowResult
from csi.config.settings import Settings
from csi.errors import CsiError
from csi.logs import redact
from csi.pipeline.schedule import sync_watches
from csi.runtime import Runtime
from csi.store import watch_admin, watches
from csi.store.models import Watch
from csi.web import json_views
from csi.web.api.operation import BIGGEST, MAX_LIMIT, Call, Given, Operation, Refusal, Whole
from csi.web.api.schema import STAMP, listed, maybe, named, shape, word
from csi.web.facts import gather
from csi.web.health import FRESH_SECONDS, is_beating
from csi.web.responses import problem, reply
from csi.web.runtime_access import Sidecar


class Listing(Given):
    """Which watches."""

    limit: Whole = Field(100, ge=1, le=MAX_LIMIT, description="Rows on a page")
    after: Whole | None = Field(None, ge=1, le=BIGGEST, description="The `next` of the page before")
    source: str | None = Field(None, max_length=60, description="Only of this source")
    state: Literal["active", "paused", "removed"] | None = Field(None, description="Only those in this state")


class Options(Given):
    """How a new watch should be; what is not said is as its source has it."""

    name: str | None = Field(None, max_length=200, description="A name for people")
    route_profile: str | None = Field(None, max_length=200, description="A key of route_profiles")
    tags: tuple[str, ...] | None = Field(None, max_length=50, description="Added to the profile's tags")
    poll_interval_seconds: float | str | None = Field(None, description="Time between two reads: 90, 5m")
    first_poll: Literal["mark_seen", "all"] | dict[str, int] | None = Field(
        None, description="What the first read emits: mark_seen, all or {last: N}"
    )
    include: tuple[str, ...] | None = Field(None, max_length=4, description="Kinds: video, short, live, upcoming")
    title: dict[str, str] | None = Field(None, description="Regular expressions: {match: …, not: …}")
    min_duration_seconds: float | str | None = Field(None, description="Shortest item wanted")
    max_duration_seconds: float | str | None = Field(None, description="Longest item wanted")
    via: Literal["feed", "api", "both"] | None = Field(None, description="How a channel is read")

    def wish(self) -> steps.WatchOptions:
        return steps.WatchOptions(self.model_dump(include=set(Options.model_fields)))


class New(Options):
    """What to watch."""

    what: str = Field(min_length=1, max_length=500, description="A channel id, URL, playlist, video or @handle")
    dry_run: bool = Field(False, description="Say what would happen, and change nothing")


class DryRun(Given):
    """Whether to act."""

    dry_run: bool = Field(False, description="Say what would happen, and change nothing")


class Reset(DryRun):
    """What the next read does with what is there now."""

    emit: Literal["all", "none"] = Field(description="Emit all that never became an event, or nothing")


# ── look ────────────────────────────────────────────────────────────────────────────────────────────────


def list_sources(rt: Runtime, call: Call) -> dict[str, Any]:
    wanted: Listing = call.query
    rows = [row for row in watch_admin.every(removed=wanted.state == "removed") if _fits(row, wanted)]
    rows.sort(key=lambda row: int(row.id))
    following = rows[wanted.limit - 1].id if len(rows) > wanted.limit else None
    return {"watches": describe(rt, rows[: wanted.limit]), "next": following}


def _fits(row: Watch, wanted: Listing) -> bool:
    return (
        wanted.source in (None, row.source)
        and wanted.state in (None, row.state)
        and (wanted.after is None or row.id > wanted.after)
    )


def show_source(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find(call)
    return describe(rt, [row])[0] | {"waiting_items": watch_admin.waiting_items(row.id)}


def describe(rt: Runtime, rows: Sequence[Watch]) -> list[dict[str, Any]]:
    return [
        one | {"last_error": json_views.hidden(one["last_error"]), "note": json_views.hidden(one["note"])}
        for one in steps.describe(rt, rows)
    ]


def find(call: Call) -> Watch:
    row = watches.find(call.number)
    if row is None:
        raise Refusal(404, "there is no watch of that number")
    return row


def export(rt: Runtime, call: Call) -> Response:
    return Response(steps.export_list(rt), media_type="text/x-opml", headers={"Content-Disposition": "attachment"})


# ── change ──────────────────────────────────────────────────────────────────────────────────────────────


def add(rt: Runtime, call: Call) -> Response:
    wanted: New = call.body
    try:
        done = steps.add(rt, wanted.what, wanted.wish(), dry_run=wanted.dry_run)
    except UnknownReference as error:
        raise Refusal(400, f"what: {error}") from error
    is_new = done.result == "added" and not wanted.dry_run
    return reply(json_views.added(done, dry_run=wanted.dry_run), 201 if is_new else 200)


def import_list(rt: Runtime, call: Call) -> dict[str, Any]:
    dry_run = call.query.dry_run
    return json_views.imported(
        steps.import_list(rt, call.body, steps.WatchOptions({}), dry_run=dry_run), dry_run=dry_run
    )


def pause(rt: Runtime, call: Call) -> dict[str, Any]:
    row = _there(call)
    changed = steps.pause(rt, row, dry_run=call.body.dry_run)
    return _changed(row, changed, dry_run=call.body.dry_run) | {"waiting_items": watch_admin.waiting_items(row.id)}


def resume(rt: Runtime, call: Call) -> dict[str, Any]:
    row = _there(call)
    return _changed(row, steps.resume(rt, row, dry_run=call.body.dry_run), dry_run=call.body.dry_run)


def reset(rt: Runtime, call: Call) -> dict[str, Any]:
    row = _there(call)
    steps.reset(rt, row, call.body.emit, dry_run=call.body.dry_run)
    return _changed(row, True, dry_run=call.body.dry_run)


def remove(rt: Runtime, call: Call) -> dict[str, Any]:
    row = _there(call)
    steps.remove(rt, row, dry_run=call.query.dry_run)
    return _changed(row, True, dry_run=call.query.dry_run)


def poll(rt: Runtime, call: Call) -> dict[str, Any]:
    row = _there(call)
    refuse_poll(rt.settings, row.source)
    found = steps.poll_now(rt, row)
    error = json_views.hidden(found.error)
    return {
        "watch": found.ref,
        "new_items": found.new_items,
        "busy": found.is_busy,
        "error": error,
        "units": found.units,
    }


def _there(call: Call) -> Watch:
    row = find(call)
    if row.state == "removed":
        raise Refusal(404, "this watch was removed")
    return row


def _changed(row: Watch, changed: bool, *, dry_run: bool) -> dict[str, Any]:
    now_is = watches.find(row.id)
    return {"id": row.id, "ref": row.ref, "changed": changed, "dry_run": dry_run, "state": (now_is or row).state}


# ── all watches of a source ─────────────────────────────────────────────────────────────────────────────


async def poll_source(request: Request) -> Response:
    """Read every active watch of one source now; what is new is stored, and the worker sends it."""
    sidecar: Sidecar = request.app.state.sidecar
    name = request.path_params["name"]
    try:
        refuse_poll(await sidecar.settings(), name)
    except Refusal as refusal:
        return problem(refusal.status, str(refusal))
    found = await sidecar.work(lambda rt: _watches(rt, name))
    return reply(_summary(name, await asyncio.gather(*(_poll_in_thread(sidecar, watch) for watch in found))))


def refuse_poll(settings: Settings, name: str) -> None:
    if name not in settings.sources:
        known = ", ".join(settings.sources) or "none"
        raise Refusal(404, f"no adapter of that name is configured; configured: {known}")
    if not settings.sources[name].enabled:
        raise Refusal(409, f"sources.{name} is disabled; set enabled: true and restart")
    if not settings.features.polling:
        raise Refusal(409, "polling is switched off (features.polling)")


def _watches(rt: Runtime, name: str) -> list[Watch]:
    """The worker keeps the watches in step with its configuration; only where none is alive do we."""
    if not is_beating(gather(rt), FRESH_SECONDS):
        sync_watches(rt)
    return watches.of_source(name)


async def _poll_in_thread(sidecar: Sidecar, watch: Watch) -> PollNowResult:
    try:
        return await sidecar.work(lambda rt: steps.poll_now(rt, watch))
    except CsiError as error:
        return PollNowResult(watch.ref, error=str(error))


def _summary(name: str, outcomes: list[PollNowResult]) -> dict[str, Any]:
    failed = [{"watch": one.ref, "error": redact(one.error)} for one in outcomes if one.error]
    busy = sum(one.is_busy for one in outcomes)
    return {
        "adapter": name,
        "watches": len(outcomes),
        "polled": len(outcomes) - busy - len(failed),
        "busy": busy,
        "new_items": sum(one.new_items for one in outcomes),
        "errors": failed,
    }


WATCH = shape(
    id=int,
    source=str,
    ref=str,
    name=maybe(str),
    origin=word("config", "command"),
    state=word("active", "paused", "removed"),
    health=str,
    via=str,
    route_profile=maybe(str),
    tier=str,
    errors=int,
    source_enabled=bool,
    url=maybe(str),
    interval_seconds=float,
    planned_interval_seconds=float,
    tags=listed(str),
    filters=dict,
    pages=int,
    first_read_at=maybe(STAMP),
    last_poll_at=maybe(STAMP),
    last_success_at=maybe(STAMP),
    last_new_at=maybe(STAMP),
    next_poll_at=maybe(STAMP),
    health_since=maybe(STAMP),
    error_kind=maybe(str),
    last_error=maybe(str),
    note=maybe(str),
)
SCHEMAS = {"Watch": WATCH}
_CHANGED = shape(id=int, ref=str, changed=bool, dry_run=bool, state=str)
_POLLED = shape(watch=str, new_items=int, busy=bool, error=maybe(str), units=int)
_SUMMARY = shape(
    adapter=str, watches=int, polled=int, busy=int, new_items=int, errors=listed(shape(watch=str, error=str))
)
_ADDED = shape(
    result=word("added", "known"),
    dry_run=bool,
    id=maybe(int),
    source=str,
    ref=str,
    name=maybe(str),
    lookup_units=int,
    interval_seconds=float,
    units_per_day=shape(least=int, most=int),
    remark=maybe(str),
)
_IMPORTED = shape(
    added=int,
    known=int,
    invalid=int,
    dry_run=bool,
    lines=listed(shape(line=int, text=str, result=str, ref=maybe(str), name=maybe(str), error=maybe(str))),
)
_ABSENT = {404: "No watch of that number"}
_LIST = "An OPML file, Google Takeout's subscriptions.csv, or one channel, playlist or video a line"

OPERATIONS = [
    Operation(
        "GET",
        "/sources",
        "listSources",
        "Every watch: how it is, when it was read, what is wrong",
        shape(watches=listed(named("Watch")), next=maybe(int)),
        list_sources,
        query=Listing,
    ),
    Operation(
        "POST",
        "/sources",
        "addSource",
        "Watch a channel or playlist. A handle, name or video is looked up, which costs a unit",
        _ADDED,
        add,
        body=New,
        refusals={409: "The source is switched off, or the look-up needs a key", 502: "The look-up failed"},
    ),
    Operation(
        "GET",
        "/sources/export",
        "exportSources",
        "Every watch as OPML",
        {"type": "string"},
        export,
        media_type="text/x-opml",
    ),
    Operation(
        "POST",
        "/sources/import",
        "importSources",
        "Add every entry of a list; one that cannot be added does not stop the others",
        _IMPORTED,
        import_list,
        query=DryRun,
        text_body=_LIST,
        refusals={409: "The list cannot be read"},
    ),
    Operation("GET", "/sources/{id}", "getSource", "One watch", named("Watch"), show_source, refusals=_ABSENT),
    Operation(
        "DELETE",
        "/sources/{id}",
        "removeSource",
        "Stop watching something that was added by command",
        _CHANGED,
        remove,
        query=DryRun,
        refusals=_ABSENT | {409: "It is in the configuration"},
    ),
    Operation(
        "POST",
        "/sources/{id}/pause",
        "pauseSource",
        "Stop reading it until it is resumed, over restarts",
        _CHANGED,
        pause,
        body=DryRun,
        refusals=_ABSENT,
    ),
    Operation(
        "POST",
        "/sources/{id}/resume",
        "resumeSource",
        "Read a paused watch again, at once",
        _CHANGED,
        resume,
        body=DryRun,
        refusals=_ABSENT,
    ),
    Operation(
        "POST",
        "/sources/{id}/reset",
        "resetSource",
        "Forget its baseline: the next read is like the first",
        _CHANGED,
        reset,
        body=Reset,
        refusals=_ABSENT,
    ),
    Operation(
        "POST",
        "/sources/{id}/poll",
        "pollSource",
        "Read it now; the worker delivers what is new",
        _POLLED,
        poll,
        refusals=_ABSENT | {409: "Its source, or polling, is switched off"},
    ),
    Operation(
        "POST",
        "/adapters/{name}/poll",
        "pollAdapter",
        "Read every watch of a source now",
        _SUMMARY,
        endpoint=poll_source,
        refusals={404: "No adapter of that name", 409: "The source, or polling, is switched off"},
    ),
]
