"""`/dead-letters`: dead letters grouped by error; replay one, a group or a filter, or discard one."""

import json
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from csi.admin.replay_by_command import obstacles, replay_all
from csi.api_models import AttemptJson
from csi.dlq import dead_letters, discard_and_prune, search
from csi.dlq.dead_letters import StoredDeadLetter
from csi.dlq.search import DeadLetterFilter
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status import destination_details
from csi.store import watches
from csi.store.models import Watch
from csi.store.queries import event_search
from csi.web import formatting
from csi.web.api.dlq import attempts_of
from csi.web.auth import Color
from csi.web.page_rendering import Context, DashboardPage, number_of, redirect
from csi.web.shared_state import Sidecar

SHOWN = 50
PATH = "/dead-letters"
CONDITIONS = ("source", "destination", "cause", "error", "error_like")
STATES = (*dead_letters.STATES, "all")
MOST = 10_000
"""Dead letters that one click replays; the rest stays open."""

PAGE = DashboardPage(PATH, "Dead letters", 40, lambda rt: dead_letters.open_count(), key="d")


@PAGE.view(PATH, "dead_letters.html")
def show(rt: Runtime, request: Request) -> Context:
    given = {name: clean(value, 500).strip() for name, value in request.query_params.items()}
    chosen: dict[str, Any] = {name: given[name] for name in CONDITIONS if given.get(name)}
    if chosen.get("cause") in dead_letters.OLD_CAUSES:
        chosen["cause"] = dead_letters.OLD_CAUSES[chosen["cause"]]
    state = given["state"] if given.get("state") in STATES else "open"
    wanted = DeadLetterFilter(states=dead_letters.STATES if state == "all" else (state,), **chosen)
    sort = "oldest" if given.get("sort") == "oldest" else ""
    rows = search.page(wanted, SHOWN + 1, number_of(given.get("after")), is_oldest_first=bool(sort))
    shown = rows[:SHOWN]
    return {
        "groups": search.groups(wanted, "error"),
        "rows": shown,
        "given": {"error": "", **chosen, "state": "" if state == "open" else state, "sort": sort},
        "sources": list(rt.settings.sources),
        "destinations": [one.name for one in destination_details.summaries(rt)],
        "watches": _watches_of(shown),
        "is_first": not given.get("after"),
        "total": search.count(wanted),
        "chosen": chosen,
        "state": state,
        "states": STATES,
        "causes": tuple(formatting.CAUSES),
        "following": shown[-1].id if len(rows) > SHOWN else None,
        "redrive": rt.settings.dlq.auto_redrive,
    }


def _watches_of(rows: Sequence[StoredDeadLetter]) -> dict[str, Watch]:
    """By event id: the watch that saw the event of a dead letter."""
    ids = [row.event_id for row in rows if row.kind == "event"]
    found = event_search.watch_ids(ids)
    known = {watch.id: watch for watch in (watches.find(number) for number in set(found.values())) if watch is not None}
    return {event_id: known[number] for event_id, number in found.items() if number in known}


@PAGE.view(f"{PATH}/{{id:int}}", "dead_letter.html")
def show_one(rt: Runtime, request: Request) -> Context:
    number = int(request.path_params["id"])
    found = dead_letters.find(number) if number < 2**62 else None
    if found is None:
        raise HTTPException(404)
    return {
        "dead_letter": found,
        "watch": _watches_of([found]).get(found.event_id),
        "attempts": [AttemptJson.of(one) for one in attempts_of(found)],
        "payload": json.dumps(found.payload, indent=2, ensure_ascii=False),
    }


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────────


@PAGE.endpoint("POST", f"{PATH}/replay")
async def replay(request: Request) -> Response:
    """One dead letter (`id`), a group or a filter (conditions), or every open one (`all`)."""
    sidecar: Sidecar = request.app.state.sidecar
    form: dict[str, str] = request.state.form
    color, text = await sidecar.run(lambda rt: _replay(rt, _chosen(form)))
    return redirect(request, _page_of(form), text, color)


def _replay(rt: Runtime, chosen: list[int]) -> tuple[Color, str]:
    if not chosen:
        return "bad", "No open dead letter matches."
    outcomes = replay_all(rt, chosen[:MOST])
    sent = sum(one.is_sent for one in outcomes)
    failed = next((f" {one.letter_id}: {one.note}." for one in outcomes if not one.is_sent), "")
    notes = "".join(f" Note: {note}." for note in obstacles(rt, outcomes))
    count = formatting.plural(len(outcomes), "dead letter")
    text = f"{sent:,} of {count} pending again; the worker sends them.{failed}{notes}"
    return ("good" if sent == len(outcomes) else "bad"), text


def _chosen(form: dict[str, str]) -> list[int]:
    if number := number_of(form.get("id")):
        return [number]
    if form.get("ticked") == "yes":
        return _ticked(form)
    conditions: dict[str, Any] = {name: form[name] for name in CONDITIONS if form.get(name)}
    if "error" in form:
        conditions["error"] = form["error"]  # also empty: dead letters without a reason are a group
    return search.ids(DeadLetterFilter(**conditions)) if conditions or form.get("all") == "yes" else []


def _ticked(form: dict[str, str]) -> list[int]:
    numbers = (number_of(name.removeprefix("letter-")) for name in form if name.startswith("letter-"))
    return [number for number in numbers if number]


@PAGE.endpoint("POST", f"{PATH}/discard")
async def discard(request: Request) -> Response:
    """One dead letter (`id`), or the ticked ones of the list (`letter-<number>`)."""
    sidecar: Sidecar = request.app.state.sidecar
    form: dict[str, str] = request.state.form
    if form.get("sure") != "yes":
        return redirect(request, _page_of(form), "Nothing was discarded: tick the box to confirm.", "bad")
    number, reason = number_of(form.get("id")), clean(form.get("reason", ""), 200).strip() or "by the dashboard"
    chosen = [number] if number else _ticked(form)

    def close(rt: Runtime) -> list[int]:
        found, days = dead_letters.by_ids(chosen), rt.settings.retention.dedupe_days
        return discard_and_prune.discard(found, rt.now(), result=reason, key_days=days)

    closed = await sidecar.run(close)
    if not closed:
        return redirect(request, _page_of(form), "None of them is open any more; nothing changed.", "bad")
    what = f"Dead letter {closed[0]} is" if len(closed) == 1 else f"{len(closed)} dead letters are"
    return redirect(request, _page_of(form), f"{what} discarded and not delivered.")


def _page_of(form: dict[str, str]) -> str:
    """The page that had the form: the dead letter's own, or the list."""
    number = number_of(form.get("id"))
    return f"{PATH}/{number}" if form.get("from") == "dead_letter" and number else PATH
