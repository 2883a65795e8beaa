"""`/admin/sources`, `/admin/adapters`: watches, as `csi sources` shows and changes them."""

import asyncio
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from csi.adapters.youtube.references import UnknownReference
from csi.admin import watches
from csi.admin.watches import PollNowResult
from csi.api_models import (
    ImportReport,
    PollResult,
    SourcePollReport,
    WatchAdded,
    WatchChanged,
    WatchDetail,
    WatchJson,
    WatchList,
    WatchPaused,
)  # fmt: skip
from csi.config.settings import Settings
from csi.errors import CsiError
from csi.pipeline.schedule import sync_watches
from csi.runtime import Runtime
from csi.status.worker import worker_status
from csi.store import watch_admin
from csi.store.models import Watch
from csi.store.watches import find, of_source
from csi.web.operation_definition import MAX_ID, ApiRequest, Limit, Operation, RequestModel, Whole, page_of
from csi.web.responses import HttpProblem, problem, reply
from csi.web.shared_state import Sidecar

_PREVIEW = "Report what would happen, and change nothing"


class WatchQuery(RequestModel):
    """Which watches."""

    limit: Limit = 100
    after: Whole | None = Field(None, ge=1, le=MAX_ID, description="The `next` of the previous page")
    source: str | None = Field(None, max_length=60, description="Only of this source")
    state: Literal["active", "paused", "removed"] | None = Field(None, description="Only those in this state")


class WatchRequestOptions(RequestModel):
    """Options of a new watch; the source's settings apply to those that are not given."""

    name: str | None = Field(None, max_length=200, description="A name for people")
    route_profile: str | None = Field(None, max_length=200, description="A key of route_profiles")
    tags: tuple[str, ...] | None = Field(None, max_length=50, description="Added to the profile's tags")
    poll_interval_seconds: float | str | None = Field(None, description="Time between two polls: 90, 5m")
    first_poll: Literal["mark_seen", "all"] | dict[str, int] | None = Field(
        None, description="What the first poll emits: mark_seen, all or {last: N}"
    )
    include: tuple[str, ...] | None = Field(None, max_length=4, description="Kinds: video, short, live, upcoming")
    title: dict[str, str] | None = Field(None, description="Regular expressions: {match: …, not: …}")
    min_duration_seconds: float | str | None = Field(None, description="Shortest item that is emitted")
    max_duration_seconds: float | str | None = Field(None, description="Longest item that is emitted")
    via: Literal["feed", "api", "both"] | None = Field(None, description="How a channel is polled")


class WatchRequest(WatchRequestOptions):
    """What to watch."""

    what: str = Field(min_length=1, max_length=500, description="A channel id, URL, playlist, video or @handle")
    dry_run: bool = Field(False, description=_PREVIEW)


class DryRun(RequestModel):
    """Whether to change anything."""

    dry_run: bool = Field(False, description=_PREVIEW)


class ResetRequest(DryRun):
    """What the next poll does with the items that are listed now."""

    emit: Literal["all", "none"] = Field(description="Emit every item that never became an event, or none")


# ── read ────────────────────────────────────────────────────────────────────────────────────────────────


def list_watches(rt: Runtime, call: ApiRequest) -> WatchList:
    query: WatchQuery = call.query
    rows = [
        row
        for row in watch_admin.every(removed=query.state == "removed")
        if query.source in (None, row.source)
        and query.state in (None, row.state)
        and (query.after is None or row.id > query.after)
    ]
    shown, following = page_of(sorted(rows, key=lambda row: int(row.id)), query.limit)
    return WatchList(watches=WatchJson.of_rows(rt, shown), next=following)


def show_watch(rt: Runtime, call: ApiRequest) -> WatchDetail:
    row = _found(call)
    return WatchDetail.of_rows(rt, [row], waiting_items=watch_admin.waiting_items(row.id))[0]


def _found(call: ApiRequest, *, also_removed: bool = True) -> Watch:
    row = find(call.number)
    if row is None:
        raise HttpProblem(404, "there is no watch with this id")
    if row.state == "removed" and not also_removed:
        raise HttpProblem(404, "this watch was removed")
    return row


def export(rt: Runtime, call: ApiRequest) -> Response:
    headers = {"Content-Disposition": "attachment"}
    return Response(watches.export_list(rt), media_type="text/x-opml", headers=headers)


# ── change ──────────────────────────────────────────────────────────────────────────────────────────────


def add(rt: Runtime, call: ApiRequest) -> Response:
    """201 for a new watch; 200 for one that exists, and for a dry run."""
    asked: WatchRequest = call.body
    options = watches.WatchOptions(asked.model_dump(include=set(WatchRequestOptions.model_fields)))
    try:
        done = watches.add(rt, asked.what, options, dry_run=asked.dry_run)
    except UnknownReference as error:
        raise HttpProblem(400, f"what: {error}") from error
    is_new = done.result == "added" and not asked.dry_run
    return reply(WatchAdded.of(done, dry_run=asked.dry_run), 201 if is_new else 200)


def import_list(rt: Runtime, call: ApiRequest) -> ImportReport:
    dry_run = call.query.dry_run
    return ImportReport.of_lines(
        watches.import_list(rt, call.body, watches.WatchOptions({}), dry_run=dry_run), dry_run=dry_run
    )


def pause(rt: Runtime, call: ApiRequest) -> WatchPaused:
    row = _found(call, also_removed=False)
    changed = watches.pause(rt, row, dry_run=call.body.dry_run)
    waiting = watch_admin.waiting_items(row.id)
    return WatchPaused.of(find(row.id), changed=changed, dry_run=call.body.dry_run, waiting_items=waiting)


def resume(rt: Runtime, call: ApiRequest) -> WatchChanged:
    row = _found(call, also_removed=False)
    changed = watches.resume(rt, row, dry_run=call.body.dry_run)
    return WatchChanged.of(find(row.id), changed=changed, dry_run=call.body.dry_run)


def reset(rt: Runtime, call: ApiRequest) -> WatchChanged:
    row = _found(call, also_removed=False)
    watches.reset(rt, row, call.body.emit, dry_run=call.body.dry_run)
    return WatchChanged.of(find(row.id), changed=True, dry_run=call.body.dry_run)


def remove(rt: Runtime, call: ApiRequest) -> WatchChanged:
    row = _found(call, also_removed=False)
    watches.remove(rt, row, dry_run=call.query.dry_run)
    return WatchChanged.of(find(row.id) or row, changed=True, dry_run=call.query.dry_run)


def poll(rt: Runtime, call: ApiRequest) -> PollResult:
    row = _found(call, also_removed=False)
    refuse_poll(rt.settings, row.source)
    return PollResult.of(watches.poll_now(rt, row))


# ── all watches of a source ─────────────────────────────────────────────────────────────────────────────


async def poll_source(request: Request) -> Response:
    """Poll every active watch of one source now; new items are stored, and the worker delivers them."""
    sidecar: Sidecar = request.app.state.sidecar
    name = request.path_params["name"]

    async def poll_one(watch: Watch) -> PollNowResult:
        try:
            return await sidecar.run(lambda rt: watches.poll_now(rt, watch))
        except CsiError as error:
            return PollNowResult(watch.ref, error=str(error))

    try:
        refuse_poll(await sidecar.settings(), name)
    except HttpProblem as error:
        return problem(error.status, str(error))
    found = await sidecar.run(lambda rt: _active_watches(rt, name))
    return reply(SourcePollReport.of_results(name, await asyncio.gather(*map(poll_one, found))))


def refuse_poll(settings: Settings, name: str) -> None:
    if name not in settings.sources:
        known = ", ".join(settings.sources) or "none"
        raise HttpProblem(404, f"no source with this name is configured; configured: {known}")
    if not settings.sources[name].enabled:
        raise HttpProblem(409, f"sources.{name} is disabled; set enabled: true and restart")
    if not settings.features.polling:
        raise HttpProblem(409, "polling is switched off (features.polling)")


def _active_watches(rt: Runtime, name: str) -> list[Watch]:
    """The worker keeps the watches in step with the configuration; without a worker this process does."""
    if not worker_status(rt).is_alive:
        sync_watches(rt)
    return of_source(name)


_ABSENT: dict[int, str] = {404: "No watch with this id"}
_ONE = "/sources/{id}"
_LIST = "An OPML file, Google Takeout's subscriptions.csv, or one channel, playlist or video per line"
_OFF = {409: "The source, or polling, is switched off"}
_change: dict[str, Any] = {"body": DryRun, "refusals": _ABSENT}

OPERATIONS = [
    Operation(
        "GET", "/sources", "listSources", "Every watch: its health, its last and next poll, its last error",
        list_watches, query=WatchQuery,
    ),
    Operation(
        "POST", "/sources", "addSource", "Watch a channel or playlist. Looking up a handle, name or video costs a unit",
        add, answer=WatchAdded, body=WatchRequest,
        refusals={409: "The source is switched off, or the look-up needs an API key", 502: "The look-up failed"},
    ),
    Operation(
        "GET", "/sources/export", "exportSources", "Every watch as OPML", export, answer=str, media_type="text/x-opml"
    ),
    Operation(
        "POST", "/sources/import", "importSources", "Add every entry of a list; an invalid entry does not stop others",
        import_list, query=DryRun, text_body=_LIST, refusals={409: "The list cannot be read"},
    ),
    Operation("GET", _ONE, "getSource", "One watch", show_watch, refusals=_ABSENT),
    Operation(
        "DELETE", _ONE, "removeSource", "Remove a watch that was added by command", remove, query=DryRun,
        refusals=_ABSENT | {409: "It is in the configuration"},
    ),
    Operation(
        "POST", f"{_ONE}/pause", "pauseSource", "Stop polling, also across restarts, until it is resumed", pause,
        **_change,
    ),
    Operation("POST", f"{_ONE}/resume", "resumeSource", "Poll a paused watch again, at once", resume, **_change),
    Operation(
        "POST", f"{_ONE}/reset", "resetSource", "Forget the baseline: the next poll is like the first", reset,
        body=ResetRequest, refusals=_ABSENT,
    ),
    Operation(
        "POST", f"{_ONE}/poll", "pollSource", "Poll it now; the worker delivers new items", poll,
        refusals=_ABSENT | _OFF,
    ),
    Operation(
        "POST", "/adapters/{name}/poll", "pollAdapter", "Poll every watch of a source now", endpoint=poll_source,
        answer=SourcePollReport, refusals={404: "No source with this name"} | _OFF,
    ),
]  # fmt: skip
