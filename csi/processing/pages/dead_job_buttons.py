"""The buttons of `/ui/deadletters`: retry, resolve, abandon and reopen dead jobs, with the admin token."""

import hmac
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from csi.errors import CsiError
from csi.processing.pages.health import Handler
from csi.processing.pipeline import dead_job_actions
from csi.processing.runtime import Processing
from csi.processing.store import db
from csi.token_guess_limit import GuessBrake

ACTIONS = ("retry", "resolve", "abandon", "reopen")
MAX_BODY = 4096
OPERATOR = "dashboard"


def act_on_dead_job(rt: Processing, token: str, refuse: Callable[[str, int], Response]) -> Handler:
    """The token is a field of the form and in no cookie, so no foreign page can press a button."""

    def act(action: str, job_id: str) -> None:
        acting = replace(rt, operator=OPERATOR)
        with db.reading():
            match action:
                case "retry":
                    dead_job_actions.retry(acting, job_id, force=True)
                case "resolve":
                    dead_job_actions.close(acting, job_id, "resolved", "by the dashboard")
                case "abandon":
                    dead_job_actions.close(acting, job_id, "abandoned", "by the dashboard")
                case _:
                    dead_job_actions.reopen(acting, job_id)

    brake = GuessBrake()

    async def serve(request: Request) -> Response:
        body, address = b"", request.client.host if request.client else ""
        if seconds := brake.wait_seconds(address):
            return refuse(f"too many wrong tokens from this address; try again in {seconds} s", 429)
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    return refuse("the form is too large", 413)
        except ClientDisconnect:
            return refuse("the form is incomplete", 400)
        fields = {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if not hmac.compare_digest(fields.get("token", "").encode(), token.encode()):
            brake.note_wrong(address)
            return refuse("the admin token is wrong; nothing was changed", 403)
        if fields.get("action") not in ACTIONS:
            return refuse("there is no such action", 400)
        try:
            await to_thread.run_sync(act, fields["action"], fields.get("job", ""))
        except CsiError as error:
            return refuse(str(error), 409)
        return RedirectResponse("/ui/deadletters", 303, {"Cache-Control": "no-store"})

    return serve
