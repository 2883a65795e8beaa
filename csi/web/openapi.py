"""`/openapi.json` (OpenAPI 3.1): open endpoints, feeds, the admin API and, as a webhook, the request that CSI sends."""

import json
import re
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from csi import __version__
from csi.api_models import ApiModel
from csi.api_models.base import Time
from csi.ingester.event import CSIIngestRequest
from csi.web import feeds
from csi.web.api import operations
from csi.web.operation_definition import WITH_BODY, Operation, RequestModel
from csi.web.responses import PROBLEM

REF = "#/components/schemas/{model}"
JSON = "application/json"
EVERYWHERE = {
    400: "A parameter or a key of the body is wrong; `detail` says which",
    401: "No valid token",
    403: "No token is configured, another site, or a read-only token",
    421: "The Host is not in web.allowed_hosts",
    503: "The configuration or the database cannot be read, or too many requests at once",
}
ON_CHANGES = {408: "The body did not arrive in time", 413: "The body is too large", 415: "The body is not JSON"}
SIGNATURE_HEADERS = {
    "X-CSI-Signature": "sha256= and the HMAC of `<timestamp>.<request id>.<body>`, keyed with the shared secret",
    "X-CSI-Timestamp": "Unix time of this attempt, whole seconds",
    "X-CSI-Request-ID": "Id of this attempt, new for each",
}


class ProblemDetails(ApiModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Health(ApiModel):
    """The process answers."""

    status: str
    timestamp: Time


class Liveness(Health):
    """Whether work is being done, and the reasons why not."""

    reasons: list[str]


class Readiness(Liveness):
    """Whether events are collected and delivered, and the reasons why not."""

    adapters: dict[str, Any]
    delivery: dict[str, Any]


class IngestAccepted(ApiModel):
    """Every event was accepted."""

    ok: bool


class IngestError(ApiModel):
    """One event that was not accepted."""

    index: int
    error: str


class IngestReport(IngestAccepted):
    """Which events were not accepted."""

    accepted: int
    rejected: int
    errors: list[IngestError]


OPEN: dict[str, tuple[str, str, dict[int, tuple[str, Any]]]] = {
    "/healthz": ("getHealth", "200 while the process serves", {200: (JSON, Health)}),
    "/readyz": (
        "getReadiness",
        "Ready to work?",
        {200: (JSON, Readiness), 503: (JSON, Readiness)},
    ),
    "/livez": ("getLiveness", "Whether the worker does its work", {200: (JSON, Liveness), 503: (JSON, Liveness)}),
    "/metrics": ("getMetrics", "Prometheus text", {200: ("text/plain", str)}),
    "/openapi.json": ("getDocument", "This document", {200: (JSON, dict[str, Any])}),
}
FEEDS = {
    "/feeds/events.atom": ("getAtomFeed", "Stored events as an Atom feed"),
    "/feeds/events.json": ("getJsonFeed", "Stored events as a JSON Feed 1.1"),
    "/feeds/watches.opml": ("getWatchList", "The watches as OPML"),
}
Mode = Literal["validation", "serialization"]


@cache
def document() -> dict[str, Any]:
    found = operations()
    schemas, components = _schemas(found)
    paths: dict[str, Any] = {path: {"get": _open_path(*entry, schemas)} for path, entry in OPEN.items()}
    paths |= _feed_paths(schemas)
    for one in found:
        paths.setdefault(f"/admin{one.path}", {})[one.method.lower()] = _described(one, schemas)
    token = {"type": "http", "scheme": "bearer"}
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "CSI sidecar",
            "version": __version__,
            "summary": "Health, metrics and administration of a CSI ingester",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "webhooks": {"ingest": {"post": _webhook(schemas)}},
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": token | {"description": "CSI_ADMIN_TOKEN; for GET also CSI_ADMIN_READ_TOKEN"},
                "feed": token | {"description": "CSI_FEED_TOKEN, or a token of the admin API"},
                "feed_password": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "The same tokens as the password, with any user name",
                },
                "sender": token | {"description": "CSI_UA_BEARER_TOKEN, or the shared secret where that is not set"},
            },
        },
        "tags": [{"name": name} for name in dict.fromkeys(["open", "feeds", *(one.tag for one in found)])],
    }
    # The models are called EventJson, WatchJson …; in the document, where there is nothing else, Event and Watch.
    text = re.sub(r'("|/schemas/)([A-Z]\w+)Json"', r'\1\2"', json.dumps(made))
    return dict(json.loads(text))


def _schemas(found: list[Operation]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of each type by its name, and the components they refer to."""
    ours: list[Any] = [ProblemDetails, IngestAccepted, IngestReport]
    ours += [kind for _, _, answers in OPEN.values() for _, kind in answers.values()]
    ours += [one.answer_type for one in found]
    adapters: dict[str, tuple[Mode, TypeAdapter[Any]]] = {
        str(kind): ("serialization", TypeAdapter(kind)) for kind in ours
    }
    adapters[str(CSIIngestRequest)] = ("validation", TypeAdapter(CSIIngestRequest))
    inputs = [(name, mode, adapter) for name, (mode, adapter) in adapters.items()]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=REF)
    bodies = {_body_name(one): one.body.model_json_schema(ref_template=REF) for one in found if one.body is not None}
    return {name: schema for (name, _), schema in schemas.items()}, definitions["$defs"] | bodies


def _body_name(one: Operation) -> str:
    return one.name[0].upper() + one.name[1:] + "Body"


def _described(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    statuses = EVERYWHERE | (ON_CHANGES if one.method in WITH_BODY else {}) | dict(one.refusals)
    good = {"description": "Done", "content": {one.media_type: {"schema": schemas[str(one.answer_type)]}}}
    refusal = {PROBLEM: {"schema": schemas[str(ProblemDetails)]}}
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.tag],
        "security": [{"token": []}],
        "parameters": _parameters(one.path_names, one.query),
        "responses": {"200": good, **({"201": good} if one.name.startswith("add") else {})}
        | {str(status): {"description": text, "content": refusal} for status, text in sorted(statuses.items())},
    }
    if one.is_deprecated:
        described["deprecated"] = True
    if one.text_body is not None:
        text = {"*/*": {"schema": {"type": "string"}}}
        described["requestBody"] = {"description": one.text_body, "required": True, "content": text}
    elif one.body is not None:
        is_needed = any(kind.is_required() for kind in one.body.model_fields.values())
        content = {JSON: {"schema": {"$ref": REF.format(model=_body_name(one))}}}
        described["requestBody"] = {"required": is_needed, "content": content}
    return described


def _parameters(path_names: list[str], query: type[RequestModel] | None) -> list[dict[str, Any]]:
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in path_names]
    schema = query.model_json_schema(ref_template=REF) if query else {"properties": {}}
    return in_path + [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", []),
            "description": kind.get("description", ""),
            "schema": {key: value for key, value in kind.items() if key not in ("description", "title")},
        }
        for name, kind in schema["properties"].items()
    ]


def _open_path(
    name: str, summary: str, answers: dict[int, tuple[str, Any]], schemas: dict[str, Any]
) -> dict[str, Any]:  # fmt: skip
    words = {200: "Good", 503: "Not good; `reasons` says why"}
    responses = {
        str(status): {"description": words[status], "content": {media: {"schema": schemas[str(kind)]}}}
        for status, (media, kind) in answers.items()
    }
    return {"operationId": name, "summary": summary, "tags": ["open"], "security": [], "responses": responses}


def _feed_paths(schemas: dict[str, Any]) -> dict[str, Any]:
    """Each feed twice: with its token in a header, and in the path, for readers that send no header."""
    refusal = {PROBLEM: {"schema": schemas[str(ProblemDetails)]}}
    refused = EVERYWHERE | {403: "No token is configured, or another site", 404: "features.admin_api is off"}
    paths: dict[str, Any] = {}
    for path, (name, summary) in FEEDS.items():
        format = path.rpartition(".")[2]
        content = {feeds.MEDIA_TYPES[format].partition(";")[0]: {"schema": {"type": "string"}}}
        responses = {
            "200": {"description": "Done", "content": content},
            "304": {"description": "As it was at If-None-Match or If-Modified-Since"},
        } | {str(status): {"description": text, "content": refusal} for status, text in sorted(refused.items())}
        described = {"summary": summary, "tags": ["feeds"], "responses": responses}
        query = None if format == "opml" else feeds.FeedQuery
        paths[path] = {
            "get": described
            | {"operationId": name, "parameters": _parameters([], query)}
            | {"security": [{"feed": []}, {"feed_password": []}]}
        }
        paths[path.replace("/feeds/", "/feeds/{token}/")] = {
            "get": described
            | {"operationId": f"{name}ByToken", "parameters": _parameters(["token"], query), "security": []}
        }
    return paths


def _webhook(schemas: dict[str, Any]) -> dict[str, Any]:
    def content(kind: type) -> dict[str, Any]:
        return {JSON: {"schema": schemas[str(kind)]}}

    return {
        "operationId": "ingestSignals",
        "summary": "One signed batch of events (docs/contract.md)",
        "security": [{"sender": []}],
        "parameters": [
            {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in SIGNATURE_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": content(CSIIngestRequest)},
        "responses": {
            "200": {"description": "All accepted", "content": content(IngestAccepted)},
            "207": {
                "description": "Accepted but for these: `duplicate_event` counts as delivered, the others as refused",
                "content": content(IngestReport),
            },
            "400": {"description": "Refused; a batch of several events is split until the refused event is alone"},
            "401": {"description": "Token or signature is wrong; the circuit breaker opens, events stay pending"},
            "409": {"description": "Known already: counts as delivered"},
            "429": {"description": "The destination is throttled until Retry-After is over"},
            "503": {"description": "Tried again after 20 and 60 s"},
        },
    }
