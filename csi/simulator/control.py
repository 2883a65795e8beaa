"""What the control APIs of the simulators share: a JSON object is read, something is changed, errors are 400."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from csi.errors import CsiError


async def changed(request: Request, act: Callable[[dict[str, Any]], object]) -> Response:
    """201 with the result of `act` for the body of this request."""
    try:
        body = json.loads(await request.body() or b"{}")
        if not isinstance(body, dict):
            raise CsiError("expected a JSON object")
        # In a thread: the hub calls its subscribers, which may be this process.
        return JSONResponse(await asyncio.to_thread(act, body), 201)
    except (CsiError, TypeError, ValueError) as error:
        return JSONResponse({"error": str(error)}, 400)
