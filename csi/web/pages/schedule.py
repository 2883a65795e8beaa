"""`/schedule`: what happens next: polls, batches, the worker's queue."""

from starlette.requests import Request

from csi.runtime import Runtime
from csi.status.upcoming import SHOWN, upcoming
from csi.web.page_rendering import Context, DashboardPage

PAGE = DashboardPage("/schedule", "Schedule", 50, key="q")


@PAGE.view("/schedule", "schedule.html")
def show(rt: Runtime, request: Request) -> Context:
    return {"found": upcoming(rt), "most": SHOWN}
