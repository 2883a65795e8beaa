"""`/jobs`: the catalogue's jobs, each with its history; retry and cancel them."""

from collections.abc import Callable
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from csi.jobs import job_admin
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs
from csi.store.catalog.jobs import CatalogJob
from csi.store.queries import job_figures
from csi.web.page_rendering import Context, DashboardPage, change

SHOWN = 100
STATUSES = (*jobs.OPEN, *jobs.SETTLED)
PAGE = DashboardPage("/jobs", "Jobs", 60, lambda rt: job_figures.dead_count(), key="j")


@PAGE.view("/jobs", "jobs.html")
def show(rt: Runtime, request: Request) -> Context:
    given, before = request.query_params.get("status", ""), request.query_params.get("before", "")[:36]
    status = given if given in STATUSES else ""
    rows = jobs.page(status=status or None, limit=SHOWN + 1, before=before or None)
    older = rows[SHOWN - 1].id if len(rows) > SHOWN else None
    return {
        "rows": rows[:SHOWN],
        "status": status,
        "counts": job_figures.counts(),
        "older": older,
        "titles": _titles(rows),
        "waits": job_figures.waiting_reasons(rows, rt.now()),
    }


@PAGE.view("/jobs/{id}", "job.html")
def show_one(rt: Runtime, request: Request) -> Context:
    ref = request.path_params["id"]
    row = _find(ref)
    waits = job_figures.waiting_reasons([row], rt.now())
    return {"row": row, "history": jobs.history(ref), "titles": _titles([row]), "waits_for": waits.get(ref)}


def _titles(rows: list[CatalogJob]) -> dict[str, str]:
    return channels.titles({row.channel_id for row in rows if row.channel_id})


def _find(ref: str) -> CatalogJob:
    row = jobs.find(ref)
    if row is None:
        raise HTTPException(404)
    return row


@PAGE.endpoint("POST", "/jobs/{id}/retry")
async def retry(request: Request) -> Response:
    return await _change(request, job_admin.retry, "The job is due now.")


@PAGE.endpoint("POST", "/jobs/{id}/cancel")
async def cancel(request: Request) -> Response:
    return await _change(request, job_admin.cancel, "The job is cancelled.")


async def _change(request: Request, act: Callable[[Runtime, CatalogJob], None], text: str) -> Response:
    ref = request.path_params["id"]

    def task(rt: Runtime) -> str:
        act(rt, _find(ref))
        return text

    return await change(request, f"/jobs/{quote(ref, safe='')}", task)
