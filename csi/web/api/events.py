"""`/admin/events`, `/admin/trace`: events and timelines."""

from typing import Annotated, get_args

from pydantic import AfterValidator, Field

from csi.adapters import registry
from csi.admin import resend_by_command, watches
from csi.admin.watches import WatchRefused
from csi.api_models import EventDetail, EventList, ResendReport, Trace
from csi.api_models.events import EventState
from csi.config.setting_types import Tier
from csi.runtime import Runtime
from csi.status import timeline
from csi.store import events
from csi.store.queries import event_search
from csi.store.queries.event_search import EventQuery
from csi.web.operation_definition import Ago, BeforeId, Limit, OperationList, RequestModel
from csi.web.responses import HttpProblem

EVENT_STATES: tuple[str, ...] = get_args(EventState)

OPERATIONS = OperationList()


def _known_source(name: str) -> str:
    if name not in (known := registry.installed()):
        raise ValueError(f"must be one of {', '.join(known)}")
    return name


class EventListQuery(RequestModel):
    """Which events; all conditions must hold."""

    limit: Limit = 50
    before: BeforeId = None
    state: EventState | None = Field(None, description="Only events in this state")
    source: Annotated[str, AfterValidator(_known_source)] | None = Field(None, description="Only of this source")
    tier: Tier | None = Field(None, description="Only of this tier")
    watch: str | None = Field(None, max_length=500, description="Only of this watch: its number, id, name or URL")
    since: Ago | None = Field(None, ge=0, description="First seen within this time: 1h, 2d")
    q: str | None = Field(None, max_length=200, description="Words of the title or channel, or an id")


class ResendRequest(RequestModel):
    """Which events are sent again: `ids`, or conditions that must all hold."""

    ids: tuple[str, ...] = Field((), max_length=10_000, description="Numbers or event_ids")
    since: Ago | None = Field(None, ge=0, description="First seen within this time: 1h, 2d")
    watch: int | Annotated[str, Field(max_length=500)] | None = Field(
        None, description="Of this watch: its number, id, name or URL"
    )
    source: Annotated[str, AfterValidator(_known_source)] | None = Field(None, description="Of this source")
    destination: str | None = Field(None, max_length=100, description="Only to this one; default: each that got it")
    dry_run: bool = Field(False, description="List what would be sent, and change nothing")
    confirm: bool = Field(False, description="Must be true for more than 100 events, unless dry_run is")


class TraceQuery(RequestModel):
    """Which item."""

    q: str = Field(min_length=1, max_length=512, description="The id of a video, an event_id or a dedupe key")


def _watch_id(rt: Runtime, watch: int | str | None) -> int | None:
    """A number is taken as it is: events outlive their watch, which only the number still names."""
    text = "" if watch is None else str(watch).strip()
    if not text or (text.isascii() and text.isdigit() and len(text) < 19):
        return int(text) if text else None
    try:
        return watches.find_watch(rt, text).id
    except WatchRefused as error:
        raise HttpProblem(404, str(error)) from error


@OPERATIONS.add("GET", "/events", "listEvents", "Events, newest first", refusals={404: "No watch of this name"})
def list_events(rt: Runtime, query: EventListQuery) -> EventList:
    wanted = EventQuery(
        text=(query.q or "").strip() or None,
        state=query.state,
        source=query.source,
        tier=query.tier,
        watch_id=_watch_id(rt, query.watch),
        since=None if query.since is None else rt.now() - query.since,
    )
    found = event_search.page(wanted, query.limit, query.before)
    return EventList.of(events=events.by_ids([row.id for row in found.events]), next=found.next_before)


@OPERATIONS.add(
    "GET", "/events/{id}", "getEvent", "One event as it is sent, by number or event_id, with its timeline",
    refusals={404: "No event with this id"},
)  # fmt: skip
def show_event(rt: Runtime, id: str) -> EventDetail:
    row = event_search.find(id)
    if row is None:
        raise HttpProblem(404, "there is no event with this id")
    return EventDetail.of(events.by_ids([row.id])[0], timeline=timeline.timeline_of(rt, row.dedupe_key))


@OPERATIONS.add(
    "POST", "/events/resend", "resendEvents", "Send events again: the same events, the same ids",
    refusals={404: "No watch of this name", 409: "An event or the destination does not exist"},
)  # fmt: skip
def resend(rt: Runtime, body: ResendRequest) -> ResendReport:
    conditions = (body.since, body.watch, body.source)
    if bool(body.ids) == any(one is not None for one in conditions):
        raise HttpProblem(400, "give ids, or since, watch or source")
    begin = None if body.since is None else rt.now() - body.since
    query = None if body.ids else EventQuery(source=body.source, watch_id=_watch_id(rt, body.watch), since=begin)
    chosen = resend_by_command.choose(body.ids, query)
    if len(chosen) > resend_by_command.CONFIRM_ABOVE and not (body.dry_run or body.confirm):
        raise HttpProblem(400, f"{len(chosen)} events: send confirm: true, or dry_run: true for a preview")
    done = resend_by_command.resend(rt, chosen, body.destination, named=bool(body.ids), dry_run=body.dry_run)
    return ResendReport.of(done)


@OPERATIONS.add("GET", "/trace", "traceItem", "The timelines of an item, from all its rows")
def trace(rt: Runtime, query: TraceQuery) -> Trace:
    found = timeline.trace(rt, query.q)
    return Trace.of(query=found.query, found=len(found.timelines), more=found.is_cut, items=found.timelines)
