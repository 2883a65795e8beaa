"""`/actions`: the audit log of the admin API and of the dashboard."""

from starlette.requests import Request

from csi.runtime import Runtime
from csi.store import audit
from csi.web.page_rendering import Context, DashboardPage, number_of

SHOWN = 100
PAGE = DashboardPage("/actions", "Audit", 90, key="a")


@PAGE.view("/actions", "audit.html")
def show(rt: Runtime, request: Request) -> Context:
    rows = audit.page(SHOWN + 1, number_of(request.query_params.get("before")))
    return {"rows": rows[:SHOWN], "older": rows[SHOWN - 1].id if len(rows) > SHOWN else None}
