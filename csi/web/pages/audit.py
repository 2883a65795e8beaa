"""`/actions`: the audit log of the admin API and of the dashboard."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.runtime import Runtime
from csi.store import audit
from csi.web.page_rendering import Context, DashboardPage, number_of, render_page

SHOWN = 100


async def show(request: Request) -> Response:
    def context(rt: Runtime) -> Context:
        rows = audit.page(SHOWN + 1, number_of(request.query_params.get("before")))
        return {"rows": rows[:SHOWN], "older": rows[SHOWN - 1].id if len(rows) > SHOWN else None}

    return await render_page(request, "audit.html", context)


PAGE = DashboardPage("/actions", "Audit log", 90, [Route("/actions", show, methods=["GET"])])
