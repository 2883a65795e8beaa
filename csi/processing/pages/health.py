"""Readiness, liveness and metrics of processing, served by the receiver. Nothing here is judged anew."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from anyio import to_thread
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from csi import clock
from csi.errors import StoreError
from csi.logs import redact
from csi.problems import Check, to_notify
from csi.processing import status
from csi.processing.pipeline.budget import BUDGET
from csi.processing.pipeline.later import STREAM_END, TRANSCRIPT
from csi.processing.pipeline.provider_access import configured
from csi.processing.problems import ALERTS, PROBLEMS, judge
from csi.processing.runtime import Processing
from csi.processing.store import db

READY_PATH, LIVE_PATH, METRICS_PATH = "/processing/readyz", "/processing/livez", "/metrics"
JOB_STATES = ("queued", "submitted", "processing", "retrying", "waiting")
DEAD_CAUSES = ("max_retries", "fatal_error", "quota_exceeded", "manual_intervention")
CAUSE_CHARACTERS = 120
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_WORDS = {"ready": ("ready", "not_ready"), "live": ("alive", "stalled")}

Handler = Callable[[Request], Awaitable[Response]]


def health(rt: Processing, check: Check) -> Handler:
    """200 while no problem fails this check, else 503 with the reasons. Open to everyone, as `/readyz` is."""
    good, bad = _WORDS[check]

    def read() -> Response:
        now = rt.now()
        try:
            with db.reading():
                facts = status.gather(rt)
        except StoreError:
            reasons = ["processing's database cannot be used"]
            return JSONResponse({"status": bad, "timestamp": clock.iso(now), "reasons": reasons}, 503, _HEADERS)
        found = judge(facts)
        reasons = [problem.what_and_why for problem in found if check in problem.fails]
        age = facts.heartbeat_age
        body = {
            "status": bad if reasons else good,
            "timestamp": clock.iso(now),
            "worker": {"heartbeat_age_seconds": None if age is None else round(age, 1)},
            "reasons": reasons,
            "problems": [status.describe_problem(problem) for problem in found],
        }
        return JSONResponse(body, 503 if reasons else 200, _HEADERS)

    async def serve(request: Request) -> Response:
        return await to_thread.run_sync(read)

    return serve


def metrics(rt: Processing, is_authorized: Callable[[Request], bool]) -> Handler:
    """The figures of money are not for everyone: this machine, or the dashboard's password."""

    def read() -> Response:
        try:
            with db.reading():
                text = render(rt)
        except StoreError:
            return Response("processing's database cannot be used", 503, _HEADERS)
        return Response(text, 200, _HEADERS, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def serve(request: Request) -> Response:
        if not is_authorized(request):
            return JSONResponse({"ok": False, "error": "not_found"}, 404, _HEADERS)
        return await to_thread.run_sync(read)

    return serve


def render(rt: Processing) -> bytes:
    registry = CollectorRegistry()
    registry.register(_ProcessingCollector(rt))
    return generate_latest(registry)


class _ProcessingCollector(Collector):
    def __init__(self, rt: Processing) -> None:
        self._rt = rt

    def describe(self) -> Iterable[Metric]:
        return []  # registering must not ask the database

    def collect(self) -> Iterator[Metric]:
        rt, facts = self._rt, status.gather(self._rt)
        age = facts.heartbeat_age
        yield _gauge("worker_alive", "1 while the worker writes heartbeats", float(facts.is_alive))
        yield _gauge("heartbeat_age_seconds", "Time since the worker's last heartbeat", age)
        yield _by("jobs", "Open jobs by state", "state", facts.jobs, JOB_STATES)
        yield _by("dead_jobs", "Open dead jobs by cause", "cause", facts.dead, DEAD_CAUSES)
        spent = facts.budget_used - facts.budget_reserved
        yield _gauge("budget_limit_usd", "The budget of a day (UTC)", float(facts.budget_limit))
        yield _gauge("budget_spent_usd", "Paid today (UTC)", float(spent))
        text = "Reserved today (UTC) for calls whose price is not known yet"
        yield _gauge("budget_reserved_usd", text, float(facts.budget_reserved))
        names = sorted(configured(rt))
        paused = {one.name: float(one.paused_at is not None) for one in facts.providers}
        failing = {one.name: facts.now - one.failing_since for one in facts.providers if one.failing_since is not None}
        yield _by("provider_paused", "1 while the provider refuses our account", "provider", paused, names)
        yield _by("provider_failing_seconds", "Time since its calls began to fail", "provider", failing, names)
        yield _by("provider_waiting_jobs", "Jobs that wait for a paused provider", "provider", facts.waiting, names)
        reasons = (BUDGET, TRANSCRIPT, STREAM_END, *names, status.PERSON)
        yield _by("waiting_jobs", "Jobs by what they wait for", "reason", status.waiting_jobs(rt), reasons)
        found = judge(facts)
        notified = to_notify(found)
        counted = Counter(problem.id for problem in found)
        alerts = Counter(problem.id for problem in notified)
        yield _by("problems", "Problems that exist now, by id", "problem", counted, PROBLEMS)
        yield _by("alerts", "Problems that the operator is notified of, by id", "problem", alerts, ALERTS)
        labels = ["problem", "subject", "severity", "cause", "runbook"]
        text = "1 for each problem that the operator is notified of; 0 where another problem explains it"
        family = GaugeMetricFamily("csi_processing_problem", text, labels=labels)
        for one in found:
            cause = " ".join(redact(one.cause or "").split())[:CAUSE_CHARACTERS]
            family.add_metric([one.id, one.subject, one.severity, cause, one.runbook], float(one in notified))
        yield family


def _by(name: str, text: str, label: str, values: Mapping[str, float], words: Iterable[str]) -> Metric:
    """A gauge for each of these words, and for no other."""
    family = GaugeMetricFamily(f"csi_processing_{name}", text, labels=[label])
    for word in words:
        family.add_metric([word], values.get(word, 0))
    return family


def _gauge(name: str, text: str, value: Any) -> Metric:
    """NaN for None, where there is nothing to measure: 0 would raise an alarm."""
    return GaugeMetricFamily(f"csi_processing_{name}", text, value=float("nan") if value is None else value)
