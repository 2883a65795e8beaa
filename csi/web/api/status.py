"""`/admin/status`, `waiting`, `slo`, `queue`, `quota`, `audit`: how it stands."""

from typing import Any

from pydantic import Field

from csi.catalog import data_api
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.status import overview
from csi.status import slo as figures
from csi.status.backlog import waiting
from csi.status.upcoming import agenda_of
from csi.store import audit
from csi.web import health, json_views
from csi.web.api.operation import BIGGEST, MAX_LIMIT, Ago, Call, Given, Operation, Refusal, Whole
from csi.web.api.schema import STAMP, listed, maybe, shape, word
from csi.web.facts import gather

LONGEST_WINDOW = 30 * 86_400.0


class Window(Given):
    """Over which time."""

    window: Ago = Field(86_400.0, description="Length of time up to now: 1h, 24h, 7d; at most 30d")


class Paging(Given):
    """Which part of a long list."""

    limit: Whole = Field(50, ge=1, le=MAX_LIMIT, description="Rows on a page")
    before: Whole | None = Field(None, ge=1, le=BIGGEST, description="The `next` of the page before")


def status(rt: Runtime, call: Call) -> dict[str, Any]:
    facts = gather(rt)
    ready, live = health.readiness(facts), health.liveness(facts)
    return {
        "ready": ready.is_good,
        "live": live.is_good,
        "reasons": list(dict.fromkeys([*ready.body["reasons"], *live.body["reasons"]])),
        "readiness": ready.body,
        **json_views.status(overview.overview(rt)),
    }


def slo(rt: Runtime, call: Call) -> dict[str, Any]:
    seconds = call.query.window
    if not 60 <= seconds <= LONGEST_WINDOW:
        raise Refusal(400, "window: must be from 1m to 30d")
    return json_views.report(figures.report(rt, seconds))


def list_waiting(rt: Runtime, call: Call) -> dict[str, Any]:
    return {"waiting": [json_views.waiting(one) for one in waiting(rt)]}


def queue(rt: Runtime, call: Call) -> dict[str, Any]:
    return json_views.agenda(agenda_of(rt))


def quota(rt: Runtime, call: Call) -> dict[str, Any]:
    found = quota_schedule.forecast(rt, rt.now())
    return json_views.forecast(found) | (
        {"catalogue": json_views.catalogue_share(data_api.share_of(rt))} if found else {}
    )


def acts(rt: Runtime, call: Call) -> dict[str, Any]:
    rows = audit.page(call.query.limit + 1, call.query.before)
    shown = rows[: call.query.limit]
    following = shown[-1].id if len(rows) > len(shown) else None
    return {"actions": [json_views.act(one) for one in shown], "next": following}


_SPAN = shape(p50=maybe(float), p95=maybe(float), p99=maybe(float))
_COUNTS = shape(seen=int, delivered=int, dead=int, waiting=int)
_FIGURE = shape(target=float, value=maybe(float), met=maybe(bool))
WAITING = shape(step=str, what=str, count=int, why=str, since=maybe(STAMP), until=maybe(STAMP))
STATUS = shape(
    ready=bool,
    live=bool,
    reasons=listed(str),
    readiness=dict,
    at=STAMP,
    version=str,
    instance_id=str,
    worker=shape(
        alive=bool,
        trouble=maybe(str),
        clock_hold=maybe(str),
        started_at=maybe(STAMP),
        heartbeat_age_seconds=maybe(float),
    ),
    sources=listed(
        shape(
            source=str,
            enabled=bool,
            active=int,
            paused=int,
            failing=int,
            last_success_at=maybe(STAMP),
            last_new_at=maybe(STAMP),
            next_poll_at=maybe(STAMP),
        )
    ),
    hosts=listed(shape(host=str, kind=word("pause", "outage"), since=maybe(STAMP), until=maybe(STAMP), reason=str)),
    last_hour=_COUNTS,
    last_day=_COUNTS,
    delivery=shape(enabled=bool, destinations=listed(shape(destination=str, gate=str, reason=maybe(str)))),
    waiting=listed(WAITING),
    dead_letters=int,
    quota=maybe(shape(day=str, limit=int, used=int, left=int, low=bool)),
)
SLO = shape(
    since=STAMP,
    until=STAMP,
    rows_since=STAMP,
    met=maybe(bool),
    delivery=_FIGURE,
    duplicates=_FIGURE,
    uptime=_FIGURE,
    latency=listed(
        shape(
            tier=str,
            target_p95_seconds=maybe(float),
            met=maybe(bool),
            events=int,
            old_items=int,
            late=int,
            occurred_to_seen=_SPAN,
            seen_to_accepted=_SPAN,
            occurred_to_accepted=_SPAN,
        )
    ),
    notes=listed(str),
)
QUEUE = shape(
    worker=shape(beat_at=maybe(STAMP), started_at=maybe(STAMP), queued=maybe(int)),
    due=int,
    due_within_a_minute=int,
    being_read=int,
    inbox=shape(waiting=int, quarantined=int, oldest_seen_at=maybe(STAMP)),
    batches=listed(shape(batch_id=str, destination=str, lane=str, size=int, state=str, attempts=int)),
    unsettled=dict,
    reads=listed(shape(id=int, source=str, ref=str, name=maybe(str), next_poll_at=maybe(STAMP))),
)
ACT = shape(
    id=int,
    at=STAMP,
    via=word("api", "dashboard"),
    role=word("admin", "reader"),
    client=maybe(str),
    action=str,
    detail=maybe(str),
    status=maybe(int),
    finished_at=maybe(STAMP),
)

OPERATIONS = [
    Operation("GET", "/status", "getStatus", "How it stands: health, what flowed, what waits and why", STATUS, status),
    Operation(
        "GET",
        "/waiting",
        "listWaiting",
        "What has to happen and has not, and why, in the order of the walk",
        shape(waiting=listed(WAITING)),
        list_waiting,
    ),
    Operation(
        "GET",
        "/slo",
        "getSlo",
        "The promises of PRD §6 and latencies over a window, counted from all rows",
        SLO,
        slo,
        query=Window,
        is_slow=True,
    ),
    Operation("GET", "/queue", "getQueue", "What happens next: reads, batches, inbox, wake-ups", QUEUE, queue),
    Operation(
        "GET", "/quota", "getQuota", "API units of this Pacific day and how far they go", shape(enabled=bool), quota
    ),
    Operation(
        "GET",
        "/audit",
        "listActions",
        "What was done through this API and the dashboard, newest first",
        shape(actions=listed(ACT), next=maybe(int)),
        acts,
        query=Paging,
    ),
]
