"""`/admin/events`, `/admin/trace`: what was sent, or will be."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from csi.adapters.registry import ADAPTERS
from csi.config.settings import Tier
from csi.runtime import Runtime
from csi.status.item_lookup import story_of
from csi.status.item_lookup import trace as find_stories
from csi.store import events
from csi.store.models import Event
from csi.store.queries import event_search
from csi.store.queries.event_search import Wanted
from csi.web import json_views
from csi.web.api.operation import BIGGEST, MAX_LIMIT, Ago, Call, Given, Operation, Refusal, Whole
from csi.web.api.schema import STAMP, listed, maybe, named, shape, word

EVENT_STATES = ("pending", "in_flight", "delivered", "dead", "quarantined")


def _known_source(name: str) -> str:
    if name not in ADAPTERS:
        raise ValueError(f"must be one of {', '.join(ADAPTERS)}")
    return name


class Listing(Given):
    """Which events; several conditions all hold."""

    limit: Whole = Field(50, ge=1, le=MAX_LIMIT, description="Rows on a page")
    before: Whole | None = Field(None, ge=1, le=BIGGEST, description="The `next` of the page before")
    state: Literal["pending", "in_flight", "delivered", "dead", "quarantined"] | None = Field(
        None, description="Only those in this state"
    )
    source: Annotated[str, AfterValidator(_known_source)] | None = Field(None, description="Only of this source")
    tier: Tier | None = Field(None, description="Only of this tier")
    watch: Whole | None = Field(None, ge=1, le=BIGGEST, description="Only of the watch with this number")
    since: Ago | None = Field(None, ge=0, description="First seen within this time: 1h, 2d")
    q: str | None = Field(None, max_length=200, description="Words of the title or channel, or an id")


class Question(Given):
    """Which item."""

    q: str = Field(min_length=1, max_length=512, description="The id of a video, an event_id or a dedupe key")


def list_events(rt: Runtime, call: Call) -> dict[str, Any]:
    asked: Listing = call.query
    listed_rows = event_search.page(wanted(asked, rt.now()), asked.limit + 1)
    shown = [row.id for row in listed_rows[: asked.limit]]
    following = shown[-1] if len(listed_rows) > asked.limit else None
    return {"events": [json_views.event(row) for row in events.by_ids(shown)], "next": following}


def wanted(asked: Listing, now: float) -> Wanted:
    return Wanted(
        words=(asked.q or "").strip(),
        state=asked.state,
        source=asked.source,
        tier=asked.tier,
        watch_id=asked.watch,
        since=None if asked.since is None else now - asked.since,
        before=asked.before,
    )


def show_event(rt: Runtime, call: Call) -> dict[str, Any]:
    """By its number or its event_id."""
    row = _find(call.path["id"])
    return json_views.event(row) | {"story": json_views.story(story_of(rt, row.dedupe_key))}


def _find(text: str) -> Event:
    is_number = text.isascii() and text.isdigit() and len(text) <= 18
    number = int(text) if is_number else event_search.find_id(text)
    found = events.by_ids([number]) if number is not None else []
    if not found:
        raise Refusal(404, "there is no such event")
    return found[0]


def trace(rt: Runtime, call: Call) -> dict[str, Any]:
    found = find_stories(rt, call.query.q)
    told = [json_views.story(story) for story in found.stories]
    return {"query": found.query, "found": len(told), "more": found.is_cut, "items": told}


EVENT = shape(
    id=int,
    event_id=str,
    dedupe_key=str,
    source=str,
    event_type=str,
    occurred_at=STAMP,
    received_at=STAMP,
    emitted_at=maybe(STAMP),
    subject=dict,
    routing=dict,
    metadata=dict,
    raw_ref=maybe(str),
    contract_version=str,
    state=word(*EVENT_STATES),
    tier=str,
    first_seen_at=STAMP,
    delivered_at=maybe(STAMP),
)
STORY = shape(
    dedupe_key=str,
    event_id=maybe(str),
    state=str,
    reason=str,
    source=maybe(str),
    event_type=maybe(str),
    title=maybe(str),
    url=maybe(str),
    watch=maybe(str),
    destinations=listed(shape(destination=str, state=str, reason=str)),
    steps=listed(shape(at=str, what=str, text=str, details=dict)),
)
SCHEMAS = {"Event": EVENT, "Story": STORY}

OPERATIONS = [
    Operation(
        "GET",
        "/events",
        "listEvents",
        "Events, newest first",
        shape(events=listed(named("Event")), next=maybe(int)),
        list_events,
        query=Listing,
    ),
    Operation(
        "GET",
        "/events/{id}",
        "getEvent",
        "One event as it is sent, by number or event_id, with its story from sighting to receipt",
        {"allOf": [named("Event"), shape(story=named("Story"))]},
        show_event,
        refusals={404: "No such event"},
    ),
    Operation(
        "GET",
        "/trace",
        "traceItem",
        "The whole story of an item: every row it left behind",
        shape(query=str, found=int, more=bool, items=listed(named("Story"))),
        trace,
        query=Question,
    ),
]
