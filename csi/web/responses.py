"""What is sent back: JSON, or `application/problem+json` (RFC 9457) where something is wrong."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

PROBLEM = "application/problem+json"


def reply(body: Mapping[str, Any], status: int = 200) -> Response:
    # ASCII on the wire: no text that a stranger chose can break the encoding.
    return Response(json.dumps(body, allow_nan=False), status, media_type="application/json")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """`detail` is one sentence for the caller; it never repeats a secret or a piece of a hostile request."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return Response(json.dumps(body), status, headers=dict(headers or {}), media_type=PROBLEM)
