"""`/actions`: who did what, through the admin API and through these pages."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.store import audit
from csi.web.page_rendering import Page, present

SHOWN = 100


async def show(request: Request) -> Response:
    before = request.query_params.get("before", "")
    is_number = before.isascii() and before.isdigit() and len(before) < 19

    def facts(rt: object) -> dict[str, object]:
        rows = audit.page(SHOWN + 1, int(before) if is_number else None)
        return {"rows": rows[:SHOWN], "older": rows[SHOWN - 1].id if len(rows) > SHOWN else None}

    return await present(request, "audit.html", facts)


PAGE = Page("/actions", "Actions", 90, [Route("/actions", show, methods=["GET"])])
