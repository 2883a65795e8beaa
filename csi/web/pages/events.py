"""`/events`: event search, and the timeline of one event."""

import json
import shlex
from typing import Any
from urllib.parse import urlencode

from markupsafe import escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from csi import __version__, clock
from csi.admin import resend_by_command
from csi.api_models import TimelineJson
from csi.config.durations import parse_since
from csi.config.setting_types import TIERS
from csi.dlq import dead_letters
from csi.ingester.signature import canonical
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status.timeline import timeline_of
from csi.store import events, watches
from csi.store.queries import event_search
from csi.web.api.events import EVENT_STATES
from csi.web.page_rendering import Context, DashboardPage, number_of, redirect
from csi.web.shared_state import Sidecar

SHOWN = 50
SORTS = ("oldest",)
SPANS = {"1h": "last hour", "24h": "last day", "7d": "last week"}

PAGE = DashboardPage("/events", "Events", 30, key="e")


@PAGE.view("/events", "events.html")
def show(rt: Runtime, request: Request) -> Context:
    """A filter value that does not exist is ignored: links to this page stay valid."""
    given = {name: clean(value, 200).strip() for name, value in request.query_params.items()}
    choices = {
        "state": EVENT_STATES, "source": tuple(rt.settings.sources), "tier": TIERS, "since": tuple(SPANS),
        "sort": SORTS,
    }  # fmt: skip
    kept = {name: given[name] if given.get(name) in words else "" for name, words in choices.items()}
    watch = watches.find(number) if (number := number_of(given.get("watch"))) else None
    kept |= {"q": given.get("q", ""), "watch": str(watch.id) if watch else ""}
    kept |= {name: given.get(name, "") if _moment(given.get(name)) is not None else "" for name in ("from", "to")}
    since = rt.now() - parse_since(kept["since"]) if kept["since"] else None
    query = event_search.EventQuery(
        text=kept["q"] or None,
        state=kept["state"] or None,
        source=kept["source"] or None,
        tier=kept["tier"] or None,
        watch_id=watch.id if watch else None,
        since=_moment(kept["from"]) if kept["from"] else since,
        until=_moment(kept["to"]),
    )
    after = number_of(given.get("after"))
    if kept["sort"] == "oldest":
        found = event_search.following(query, SHOWN + 1, after or 0)
    else:
        found = event_search.newest(query, SHOWN + 1, after)
    return {
        "rows": found[:SHOWN],
        "given": kept,
        "watch": watch,
        "span": [_moment(kept[name]) for name in ("from", "to") if kept[name]],
        "following": found[SHOWN - 1].id if len(found) > SHOWN else None,  # where the next page begins
        "is_first": not given.get("after"),
        "states": EVENT_STATES,
        "sources": list(rt.settings.sources),
        "tiers": TIERS,
        "spans": SPANS,
    }


def _moment(text: str | None) -> float | None:
    """None for text that is not a time: links to this page stay valid."""
    try:
        return clock.parse(text) if text else None
    except (ValueError, OverflowError):
        return None


@PAGE.view("/events/{id:int}", "event.html")
def show_one(rt: Runtime, request: Request) -> Context:
    row = event_search.find(str(request.path_params["id"]))
    if row is None:
        raise HTTPException(404)
    timeline = TimelineJson.of(timeline_of(rt, row.dedupe_key))
    stored = events.by_ids([row.id])[0]
    contract = events.as_contract(stored, stored.emitted_at)
    steps = []
    for step in timeline.steps:
        details = {name: value for name, value in step.details.items() if value not in (None, "")}
        response = details.pop("answer", None)  # shown apart from the other details
        color = details.get("outcome", step.what)
        steps.append({**vars(step), "details": details, "response": response, "color": color})
    return {
        "row": row,
        "timeline": timeline,
        "dead_letters": dead_letters.of_item(row.dedupe_key),
        "steps": steps,
        "payload": json.dumps(contract, indent=2, ensure_ascii=False),
        # Escaped here, so that redaction leaves it alone: its credentials are names of variables.
        "curl": escape(curl_command(contract, rt.settings.csi.instance_id)),
        # Only YouTube becomes a link: the address is from outside.
        "link": timeline.url if (timeline.url or "").startswith("https://www.youtube.com/") else None,
    }


@PAGE.endpoint("POST", "/events/resend")
async def resend(request: Request) -> Response:
    """One event (`id`, from its page), or the ticked ones of the list (`event-<number>`)."""
    form: dict[str, str] = request.state.form
    number = number_of(form.get("id"))
    ticked = [name.removeprefix("event-") for name in form if name.startswith("event-")]
    chosen = [number] if number else [int(text) for text in ticked if number_of(text)]
    path = f"/events/{number}" if number else "/events"
    if not chosen:
        return redirect(request, path, "No event was ticked; nothing is sent again.", "bad")
    sidecar: Sidecar = request.app.state.sidecar
    done = await sidecar.run(lambda rt: resend_by_command.resend(rt, chosen))
    failed = next((f" {one.event_id}: {one.note}." for one in done.results if not one.is_sent), "")
    notes = "".join(f" Note: {note}." for note in done.notes)
    return redirect(request, path, f"{done.words}.{failed}{notes}", "bad" if done.failed else "good")


@PAGE.endpoint("GET", "/events/find")
async def find(request: Request) -> Response:
    """By event_id, for links from other pages."""
    event_id = clean(request.query_params.get("event_id", ""), 500)
    row = await request.app.state.sidecar.read(lambda rt: event_search.find(event_id))
    return RedirectResponse(f"/events/{row.id}" if row else f"/events?{urlencode({'q': event_id})}", 303)


_SIGN = (
    "import hashlib,hmac,os,sys; "
    'print(hmac.new(os.environ["CSI_UA_SHARED_SECRET"].encode(),sys.stdin.buffer.read(),hashlib.sha256).hexdigest())'
)


def curl_command(event: dict[str, Any], instance_id: str) -> str:
    """A shell command that sends the event again, alone, to CSI_UA_ENDPOINT.

    It signs with a secret of its environment; neither its text nor the output of `ps` contains one.
    """
    batch = {"csi_version": __version__, "csi_instance_id": instance_id, "batch_id": "batch_by_hand", "events": [event]}
    body = canonical(batch, "ascii").decode()
    return "\n".join(
        [
            "# needs CSI_UA_ENDPOINT and CSI_UA_SHARED_SECRET in the environment",
            f"body={shlex.quote(body)}",
            "at=$(date +%s) id=hand_$(date +%s)_$$",
            f'sign=$(printf \'%s.%s.%s\' "$at" "$id" "$body" | python3 -c {shlex.quote(_SIGN)})',
            'printf \'header = "Authorization: Bearer %s"\\n\' "${CSI_UA_BEARER_TOKEN:-$CSI_UA_SHARED_SECRET}" |',
            '  curl -sS -K - "$CSI_UA_ENDPOINT" -H "Content-Type: application/json" -H "X-CSI-Timestamp: $at" \\',
            '  -H "X-CSI-Request-ID: $id" -H "X-CSI-Signature: sha256=$sign" --data-binary "$body"',
        ]
    )
