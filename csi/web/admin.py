"""The admin API: read a source now, look at the newest events."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi import clock
from csi.adapters.registry import ADAPTERS
from csi.errors import CsiError
from csi.flow.ingest import ingest
from csi.flow.plan import sync_watches
from csi.flow.poll import poll
from csi.ingester.config import Settings
from csi.logs import redact
from csi.runtime import Runtime
from csi.store import events, watches
from csi.store.models import Event, Watch
from csi.web.answers import problem, reply
from csi.web.facts import gather
from csi.web.health import FRESH_SECONDS, is_beating
from csi.web.sidecar import Sidecar

EVENT_STATES = ("pending", "in_flight", "delivered", "dead", "quarantined")
MAX_LIMIT = 500


@dataclass(frozen=True)
class Outcome:
    """What came of one watch. `error` None and not busy: it was read."""

    ref: str
    new_items: int = 0
    is_busy: bool = False
    error: str | None = None


@dataclass(frozen=True)
class EventQuery:
    """The checked parameters of `GET /admin/events`."""

    limit: int = 50
    state: str | None = None
    source: str | None = None
    before: int | None = None


async def poll_source(request: Request) -> Response:
    """Read every active watch of one source now; what is new is stored, and the worker sends it."""
    sidecar: Sidecar = request.app.state.sidecar
    name = request.path_params["name"]
    refused = _refuse_poll(await sidecar.settings(), name)
    if refused:
        return refused
    found = await sidecar.work(lambda rt: _watches(rt, name))
    outcomes = await asyncio.gather(*(_poll_in_thread(sidecar, watch) for watch in found))
    return reply(_summary(name, outcomes))


async def list_events(request: Request) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    try:
        query = read_query(request.query_params.multi_items())
    except ValueError as error:
        return problem(400, str(error))
    return reply(await sidecar.ask(lambda rt: _page(query)))


ROUTES = [
    Route("/adapters/{name}/poll", poll_source, methods=["POST"]),
    Route("/events", list_events, methods=["GET"]),
]


def read_query(pairs: list[tuple[str, str]]) -> EventQuery:
    """ValueError says which parameter is wrong and what it may be. An empty one is as good as absent."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in EventQuery.__dataclass_fields__:
            raise ValueError("unknown parameter; known are limit, state, source and before")
        if name in given:
            raise ValueError(f"{name} is given twice")
        given[name] = value
    return EventQuery(
        limit=_number(given, "limit", MAX_LIMIT) or EventQuery.limit,
        state=_word(given, "state", EVENT_STATES),
        source=_word(given, "source", tuple(ADAPTERS)),
        before=_number(given, "before", 2**63 - 1),
    )


def _number(given: Mapping[str, str], name: str, highest: int) -> int | None:
    text = given.get(name, "")
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
    if not 1 <= number <= highest:
        raise ValueError(f"{name} must be a whole number from 1 to {highest}")
    return number


def _word(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str | None:
    text = given.get(name, "")
    if text and text not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}")
    return text or None


def _page(query: EventQuery) -> dict[str, Any]:
    rows = events.page(query.limit + 1, state=query.state, source=query.source, before=query.before)
    shown = rows[: query.limit]
    following = shown[-1].id if len(rows) > query.limit else None
    return {"events": [_as_json(row) for row in shown], "next": following}


def _as_json(row: Event) -> dict[str, Any]:
    return events.as_contract(row, row.emitted_at) | {
        "id": row.id,
        "state": row.state,
        "tier": row.tier,
        "first_seen_at": clock.iso(row.first_seen_at),
        "delivered_at": None if row.delivered_at is None else clock.iso(row.delivered_at),
    }


def _refuse_poll(settings: Settings, name: str) -> Response | None:
    if name not in settings.sources:
        known = ", ".join(settings.sources) or "none"
        return problem(404, f"no adapter of that name is configured; configured: {known}")
    if not settings.sources[name].enabled:
        return problem(409, f"sources.{name} is disabled; set enabled: true and restart")
    if not settings.features.polling:
        return problem(409, "polling is switched off (features.polling)")
    return None


def _watches(rt: Runtime, name: str) -> list[Watch]:
    """The worker keeps the watches in step with its configuration; only where none is alive do we."""
    if not is_beating(gather(rt), FRESH_SECONDS):
        sync_watches(rt)
    return watches.of_source(name)


async def _poll_in_thread(sidecar: Sidecar, watch: Watch) -> Outcome:
    try:
        return await sidecar.work(lambda rt: _poll_watch(rt, watch))
    except CsiError as error:
        return Outcome(watch.ref, error=redact(str(error)))


def _poll_watch(rt: Runtime, before: Watch) -> Outcome:
    wakes = [wake for wake in poll(rt, before.id, early=True) if wake.step == "ingest"]
    for wake in wakes:
        ingest(rt, int(wake.key))
    return _outcome(before, watches.find(before.id), len(wakes))


def _outcome(before: Watch, after: Watch | None, new_items: int) -> Outcome:
    """A poll that was not ours to make has left no time of its own."""
    if new_items:
        return Outcome(before.ref, new_items)
    if after is None or after.lease_token is not None or after.last_poll_at == before.last_poll_at:
        return Outcome(before.ref, is_busy=True)
    return Outcome(before.ref, error=redact(after.last_error) if after.last_error else None)


def _summary(name: str, outcomes: list[Outcome]) -> dict[str, Any]:
    failed = [{"watch": one.ref, "error": one.error} for one in outcomes if one.error]
    busy = sum(one.is_busy for one in outcomes)
    return {
        "adapter": name,
        "watches": len(outcomes),
        "polled": len(outcomes) - busy - len(failed),
        "busy": busy,
        "new_items": sum(one.new_items for one in outcomes),
        "errors": failed,
    }
