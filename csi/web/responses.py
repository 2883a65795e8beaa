"""HTTP responses: JSON, and `application/problem+json` (RFC 9457) for errors."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from csi.api_models import ApiModel
from csi.errors import CsiError

PROBLEM = "application/problem+json"


class HttpProblem(CsiError):
    """A request that is refused, with its status. The text never repeats a secret or what was sent."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def reply(body: ApiModel | Mapping[str, Any], status: int = 200) -> Response:
    # ASCII: JSON from outside can hold half of a surrogate pair, which UTF-8 cannot encode.
    content = body.model_dump() if isinstance(body, ApiModel) else body
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return Response(json.dumps(body), status, headers=dict(headers or {}), media_type=PROBLEM)
