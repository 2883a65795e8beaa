"""`/destinations`: state, success rate and requests of each destination; add, change, test, pause, rotate, remove."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import yaml
from markupsafe import escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from csi.admin import destination_settings, destinations
from csi.config.delivery_settings import DestinationSettings
from csi.config.durations import parse_duration
from csi.config.loader import find_file
from csi.doctor import destination_check, sample_event_test
from csi.errors import CsiError
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status import destination_details
from csi.status.delivery_problems import certificate_text
from csi.status.destinations import STATE_TEXTS, UnknownDestination, configured_name, destination_state_of
from csi.store.managed_destinations import ManagedDestination
from csi.web.api.destinations import managed_row
from csi.web.formatting import plural
from csi.web.page_rendering import Context, DashboardPage, change, redirect, refused_message, render_page
from csi.web.responses import HttpProblem
from csi.web.shared_state import Sidecar

PATH = "/destinations"
OVERLAPS = ("0s", "1h", "1d", "7d", "30d")
LISTS = ("sources", "event_types", "tags", "watches", "tiers")
TEXTS = ("endpoint", "template", "title")
OF_THE_HOST = ("endpoint_env", "secret_env", "bearer_env")
"""Keys that name variables: the dashboard neither shows fields for them nor changes them."""


def _count(rt: Runtime) -> int:
    return sum(destination_state_of(rt, name).breaker_is_open for name in rt.destinations)


PAGE = DashboardPage(PATH, "Destinations", 35, _count, key="t")


@dataclass(frozen=True)
class SettingField:
    """One key of the settings, as a field of a form."""

    name: str
    text: str
    """Its value as the form has it; empty: the default applies."""
    default: str
    """What applies to an empty field."""
    words: tuple[str, ...]
    """The values to choose from; empty: any text."""
    help: str


def _fields(given: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> list[SettingField]:
    """The keys that a form can change. `texts`: what a form that was refused had."""
    found = []
    for name, field in DestinationSettings.model_fields.items():
        if name in OF_THE_HOST:
            continue
        default = (
            ""
            if field.default is None or field.is_required()
            else _text(name, field.get_default(call_default_factory=True))
        )
        text = _text(name, given[name]) if given.get(name) is not None else ""
        shown = text if texts is None else texts.get(name, "")
        found.append(SettingField(name, shown, default, _words(field.annotation), field.description or ""))
    return found


def _words(annotation: Any) -> tuple[str, ...]:
    """The words of a Literal, also of one that may be None."""
    options = [annotation, *get_args(annotation)]
    return next((get_args(one) for one in options if getattr(one, "__origin__", None) is Literal), ())


def _text(name: str, value: Any) -> str:
    if name in LISTS:
        return ", ".join(value)
    if isinstance(value, str):
        return value
    if not value and value != 0:
        return "no" if value is False else ""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True).removesuffix("...\n").strip()
    )


def _settings(form: Mapping[str, str]) -> dict[str, Any]:
    """The keys that the form has; None where its field is empty."""
    found: dict[str, Any] = {}
    for name in DestinationSettings.model_fields.keys() - set(OF_THE_HOST):
        text = form.get(name)
        if text is None:
            continue
        if name in LISTS:
            found[name] = [word for part in text.split(",") if (word := part.strip())] or None
        elif name in TEXTS or _words(DestinationSettings.model_fields[name].annotation):
            found[name] = text.replace("\r\n", "\n") if text.strip() else None
        else:
            found[name] = destination_settings.value_of(text)
    if isinstance(found.get("endpoint"), str):
        found["endpoint"] = found["endpoint"].strip()
    return found


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────────


@PAGE.view(PATH, "destinations.html")
def show(rt: Runtime, request: Request) -> Context:
    return _list(rt, None)


def _list(rt: Runtime, refused: Mapping[str, str] | None) -> Context:
    """`refused`: the form that added nothing, shown again without its secrets."""
    return {
        "found": destination_details.summaries(rt),
        "is_on": rt.settings.features.delivery,
        "file": find_file(None, os.environ),
        "state_texts": STATE_TEXTS,
        "fields": _fields({}, refused),
        "refused": refused,
    }


@PAGE.view(f"{PATH}/{{name}}", "destination.html")
def show_one(rt: Runtime, request: Request) -> Context:
    return _one(rt, request.path_params["name"], None)


def _one(rt: Runtime, name: str, refused: Mapping[str, str] | None) -> Context:
    try:
        found = destination_details.details(rt, name)
    except UnknownDestination as error:
        raise HTTPException(404) from error
    row = found.row
    return {
        "one": found,
        "file": find_file(None, os.environ),
        "state_texts": STATE_TEXTS,
        "certificate_text": certificate_text,
        "fields": _fields(json.loads(row.settings_json), refused) if row is not None else [],
        "refused": refused,
        "overlaps": OVERLAPS,
    }


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────────


@PAGE.endpoint("POST", PATH)
async def add(request: Request) -> Response:
    form: dict[str, str] = request.state.form
    name = form.get("name", "").strip()

    def store(rt: Runtime) -> str | None:
        kept = {"secret": form.get("secret", "").strip(), "endpoint": form.get("secret_endpoint", "").strip()}
        given = {key: value for key, value in _settings(form).items() if value is not None}
        return destination_settings.add(rt, name, given, {key: text for key, text in kept.items() if text}, None)[1]

    def again(rt: Runtime) -> Context:
        return _list(rt, form)

    return await _save(request, name, store, again, "destinations.html", f"{name} is added; its first test is due.")


@PAGE.endpoint("POST", f"{PATH}/{{name}}")
async def set_keys(request: Request) -> Response:
    form: dict[str, str] = request.state.form
    name = request.path_params["name"]

    def store(rt: Runtime) -> str | None:
        return destination_settings.change(rt, _row_of_form(rt, name, form), _settings(form), None)[1]

    def again(rt: Runtime) -> Context:
        return _one(rt, name, form)

    return await _save(request, name, store, again, "destination.html", f"{name} is changed.")


async def _save(
    request: Request, name: str, store: Callable[[Runtime], str | None], again: Callable[[Runtime], Context],
    template: str, done: str,
) -> Response:  # fmt: skip
    """Redirects to the destination; shows the secret that was made; or shows the form again with what is wrong."""
    sidecar: Sidecar = request.app.state.sidecar
    try:
        secret = await sidecar.run(store)
    except CsiError as error:
        message = refused_message(request, f"Not saved: {error}")
        return await render_page(request, template, lambda rt, _: {**again(rt), "message": message}, 400)
    return redirect(request, f"{PATH}/{name}", done) if secret is None else await _show_once(request, name, secret)


def _row_of_form(rt: Runtime, name: str, form: Mapping[str, str]) -> ManagedDestination:
    """The row, as the form showed it: a form that is sent twice, or late, changes nothing."""
    row = managed_row(rt, name)
    if form.get("version") != row.version:
        raise HttpProblem(409, f"{name} was changed meanwhile; load the page again, and repeat the change")
    return row


async def _show_once(request: Request, name: str, secret: str, until: float | None = None) -> Response:
    """In the response to this request, not after a redirect: no cookie, no URL and no later page has it."""
    # Escaped here: the templates mask every known secret in plain text.
    context = {"name": name, "secret": escape(secret), "until": until}
    return await render_page(request, "destination_secret.html", lambda rt, _: context)


@PAGE.endpoint("POST", f"{PATH}/{{name}}/rotate")
async def rotate(request: Request) -> Response:
    form: dict[str, str] = request.state.form
    name, sidecar = request.path_params["name"], request.app.state.sidecar

    def make(rt: Runtime) -> tuple[str, float | None]:
        if form.get("overlap") not in OVERLAPS:
            raise HttpProblem(400, "choose how long the previous secret is used")
        overlap = parse_duration(form["overlap"])
        secret = destination_settings.rotate(rt, _row_of_form(rt, name, form), overlap)
        return secret, rt.now() + overlap if overlap else None

    try:
        secret, until = await sidecar.run(make)
    except CsiError as error:
        return redirect(request, f"{PATH}/{name}", f"Not rotated: {error}", "bad")
    return await _show_once(request, name, secret, until)


@PAGE.endpoint("POST", f"{PATH}/{{name}}/remove")
async def remove(request: Request) -> Response:
    form: dict[str, str] = request.state.form
    name, sidecar = request.path_params["name"], request.app.state.sidecar
    own = f"{PATH}/{name}"
    if form.get("sure") != "yes":
        return redirect(request, own, "Nothing was removed: tick the box to confirm.", "bad")
    try:
        lost = await sidecar.run(lambda rt: destination_settings.remove(rt, _row_of_form(rt, name, form)))
    except CsiError as error:
        return redirect(request, own, f"Not removed: {error}", "bad")
    return redirect(request, PATH, f"{name} is removed; {plural(lost, 'queued event')} not sent there.")


@PAGE.endpoint("POST", f"{PATH}/{{name}}/pause")
async def pause(request: Request) -> Response:
    reason = clean(request.state.form.get("reason", ""), 200).strip() or "by the dashboard"

    def stop(rt: Runtime, name: str) -> str:
        destinations.pause(rt, name, reason)
        return f"Delivery to {name} is paused. Its events stay pending until you resume it."

    return await _change(request, stop)


@PAGE.endpoint("POST", f"{PATH}/{{name}}/resume")
async def resume(request: Request) -> Response:
    def start(rt: Runtime, name: str) -> str:
        destinations.resume(rt, name)
        return f"Delivery to {name} is resumed."

    return await _change(request, start)


@PAGE.endpoint("POST", f"{PATH}/{{name}}/test")
async def test(request: Request) -> Response:
    """Sends a signed empty batch, and explains the response."""
    return await _change(request, lambda rt, name: _explained(name, destination_check.check(rt, name)))


@PAGE.endpoint("POST", f"{PATH}/{{name}}/sample")
async def send_sample(request: Request) -> Response:
    """Sends a sample event, and explains the response."""
    return await _change(request, lambda rt, name: _explained(name, sample_event_test.send_sample(rt, name)))


def _explained(name: str, found: destination_check.Checkup | sample_event_test.SampleTest) -> str:
    status = f"http {found.status}" if found.status is not None else "no response"
    text = f"{name}: {status} after {found.seconds:.1f} s; {found.text}"
    if not found.is_good:
        raise HttpProblem(502, text)
    return text


async def _change(request: Request, act: Callable[[Runtime, str], str]) -> Response:
    """Back to the page that had the form: that of the destination, or the overview."""
    name = request.path_params["name"]
    is_own = request.state.form.get("from") == "own"
    return await change(
        request, f"{PATH}/{name}" if is_own else "/#destinations", lambda rt: act(rt, configured_name(rt, name))
    )
