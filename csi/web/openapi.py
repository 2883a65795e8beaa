"""`/openapi.json`: open pages, the admin API and, among the webhooks, the call that CSI makes (OpenAPI 3.1)."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from csi import __version__
from csi.ingester.event import CSIIngestRequest
from csi.web.api import operations
from csi.web.api.operation import Operation
from csi.web.api.schema import STAMP, Schema, listed, named, shape
from csi.web.responses import PROBLEM

REF = "#/components/schemas/{model}"
_PROBLEM = shape(type=str, title=str, status=int, detail=str)
_HEALTH = shape(status=str, timestamp=STAMP)
_READY = shape(status=str, timestamp=STAMP, adapters=dict, delivery=dict, reasons=listed(str))
_LIVE = shape(status=str, timestamp=STAMP, reasons=listed(str))

EVERYWHERE = {
    400: "A parameter or a key of the body is wrong; `detail` says which",
    401: "No valid token",
    403: "Closed, another site, or a token that may only read",
    421: "A Host that is not in web.allowed_hosts",
    503: "The configuration or the database cannot be read, or too many requests at once",
}
ON_ACTS = {408: "The body did not arrive in time", 413: "The body is too large", 415: "The body is not JSON"}


@cache
def document() -> dict[str, Any]:
    found = operations()
    schemas = _schemas(found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "CSI sidecar",
            "version": __version__,
            "summary": "Health, metrics and administration of a CSI ingester",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": dict(_open_paths()) | _admin_paths(found),
        "webhooks": {"ingest": {"post": _webhook()}},
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "CSI_ADMIN_TOKEN; for GET also CSI_ADMIN_READ_TOKEN",
                },
                "sender": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "What we send: CSI_UA_BEARER_TOKEN, or the shared secret where that is not set",
                },
            },
        },
        "tags": [{"name": name} for name in dict.fromkeys(["open", *(one.tag for one in found)])],
    }


# ── the admin API ───────────────────────────────────────────────────────────────────────────────────────


def _admin_paths(found: Sequence[Operation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for one in found:
        paths.setdefault(f"/admin{one.path}", {})[one.method.lower()] = _described(one)
    return paths


def _described(one: Operation) -> dict[str, Any]:
    statuses = EVERYWHERE | (ON_ACTS if one.method == "POST" else {}) | dict(one.refusals)
    good = {"description": "Done", "content": {one.media_type: {"schema": one.answer}}}
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.tag],
        "security": [{"token": []}],
        "parameters": [*_path_parameters(one), *_query_parameters(one)],
        "responses": {"200": good, **({"201": good} if one.name.startswith("add") else {})}
        | {str(status): _refusal(text) for status, text in sorted(statuses.items())},
    }
    body = _body(one)
    return described | ({"requestBody": body} if body else {})


def _path_parameters(one: Operation) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", one.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(one: Operation) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = one.query.model_json_schema(ref_template=REF)
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "description": kind.get("description", "")}
        | {"schema": {key: value for key, value in kind.items() if key not in ("description", "title")}}
        for name, kind in schema["properties"].items()
    ]


def _body(one: Operation) -> dict[str, Any] | None:
    if one.text_body is not None:
        return {"description": one.text_body, "required": True, "content": {"*/*": {"schema": {"type": "string"}}}}
    if one.body is None:
        return None
    is_needed = any(kind.is_required() for kind in one.body.model_fields.values())
    return {"required": is_needed, "content": {"application/json": {"schema": named(_model_name(one))}}}


def _model_name(one: Operation) -> str:
    return one.name[0].upper() + one.name[1:] + "Body"


def _refusal(text: str) -> dict[str, Any]:
    return {"description": text, "content": {PROBLEM: {"schema": named("Problem")}}}


# ── the pages that are open to everybody ────────────────────────────────────────────────────────────────


def _open_paths() -> Iterator[tuple[str, dict[str, Any]]]:
    json_page = "application/json"
    yield "/healthz", _page("getHealth", "200 while the process serves", {200: (json_page, _HEALTH)})
    yield "/readyz", _page("getReadiness", "PRD §11.2", {200: (json_page, _READY), 503: (json_page, _READY)})
    yield "/livez", _page("getLiveness", "Does what should happen?", {200: (json_page, _LIVE), 503: (json_page, _LIVE)})
    yield "/metrics", _page("getMetrics", "Prometheus text", {200: ("text/plain", {"type": "string"})})
    yield "/openapi.json", _page("getDocument", "This document", {200: (json_page, {"type": "object"})})


def _page(name: str, summary: str, answers: dict[int, tuple[str, Schema]]) -> dict[str, Any]:
    words = {200: "Good", 503: "Not good; `reasons` says why"}
    responses = {
        str(status): {"description": words[status], "content": {media: {"schema": schema}}}
        for status, (media, schema) in answers.items()
    }
    return {"get": {"operationId": name, "summary": summary, "tags": ["open"], "security": [], "responses": responses}}


# ── the call that we make ───────────────────────────────────────────────────────────────────────────────


def _webhook() -> dict[str, Any]:
    by_index = shape(ok=bool, accepted=int, rejected=int, errors=listed(shape(index=int, error=str)))
    return {
        "operationId": "ingestSignals",
        "summary": "One signed batch of events (docs/contract.md)",
        "security": [{"sender": []}],
        "parameters": [
            {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in SIGNED_BY.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": named("CSIIngestRequest")}}},
        "responses": {
            "200": {"description": "All accepted", "content": {"application/json": {"schema": shape(ok=bool)}}},
            "207": {
                "description": "Accepted but for these: `duplicate_event` counts as delivered, the others as refused",
                "content": {"application/json": {"schema": by_index}},
            },
            "400": {"description": "Refused; a batch of several is halved until the guilty event stands alone"},
            "401": {"description": "Token or signature is wrong; the breaker opens, events stay pending"},
            "409": {"description": "Known already: counts as delivered"},
            "429": {"description": "A pause; Retry-After is kept for the whole endpoint"},
            "503": {"description": "Tried again after 20 and 60 s"},
        },
    }


SIGNED_BY = {
    "X-CSI-Signature": "sha256= and the HMAC of `<timestamp>.<request id>.<body>`, keyed with the shared secret",
    "X-CSI-Timestamp": "Unix time of this attempt, whole seconds",
    "X-CSI-Request-ID": "Id of this attempt, new for each",
}


# ── schemas ─────────────────────────────────────────────────────────────────────────────────────────────


def _schemas(found: Sequence[Operation]) -> dict[str, Any]:
    modules = {one.run.__module__ for one in found if one.run is not None}
    ours = {name: kind for module in sorted(modules) for name, kind in _named_in(module).items()}
    bodies = {_model_name(one): _flat(one.body) for one in found if one.body is not None}
    _, request = models_json_schema([(CSIIngestRequest, "validation")], ref_template=REF)
    contract: dict[str, Schema] = request["$defs"]
    return {"Problem": _PROBLEM} | ours | bodies | contract


def _named_in(module: str) -> dict[str, Schema]:
    return dict(getattr(import_module(module), "SCHEMAS", {}))


def _flat(model: type[BaseModel]) -> Schema:
    return model.model_json_schema(ref_template=REF)
