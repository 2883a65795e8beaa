"""`/notifications`: targets, alerts, the last notifications and mutes; test, mute and unmute."""

from starlette.requests import Request
from starlette.responses import Response

from csi.admin import mutes
from csi.config.durations import parse_duration
from csi.notifications import NOT_ACCEPTED
from csi.runtime import Runtime
from csi.status.alert_overview import alert_overview
from csi.status.notification_problems import notification_facts
from csi.status.problems import ALERTS
from csi.web.formatting import plural
from csi.web.page_rendering import Context, DashboardPage, change, number_of
from csi.web.responses import HttpProblem
from csi.worker import alerting

PATH = "/notifications"
DURATIONS = ("30m", "1h", "2h", "8h", "1d", "7d")
BY = "dashboard"

PAGE = DashboardPage(PATH, "Alerts", 80, key="n")


@PAGE.view(PATH, "notifications.html")
def show(rt: Runtime, request: Request) -> Context:
    settings = rt.settings.notify
    return {
        "found": alert_overview(rt),
        "is_on": settings.enabled,
        "failing": [one.target for one in notification_facts(rt).failing],
        "settings": settings,
        "durations": DURATIONS,
        "alert_names": ALERTS,
    }


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────────


@PAGE.endpoint("POST", f"{PATH}/test")
async def test(request: Request) -> Response:
    """Sends one message to every target."""

    def send(rt: Runtime) -> str:
        failed = [name for name, accepted in alerting.send_test(rt).items() if not accepted]
        if failed:
            raise HttpProblem(502, f"{', '.join(failed)}: {NOT_ACCEPTED}.")
        return "Every target accepted the test message."

    return await change(request, PATH, send)


@PAGE.endpoint("POST", f"{PATH}/mute")
async def mute(request: Request) -> Response:
    form: dict[str, str] = request.state.form

    def add(rt: Runtime) -> str:
        duration = form.get("duration", "")
        if duration not in DURATIONS:
            raise HttpProblem(400, "Choose how long to mute.")
        problem, reason = form.get("problem") or None, form.get("reason", "")
        mutes.mute(rt, parse_duration(duration), problem=problem, reason=reason, by=BY)
        return f"{problem or 'Every alert'} is muted for {duration}."

    return await change(request, PATH, add)


@PAGE.endpoint("POST", f"{PATH}/unmute")
async def unmute(request: Request) -> Response:
    number = number_of(request.state.form.get("id"))

    def end(rt: Runtime) -> str:
        if number is None or not (ended := mutes.unmute(rt, number, by=BY)):
            raise HttpProblem(404, "This mute is not active any more.")
        return f"{plural(ended, 'mute')} ended."

    return await change(request, PATH, end)
