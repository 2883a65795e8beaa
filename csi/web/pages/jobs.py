"""`/jobs`: what the catalogue has to do, does and did, each job with its history."""

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.errors import CsiError
from csi.jobs import job_admin
from csi.runtime import Runtime
from csi.store.catalog import jobs
from csi.store.catalog.jobs import CatalogJob
from csi.web.page_rendering import Facts, Page, back, present
from csi.web.runtime_access import Sidecar

SHOWN = 100


async def show(request: Request) -> Response:
    status, before = request.query_params.get("status", ""), request.query_params.get("before", "")[:36]
    return await present(request, "jobs.html", lambda rt: _all(status if status in STATUSES else "", before))


STATUSES = (*jobs.OPEN, *jobs.SETTLED)


def _all(status: str, before: str) -> Facts:
    rows = jobs.page(status=status or None, limit=SHOWN + 1, before=before or None)
    older = rows[SHOWN - 1].id if len(rows) > SHOWN else None
    return {"rows": rows[:SHOWN], "status": status, "counts": jobs.counts(), "older": older}


async def show_one(request: Request) -> Response:
    ref = request.path_params["id"]
    return await present(request, "job.html", lambda rt: {"row": _find(ref), "history": jobs.history(ref)})


def _find(ref: str) -> CatalogJob:
    row = jobs.find(ref)
    if row is None:
        raise HTTPException(404)
    return row


async def retry(request: Request) -> Response:
    return await _act(request, job_admin.retry, "is due now.")


async def cancel(request: Request) -> Response:
    return await _act(request, job_admin.cancel, "is cancelled.")


async def _act(request: Request, act: Callable[[Runtime, CatalogJob], None], text: str) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    row: CatalogJob = await sidecar.ask(lambda rt: _find(request.path_params["id"]))
    try:
        await sidecar.work(lambda rt: act(rt, row))
    except CsiError as error:
        return back(request, f"/jobs/{row.id}", str(error), "bad")
    return back(request, f"/jobs/{row.id}", f"The job {text}")


PAGE = Page(
    "/jobs",
    "Jobs",
    60,
    [
        Route("/jobs", show, methods=["GET"]),
        Route("/jobs/{id}", show_one, methods=["GET"]),
        Route("/jobs/{id}/retry", retry, methods=["POST"]),
        Route("/jobs/{id}/cancel", cancel, methods=["POST"]),
    ],
    lambda rt: jobs.dead_count(),
)
