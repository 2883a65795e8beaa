"""`/actions`: what operators and agents changed, through the admin API, these pages, commands and MCP."""

from starlette.requests import Request

from csi.runtime import Runtime
from csi.status import audit_sentences
from csi.web.page_rendering import Context, DashboardPage, number_of

SHOWN = 100
PAGE = DashboardPage("/actions", "Audit", 90, key="a")


@PAGE.view("/actions", "audit.html")
def show(rt: Runtime, request: Request) -> Context:
    via = request.query_params.get("via", "")
    via = via if via in audit_sentences.VIA else ""
    rows = audit_sentences.page(SHOWN + 1, number_of(request.query_params.get("before")), via=via or None)
    older = rows[SHOWN - 1].record.id if len(rows) > SHOWN else None
    return {"rows": rows[:SHOWN], "older": older, "given": {"via": via}, "vias": audit_sentences.VIA}
