"""`/dead-letters`: what failed, grouped by error; send one, a group or a choice again, or give it up."""

import json
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.admin import replay_by_command
from csi.api_models import AttemptJson
from csi.dlq import dead_letters as letters
from csi.dlq import discard_and_prune, search
from csi.dlq.search import DeadLetterFilter
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.web import formatting
from csi.web.api.dlq import attempts_of
from csi.web.page_rendering import Facts, Page, back, present
from csi.web.runtime_access import Sidecar
from csi.web.session import Mood

SHOWN = 50
HOME = "/dead-letters"
CONDITIONS = ("source", "destination", "cause", "error", "error_like")
MOST = 10_000
"""Letters that one click sends again; the rest waits for the next."""


async def show(request: Request) -> Response:
    given = {name: clean(value, 500).strip() for name, value in request.query_params.items()}
    return await present(request, "dead_letters.html", lambda rt: _facts(rt, given))


def _facts(rt: Runtime, given: dict[str, str]) -> Facts:
    chosen = {name: given[name] for name in CONDITIONS if given.get(name)}
    state = given.get("state", "open") if given.get("state") in (*letters.STATES, "all") else "open"
    wish = _wish(chosen, letters.STATES if state == "all" else (state,))
    before = given.get("before", "")
    is_number = before.isascii() and before.isdigit() and 0 < len(before) < 19
    rows = search.page(wish, SHOWN + 1, int(before) if is_number else None)
    older = chosen | {"state": state, "before": str(rows[SHOWN - 1].id)} if len(rows) > SHOWN else None
    return {
        "groups": search.groups(wish, "error"),
        "rows": rows[:SHOWN],
        "total": search.count(wish),
        "chosen": chosen,
        "state": state,
        "states": (*letters.STATES, "all"),
        "causes": tuple(formatting.CAUSES),
        "older": urlencode(older) if older else None,
        "redrive": rt.settings.dlq.auto_redrive,
    }


def _wish(chosen: dict[str, str], states: tuple[str, ...] = ("open",)) -> DeadLetterFilter:
    known: dict[str, Any] = {name: value for name, value in chosen.items() if name in CONDITIONS}
    return DeadLetterFilter(states=states, **known)


async def show_one(request: Request) -> Response:
    number = int(request.path_params["id"])
    return await present(request, "dead_letter.html", lambda rt: _one(number))


def _one(number: int) -> Facts:
    letter = letters.find(number) if number < 2**62 else None
    if letter is None:
        raise HTTPException(404)
    return {
        "letter": letter,
        "attempts": [AttemptJson.of(one) for one in attempts_of(letter)],
        "payload": json.dumps(letter.payload, indent=2, ensure_ascii=False),
    }


# ── acts ────────────────────────────────────────────────────────────────────────────────────────────────


async def replay(request: Request) -> Response:
    """One (`id`), a group or a filter (conditions), or every open one (`all`)."""
    sidecar: Sidecar = request.app.state.sidecar
    form: dict[str, str] = request.state.form
    mood, text = await sidecar.work(lambda rt: _replay(rt, form))
    return back(request, _origin(form), text, mood)


def _replay(rt: Runtime, form: dict[str, str]) -> tuple[Mood, str]:
    chosen = _chosen(form)
    if not chosen:
        return "bad", "No open dead letter fits."
    outcomes = replay_by_command.replay_all(rt, chosen[:MOST])
    sent = [one for one in outcomes if one.is_sent]
    names = [letter.destination for letter in letters.by_ids([one.letter_id for one in sent]) if letter.destination]
    failed = next((f" {one.letter_id}: {one.note}." for one in outcomes if not one.is_sent), "")
    notes = "".join(f" Note: {note}." for note in replay_by_command.obstacles(rt, names)) if sent else ""
    text = f"{len(sent):,} of {formatting.plural(len(outcomes), 'dead letter')} pending again; the worker sends them."
    return ("good" if len(sent) == len(outcomes) else "bad"), text + failed + notes


def _chosen(form: dict[str, str]) -> list[int]:
    if number := _number(form):
        return [number]
    conditions = {name: form[name] for name in CONDITIONS if form.get(name)}
    is_group = "error" in form  # an empty error is a group, too
    if not (conditions or is_group or form.get("all") == "yes"):
        return []
    wish = _wish(conditions | ({"error": form["error"]} if is_group else {}))
    return search.ids(wish)


async def discard(request: Request) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    form: dict[str, str] = request.state.form
    if form.get("sure") != "yes":
        return back(request, _origin(form), "Nothing was given up: tick the box to say that you are sure.", "bad")
    mood, text = await sidecar.work(lambda rt: _discard(rt, form))
    return back(request, _origin(form), text, mood)


def _discard(rt: Runtime, form: dict[str, str]) -> tuple[Mood, str]:
    number, days = _number(form), rt.settings.retention.dedupe_days
    reason = clean(form.get("reason", ""), 200).strip() or "by the dashboard"
    closed = discard_and_prune.discard(letters.by_ids([number or 0]), rt.now(), result=reason, key_days=days)
    if not closed:
        return "bad", "It is not open any more; nothing changed."
    return "good", f"Dead letter {number} is given up: what it holds is not delivered."


def _number(form: dict[str, str]) -> int | None:
    text = form.get("id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _origin(form: dict[str, str]) -> str:
    """Where the form was: the letter's own page, or the list."""
    return f"{HOME}/{_number(form)}" if form.get("from") == "letter" and _number(form) else HOME


PAGE = Page(
    HOME,
    "Dead letters",
    40,
    [
        Route(HOME, show, methods=["GET"]),
        Route(f"{HOME}/replay", replay, methods=["POST"]),
        Route(f"{HOME}/discard", discard, methods=["POST"]),
        Route(f"{HOME}/{{id:int}}", show_one, methods=["GET"]),
    ],
    lambda rt: letters.open_count(),
)
