"""`/events`: event search, and the timeline of one event."""

import json
from typing import Any
from urllib.parse import urlencode

from markupsafe import escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from csi.api_models import TimelineJson
from csi.api_models.events import TimelineStep
from csi.config.durations import parse_since
from csi.config.settings import TIERS
from csi.dlq import dead_letters
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status.search import find_event, search
from csi.status.timeline import timeline_of
from csi.store import events
from csi.store.queries.event_search import EventQuery, EventRow
from csi.web import curl_command
from csi.web.api.events import EVENT_STATES
from csi.web.page_rendering import Facts, Page, present

SHOWN = 50
SPANS = {"1h": "last hour", "24h": "last day", "7d": "last week"}


async def show(request: Request) -> Response:
    given = {name: clean(value, 200).strip() for name, value in request.query_params.items()}
    return await present(request, "events.html", lambda rt: _facts(rt, given))


def _facts(rt: Runtime, given: dict[str, str]) -> Facts:
    """A filter that is none is as good as absent: a page is not an API."""
    kept = {
        "q": given.get("q", ""),
        "state": _one_of(given.get("state"), EVENT_STATES),
        "source": _one_of(given.get("source"), tuple(rt.settings.sources)),
        "tier": _one_of(given.get("tier"), TIERS),
        "since": _one_of(given.get("since"), tuple(SPANS)),
    }
    before = given.get("before", "")
    is_number = before.isascii() and before.isdigit() and len(before) < 19
    found = search(_query(kept, rt.now()), SHOWN, int(before) if is_number else None)
    older = {name: value for name, value in kept.items() if value} | {"before": found.next_before}
    return {
        "rows": found.events,
        "given": kept,
        "older": urlencode(older) if found.next_before else None,
        "states": EVENT_STATES,
        "sources": list(rt.settings.sources),
        "tiers": TIERS,
        "spans": SPANS,
    }


def _query(kept: dict[str, str], now: float) -> EventQuery:
    return EventQuery(
        text=kept["q"] or None,
        state=kept["state"] or None,
        source=kept["source"] or None,
        tier=kept["tier"] or None,
        since=now - parse_since(kept["since"]) if kept["since"] else None,
    )


def _one_of(text: str | None, words: tuple[str, ...]) -> str:
    return text if text is not None and text in words else ""


async def show_one(request: Request) -> Response:
    number = int(request.path_params["id"])
    return await present(request, "event.html", lambda rt: _one(rt, number))


def _one(rt: Runtime, number: int) -> Facts:
    row = find_event(str(number))
    if row is None:
        raise HTTPException(404)
    story = TimelineJson.of(timeline_of(rt, row.dedupe_key))
    contract = _contract(row)
    return {
        "row": row,
        "story": story,
        "letters": dead_letters.of_item(row.dedupe_key),
        "steps": [_step(step) for step in story.steps],
        "payload": json.dumps(contract, indent=2, ensure_ascii=False),
        # Escaped here, so that it is left as it is: what looks like a credential in it is the name of a variable.
        "curl": escape(curl_command.command(contract, rt.settings.csi.instance_id)),
        "link": _link(story.url),
    }


def _contract(row: EventRow) -> dict[str, Any]:
    stored = events.by_ids([row.id])[0]
    return events.as_contract(stored, stored.emitted_at)


def _step(step: TimelineStep) -> dict[str, Any]:
    """Without what is said elsewhere in the step; the answer of a receiver stands by itself."""
    details = dict(step.details)
    answer = details.pop("answer", None)
    shown = {name: value for name, value in details.items() if value not in (None, "")}
    return {**vars(step), "details": shown, "answer": answer, "mood": shown.get("outcome", step.what)}


def _link(url: str | None) -> str | None:
    """Only an address that leads to YouTube becomes a link: the text came from outside."""
    return url if url and url.startswith("https://www.youtube.com/") else None


async def find(request: Request) -> Response:
    """By event_id, for links from other pages."""
    event_id = clean(request.query_params.get("event_id", ""), 500)
    row = await request.app.state.sidecar.ask(lambda rt: find_event(event_id))
    return RedirectResponse(f"/events/{row.id}" if row else f"/events?{urlencode({'q': event_id})}", 303)


PAGE = Page(
    "/events",
    "Events",
    30,
    [
        Route("/events", show, methods=["GET"]),
        Route("/events/find", find, methods=["GET"]),
        Route("/events/{id:int}", show_one, methods=["GET"]),
    ],
)
