"""`/admin/sources`, `/admin/adapters`, `/admin/config`: watches, as `csi sources` shows and changes them."""

import asyncio
from functools import partial
from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from csi import api_models
from csi.adapters.youtube.references import UnknownReference
from csi.admin import watch_options, watches
from csi.admin.watches import PollNowResult
from csi.config.settings import Settings
from csi.errors import CsiError
from csi.pipeline.schedule import sync_watches
from csi.runtime import Runtime
from csi.status.worker import worker_status
from csi.store import poll_history, watch_admin
from csi.store.models import Watch
from csi.store.watches import find, of_source
from csi.web.operation_definition import MAX_ID, Limit, OperationList, RequestModel, Whole, page_of
from csi.web.responses import HttpProblem, problem, reply
from csi.web.shared_state import Sidecar

PREVIEW = "Report what would happen, and change nothing"
ABSENT = {404: "No watch with this id"}
OFF = {409: "The source, or polling, is switched off"}

OPERATIONS = OperationList()


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

    what: str = Field(
        min_length=1, max_length=500, description="A channel id, URL, playlist, video, @handle or feed, or a plugin's"
    )
    source: str | None = Field(None, max_length=64, description="The source it belongs to; default: found by its form")
    dry_run: bool = Field(False, description=PREVIEW)


class WatchChange(WatchRequestOptions):
    """Options to set; null takes the source's default again. Options that are not given stay as they are."""

    revision: str | None = Field(None, max_length=64, description="Refuse if the watch has another one by now")
    from_file: bool = Field(False, description="Make all options those of the configuration file again")
    dry_run: bool = Field(False, description=PREVIEW)


class DryRun(RequestModel):
    """Whether to change anything."""

    dry_run: bool = Field(False, description=PREVIEW)


class ResetRequest(DryRun):
    """What the next poll does with the items that are listed now."""

    emit: Literal["all", "none"] = Field(description="Emit every item that never became an event, or none")


@OPERATIONS.add(
    "POST", "/config/accept", "acceptRemoval",
    "Remove the watches that are held because the configuration no longer has most of them",
)  # fmt: skip
def accept_removal(rt: Runtime, body: DryRun) -> api_models.RemovalReport:
    return api_models.RemovalReport.of_watches(watches.accept_removal(rt, dry_run=body.dry_run), dry_run=body.dry_run)


# ── read ────────────────────────────────────────────────────────────────────────────────────────────────


@OPERATIONS.add("GET", "/sources", "listSources", "Every watch: its health, its last and next poll, its last error")
def list_watches(rt: Runtime, query: WatchQuery) -> api_models.WatchList:
    rows = [
        row
        for row in watch_admin.every(removed=query.state == "removed")
        if query.source in (None, row.source)
        and query.state in (None, row.state)
        and (query.after is None or row.id > query.after)
    ]
    shown, following = page_of(sorted(rows, key=lambda row: int(row.id)), query.limit)
    return api_models.WatchList(watches=api_models.WatchJson.of_rows(rt, shown), next=following)


@OPERATIONS.add("GET", "/sources/export", "exportSources", "Every watch as OPML", answer=str, media_type="text/x-opml")
def export(rt: Runtime) -> Response:
    headers = {"Content-Disposition": "attachment"}
    return Response(
        watches.export_list(rt, partial(watch_options.options_of, rt)), media_type="text/x-opml", headers=headers
    )


@OPERATIONS.add("GET", "/sources/{id}", "getSource", "One watch", refusals=ABSENT)
def show_watch(rt: Runtime, number: int) -> api_models.WatchDetail:
    return api_models.WatchDetail.of_watch(rt, _found(number, also_removed=True))


@OPERATIONS.add(
    "GET", "/sources/{id}/reads", "listReads", "The last 200 reads of a watch: result, duration, error", refusals=ABSENT
)
def list_reads(rt: Runtime, number: int) -> api_models.WatchReads:
    return api_models.WatchReads.of(reads=poll_history.of_watch(_found(number, also_removed=True).id))


def _found(number: int, *, also_removed: bool = False) -> Watch:
    row = find(number)
    if row is None:
        raise HttpProblem(404, "there is no watch with this id")
    if row.state == "removed" and not also_removed:
        raise HttpProblem(404, "this watch was removed")
    return row


# ── change ──────────────────────────────────────────────────────────────────────────────────────────────


@OPERATIONS.add(
    "POST", "/sources", "addSource", "Watch a channel or playlist. Looking up a handle, name or video costs a unit",
    answer=api_models.WatchAdded,
    refusals={409: "The source is switched off, or the look-up needs an API key", 502: "The look-up failed"},
)  # fmt: skip
def add(rt: Runtime, body: WatchRequest) -> Response:
    """201 for a new watch; 200 for one that exists, and for a dry run."""
    options = watches.WatchOptions(body.model_dump(include=set(WatchRequestOptions.model_fields)))
    try:
        done = watches.add(rt, body.what, options, source=body.source, dry_run=body.dry_run)
    except UnknownReference as error:
        raise HttpProblem(400, f"what: {error}") from error
    is_new = done.result == "added" and not body.dry_run
    return reply(api_models.WatchAdded.of(done, dry_run=body.dry_run), 201 if is_new else 200)


@OPERATIONS.add(
    "PATCH", "/sources/{id}", "changeSource", "Change the options of a watch",
    refusals=ABSENT | {409: "The options are not valid, or it was changed meanwhile"},
)  # fmt: skip
def change(rt: Runtime, number: int, body: WatchChange) -> api_models.WatchOptionsChanged:
    row = _found(number)
    given = body.model_dump(include=body.model_fields_set & set(WatchRequestOptions.model_fields))
    changes = watch_options.change(
        rt, row, given, revision=body.revision, from_file=body.from_file, dry_run=body.dry_run
    )
    revision = watch_options.revision_of(rt, _found(number))
    return api_models.WatchOptionsChanged.of(id=row.id, dry_run=body.dry_run, changes=changes, revision=revision)


@OPERATIONS.add(
    "POST", "/sources/import", "importSources", "Add every entry of a list; an invalid entry does not stop others",
    text_body="An OPML file, Google Takeout's subscriptions.csv, or one channel, playlist or video per line",
    refusals={409: "The list cannot be read"},
)  # fmt: skip
def import_list(rt: Runtime, query: DryRun, body: bytes) -> api_models.ImportReport:
    lines = watches.import_list(rt, body, watches.WatchOptions({}), dry_run=query.dry_run)
    return api_models.ImportReport.of_lines(lines, dry_run=query.dry_run)


@OPERATIONS.add(
    "POST", "/sources/{id}/pause", "pauseSource", "Stop polling, also across restarts, until it is resumed",
    refusals=ABSENT,
)  # fmt: skip
def pause(rt: Runtime, number: int, body: DryRun) -> api_models.WatchPaused:
    changed = watches.pause(rt, _found(number), dry_run=body.dry_run)
    waiting = watch_admin.waiting_items(number)
    return api_models.WatchPaused.of(find(number), changed=changed, dry_run=body.dry_run, waiting_items=waiting)


@OPERATIONS.add("POST", "/sources/{id}/resume", "resumeSource", "Poll a paused watch again, at once", refusals=ABSENT)
def resume(rt: Runtime, number: int, body: DryRun) -> api_models.WatchChanged:
    changed = watches.resume(rt, _found(number), dry_run=body.dry_run)
    return api_models.WatchChanged.of(find(number), changed=changed, dry_run=body.dry_run)


@OPERATIONS.add(
    "POST", "/sources/{id}/reset", "resetSource", "Forget the baseline: the next poll is like the first",
    refusals=ABSENT,
)  # fmt: skip
def reset(rt: Runtime, number: int, body: ResetRequest) -> api_models.WatchChanged:
    watches.reset(rt, _found(number), body.emit, dry_run=body.dry_run)
    return api_models.WatchChanged.of(find(number), changed=True, dry_run=body.dry_run)


@OPERATIONS.add(
    "DELETE", "/sources/{id}", "removeSource", "Remove a watch that was added by command",
    refusals=ABSENT | {409: "It is in the configuration"},
)  # fmt: skip
def remove(rt: Runtime, number: int, query: DryRun) -> api_models.WatchChanged:
    row = _found(number)
    watches.remove(rt, row, dry_run=query.dry_run)
    return api_models.WatchChanged.of(find(number) or row, changed=True, dry_run=query.dry_run)


@OPERATIONS.add(
    "POST", "/sources/{id}/poll", "pollSource", "Poll it now; the worker delivers new items", refusals=ABSENT | OFF
)
def poll(rt: Runtime, number: int, body: DryRun) -> api_models.PollResult | api_models.WatchChanged:
    row = _found(number)
    refuse_poll(rt.settings, row.source)
    if body.dry_run:
        return api_models.WatchChanged.of(row, changed=True, dry_run=True)
    return api_models.PollResult.of(watches.poll_now(rt, row))


# ── all watches of a source ─────────────────────────────────────────────────────────────────────────────


@OPERATIONS.add(
    "POST", "/adapters/{name}/poll", "pollAdapter", "Poll every watch of a source now",
    answer=api_models.SourcePollReport, refusals={404: "No source with this name"} | OFF,
)  # fmt: skip
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
    return reply(api_models.SourcePollReport.of_results(name, await asyncio.gather(*map(poll_one, found))))


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
