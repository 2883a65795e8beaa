"""The form of a watch: its fields as text, and the options that a form sends. Pure."""

from collections.abc import Mapping
from typing import Any

from csi.admin import watch_options
from csi.config.source_settings import KINDS
from csi.web.formatting import whole_seconds

FormValues = dict[str, Any]


def values_of(options: Mapping[str, Any]) -> FormValues:
    """What the fields show. An empty text is the source's default."""
    first, title = options.get("first_poll"), options.get("title") or {}
    return {
        "name": options.get("name") or "",
        "poll_interval_seconds": _seconds(options.get("poll_interval_seconds")),
        "route_profile": options.get("route_profile") or "",
        "tags": ", ".join(options.get("tags") or ()),
        "first_poll": "last" if isinstance(first, dict) else first or "",
        "first_poll_last": str(first["last"]) if isinstance(first, dict) else "",
        "include": list(options.get("include") or ()),
        "title_match": title.get("match") or "",
        "title_not": title.get("not") or "",
        "min_duration_seconds": _seconds(options.get("min_duration_seconds")),
        "max_duration_seconds": _seconds(options.get("max_duration_seconds")),
        "via": options.get("via") or "",
    }


def _seconds(value: Any) -> str:
    return whole_seconds(float(value)) if value is not None else ""


def values_of_form(form: Mapping[str, str]) -> FormValues:
    """The same fields as they were sent, for a form that is shown again."""
    names = values_of({})
    return {name: form.get(name, "").strip() for name in names} | {"include": _kinds(form)}


def options_of_form(form: Mapping[str, str]) -> dict[str, Any]:
    """By the keys of a configured watch; None: the source's default. Only of the fields that the form has."""
    sent: dict[str, Any] = {name: form.get(name, "").strip() or None for name in form}
    given: dict[str, Any] = {key: sent[key] for key in watch_options.KEYS if key in sent}
    if "tags" in sent:
        given["tags"] = [word.strip() for word in (sent["tags"] or "").split(",") if word.strip()] or None
    if sent.get("first_poll") == "last":
        number = sent.get("first_poll_last") or ""
        given["first_poll"] = {"last": int(number)} if number.isdecimal() and len(number) < 6 else f"last:{number}"
    if "title_match" in sent or "title_not" in sent:
        title = {key: sent.get(f"title_{key}") for key in ("match", "not") if sent.get(f"title_{key}")}
        given["title"] = title or None
    if "kinds" in sent:
        given["include"] = _kinds(form) or None
    return given


def _kinds(form: Mapping[str, str]) -> list[str]:
    return [kind for kind in KINDS if form.get(f"include-{kind}")]
