"""Which answer of `csi.status` each figure equals: of `/metrics`, the dashboard's overview, `csi status`, `csi slo` and
the admin API.

Every table maps the name of a figure to a function of the Moment. A figure that has no row fails the comparison, so a
new series, JSON key or table cell needs a row here.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from itertools import accumulate, product
from operator import attrgetter
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from csi import __version__, clock
from csi.catalog import data_api
from csi.config.delivery_settings import RESEND, STREAM
from csi.config.setting_types import TIERS
from csi.jobs.job_kinds import KINDS
from csi.logs import redact
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.status import (
    alert_overview,
    backlog,
    destinations,
    facts,
    host_pace,
    overview,
    slo,
    upcoming,
    verdict,
    watch_states,
)
from csi.status.delivery_problems import certificate_text
from csi.status.problems import ALERTS, PROBLEMS
from csi.status.source_problems import is_on_time
from csi.store import counters, watches
from csi.store.queries import job_figures
from csi.store.queries.charts import flow_chart
from csi.web import health
from csi.web.formatting import ago, percent, plural, span_words, stamp, whole_seconds

LANES = (*TIERS, STREAM)
ADD_A_ROW = (
    "{surface} shows {figure!r}, and no row says which function of csi/status it equals: add a row to {table} in "
    "tests/rigs/status_figures.py, and take the figure from csi/status"
)


class Moment:
    """What `csi.status` answers at one moment; every question is asked once."""

    def __init__(self, rt: Runtime) -> None:
        self.rt, self.now = rt, rt.now()
        self.facts = facts.gather(rt)
        self.overview = overview.overview(rt)
        self.hour, self.day = (slo.report(rt, window) for window in (slo.HOUR, slo.DAY))
        self.windows = {"1h": self.hour, "24h": self.day}
        self.verdict = verdict.judge(self.facts)
        self.alerts = alert_overview.firing(rt)
        self.backlog = backlog.backlog(rt)
        self.upcoming = upcoming.upcoming(rt)
        self.destinations = destinations.all_destinations(rt)
        self.watches = watch_states.watch_counts(rt)
        self.quota = quota_schedule.forecast(rt, self.now)
        self.catalog = data_api.share_of(rt)
        self.sources = tuple(rt.settings.sources)
        self.unfinished_jobs, self.job_due_since = job_figures.unfinished(), job_figures.waiting_since(self.now)
        self.dead_jobs = job_figures.dead_count()
        self.hour_chart, self.day_chart = flow_chart(self.now, slo.HOUR, 300), flow_chart(self.now, slo.DAY, 3600)
        self.counted = {name: counters.all_of(name) for name in COUNTERS}

    @cached_property
    def open_circuits(self) -> dict[str, bool]:
        return {one.name: one.state in ("circuit_open", "half_open") for one in self.destinations if one.is_configured}

    def states(self, source: str | None = None) -> Counter[str]:
        found: Counter[str] = Counter()
        for one in self.watches:
            found[one.state] += one.watches if source in (None, one.source) else 0
        return found


Row = Callable[[Moment], Any]


def differences(surface: str, table: str, rows: Mapping[str, Row], found: Mapping[str, Any], at: Moment) -> list[str]:
    """One sentence for each figure without a row, and for each that is not what its row says."""
    said = [ADD_A_ROW.format(surface=surface, figure=name, table=table) for name in found if name not in rows]
    for name, row in rows.items():
        expected, shown = row(at), found.get(name)
        if not _is_same(shown, expected):
            said.append(f"{surface}, {name}: shows {shown!r}, csi/status answers {expected!r}")
    return said


def _is_same(shown: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping) and isinstance(shown, Mapping):
        return shown.keys() == expected.keys() and all(_is_same(shown[key], expected[key]) for key in expected)
    if isinstance(expected, float) and isinstance(shown, int | float) and not isinstance(shown, bool):
        return (math.isnan(expected) and math.isnan(shown)) or math.isclose(shown, expected, abs_tol=1e-6)
    return (
        not expected and not shown if isinstance(expected, Sequence | Mapping) and shown is None else shown == expected
    )


def tells(value: Any) -> bool:
    """Whether a wrong figure would differ from this one: not 0, empty, or nothing to measure."""
    if isinstance(value, Mapping):
        return any(map(tells, value.values()))
    if isinstance(value, list | tuple):
        return any(map(tells, value))
    if isinstance(value, bool):
        return True  # JSON has null beside it
    return bool(value) and not (isinstance(value, float) and math.isnan(value))


# ── /metrics ────────────────────────────────────────────────────────────────────────────────────────────


def series_of(page: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By sample name, then by the values of the labels, in the order of the labels' names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def one(figure: Callable[[Moment], float | None]) -> Row:
    """A series without labels."""
    return lambda at: {(): number(figure(at))}


def labelled(figures: Callable[[Moment], Mapping[Any, float | None]]) -> Row:
    """A series with labels, whose names are in alphabetical order in the key."""

    def row(at: Moment) -> dict[tuple[str, ...], float]:
        found = figures(at)
        return {key if isinstance(key, tuple) else (key,): number(value) for key, value in found.items()}

    return row


def windowed(figure: Callable[[slo.WindowReport], float | None]) -> Row:
    return labelled(lambda at: {window: figure(report) for window, report in at.windows.items()})


def by_destination(figure: Callable[[Moment, destinations.DestinationStatus], float | None]) -> Row:
    return labelled(lambda at: {one.name: figure(at, one) for one in at.destinations if one.is_configured})


def counter(kept_as: str, words: Sequence[str], groups: Callable[[Moment], Iterable[str]] | None = None) -> Row:
    """Labels `source` and one that sorts before it, or only the latter."""

    def row(at: Moment) -> dict[tuple[str, ...], float]:
        if groups is None:
            return {(word,): at.counted[kept_as].get(("", word), 0.0) for word in words}
        return {
            (word, group): at.counted[kept_as].get((group, word), 0.0) for group, word in product(groups(at), words)
        }

    return row


def by_source(kept_as: str, *words: str) -> Row:
    return counter(kept_as, words, attrgetter("sources"))


def histogram(
    name: str, kept_as: str, bounds: Sequence[float], groups: Callable[[Moment], Iterable[str]]
) -> dict[str, Row]:
    edges = [*map(str, bounds), "+Inf"]

    def heights(at: Moment, group: str) -> list[float]:
        return list(accumulate(at.counted[kept_as].get((group, edge), 0.0) for edge in edges))

    return {
        f"{name}_bucket": lambda at: {
            (edge, group): height
            for group in groups(at)
            for edge, height in zip(edges, heights(at, group), strict=True)
        },
        f"{name}_count": lambda at: {(group,): heights(at, group)[-1] for group in groups(at)},
        f"{name}_sum": lambda at: {
            (group,): at.counted[f"{kept_as}_sum"].get((group, ""), 0.0) for group in groups(at)
        },
    }


def latency_p95(at: Moment) -> dict[tuple[str, ...], float | None]:
    parts = {"occurred_to_seen": "to_seen", "seen_to_accepted": "to_accepted", "occurred_to_accepted": "total"}
    return {
        (part, tier.tier, window): getattr(tier, name).p95
        for window, report in at.windows.items()
        for tier in report.latencies
        for part, name in parts.items()
    }


def dedupe_hits(at: Moment) -> float | None:
    items = at.counted["items"]
    known, new = (sum(value for (_, word), value in items.items() if word == wanted) for wanted in ("known", "new"))
    return known / (known + new) if known + new else None


def problem_series(at: Moment) -> dict[tuple[str, ...], float]:
    found = {}
    for one in at.verdict.problems:
        proven = "yes" if one.is_proven else "no"
        key = (redact(one.cause or "")[:120], one.id, proven, one.runbook, one.severity, one.subject)
        found[key] = float(one in at.alerts)
    return found


def problem_counts(problems: Iterable[Any], names: Sequence[str]) -> dict[str, float]:
    counted = Counter(one.id for one in problems)
    return {name: counted[name] for name in names}


def backup(figure: Callable[[Moment, Any], float | None]) -> Row:
    return one(lambda at: figure(at, at.facts.backups.last_good) if at.facts.backups.last_good else None)


COUNTERS = (
    *("events", "items", "polls", "gaps", "outages", "jobs", "config_reloads", "notifications", "pushes", "inbound"),
    *("poll_seconds", "poll_seconds_sum", "seen_seconds", "seen_seconds_sum", "accept_seconds", "accept_seconds_sum"),
)
"""Counted as it happens and shown by the metrics only: these series equal the rows of `counters`."""

METRICS: dict[str, Row] = {
    "csi_events_total": lambda at: {
        (group, word): at.counted["events"].get((group, word), 0.0)
        for group in at.sources
        for word in ("stored", "delivered", "dlq", "replayed", "resent", "duplicate", "malformed")
    },
    "csi_items_total": by_source("items", "new", "known", "filtered"),
    "csi_polls_total": by_source("polls", "ok", "error"),
    "csi_gaps_total": by_source("gaps", "filled", "open"),
    "csi_outages_total": lambda at: {
        (group, word): at.counted["outages"].get((group, word), 0.0)
        for group in at.sources
        for word in ("began", "ended")
    },
    "csi_pushes_total": by_source("pushes", "push", "confirmed", "miss", "near_miss"),
    "csi_inbound_messages_total": counter(
        "inbound", ("stored", "repeated", "conflict", "full", "refused", "done", "failed")
    ),
    "csi_config_reloads_total": counter("config_reloads", ("loaded", "refused")),
    "csi_notifications_total": counter("notifications", ("sent", "failed")),
    "csi_job_runs_total": counter("jobs", ("completed", "failed", "waits", "dead"), lambda at: KINDS),
    "csi_dedupe_hit_rate": one(dedupe_hits),
    **histogram("csi_adapter_poll_duration_seconds", "poll_seconds", counters.POLL_BUCKETS, attrgetter("sources")),
    **histogram("csi_seen_latency_seconds", "seen_seconds", counters.AGE_BUCKETS, lambda at: LANES),
    **histogram("csi_accept_latency_seconds", "accept_seconds", counters.LATENCY_BUCKETS, lambda at: LANES),
    "csi_delivery_success_rate": one(lambda at: at.day.success.value),
    "csi_slo_delivery_success_ratio": windowed(lambda report: report.success.value),
    "csi_slo_dead_events": windowed(lambda report: report.success.dead),
    "csi_slo_duplicates_ratio": windowed(lambda report: report.duplicates.value),
    "csi_slo_slow_events": labelled(
        lambda at: {
            (tier.tier, window): tier.slow for window, report in at.windows.items() for tier in report.latencies
        }
    ),
    "csi_slo_latency_p95_seconds": labelled(latency_p95),
    "csi_pending_events": labelled(
        lambda at: {
            name: sum(lane.pending for one in at.destinations for lane in one.lanes if lane.name == name)
            for name in (*LANES, RESEND)
        }
    ),
    "csi_backlog_age_seconds": one(lambda at: backlog.backlog_age(at.overview.oldest_pending, at.now)),
    "csi_inbox_items": one(lambda at: sum(one.count for one in at.backlog if one.what == "items")),
    "csi_batches": labelled(
        lambda at: {state: sum(batch.state == state for batch in at.upcoming.batches) for state in ("ready", "sending")}
    ),
    "csi_dead_letters_open": one(lambda at: at.overview.open_dead_letters),
    "csi_dead_letters": labelled(
        lambda at: {
            cause: at.overview.dead_letters.get("destination" if cause == "endpoint" else cause, 0)
            for cause in ("transient", "destination", "event", "malformed", "crash", "endpoint")
        }
    ),
    "csi_watches": labelled(
        lambda at: {
            (source, state): at.states(source)[state] for source, state in product(at.sources, watch_states.STATES)
        }
    ),
    "csi_source_success_age_seconds": labelled(
        lambda at: {
            one.name: None if one.last_success_at is None else at.now - one.last_success_at
            for one in at.overview.sources
            if one.name in at.sources
        }
    ),
    "csi_watches_overdue": labelled(lambda at: {name: verdict.overdue(at.facts).get(name, 0) for name in at.sources}),
    "csi_hosts_in_outage": one(lambda at: sum(one.kind == "outage" for one in at.overview.hosts)),
    "csi_breaker_open": one(lambda at: any(at.open_circuits.values())),
    "csi_destination_breaker_open": labelled(attrgetter("open_circuits")),
    "csi_destination_held": by_destination(lambda at, one: one.state == "paused"),
    "csi_destination_waiting_events": by_destination(lambda at, one: at.facts.waiting(one.name)),
    "csi_destination_certificate_left_seconds": by_destination(
        lambda at, one: None if one.row.certificate_expires_at is None else one.row.certificate_expires_at - at.now
    ),
    "csi_worker_alive": one(lambda at: at.overview.worker.is_alive),
    "csi_worker_heartbeat_age_seconds": one(lambda at: at.overview.worker.age),
    "csi_worker_start_time_seconds": one(lambda at: getattr(at.overview.worker.heartbeat, "started_at", None)),
    "csi_queue_depth": one(lambda at: getattr(at.upcoming.worker.heartbeat, "queued", None)),
    "csi_api_quota_used": one(lambda at: at.quota.used if at.quota else None),
    "csi_api_quota_left": one(lambda at: at.quota.left if at.quota else None),
    "csi_api_quota_limit": one(lambda at: at.quota.limit if at.quota else None),
    "csi_jobs": labelled(
        lambda at: {
            (status, kind): at.unfinished_jobs.get((kind, status), 0)
            for kind, status in product(KINDS, ("pending", "running", "failed", "dead"))
        }
    ),
    "csi_jobs_oldest_due_seconds": one(lambda at: 0 if at.job_due_since is None else at.now - at.job_due_since),
    "csi_catalog_units_used": one(lambda at: at.catalog.used),
    "csi_catalog_units_limit": one(lambda at: at.catalog.limit),
    "csi_api_stats_units_used": one(lambda at: at.catalog.stats_used),
    "csi_api_stats_units_limit": one(lambda at: at.catalog.stats_limit),
    "csi_backup_age_seconds": backup(lambda at, good: at.now - good.at),
    "csi_backup_size_bytes": backup(lambda at, good: good.bytes),
    "csi_backup_duration_seconds": backup(lambda at, good: good.seconds),
    "csi_backup_failed": one(lambda at: at.facts.backups.last_failed is not None),
    "csi_status": one(lambda at: ("ok", "degraded", "down").index(at.verdict.status)),
    "csi_problems": labelled(lambda at: problem_counts(at.verdict.problems, PROBLEMS)),
    "csi_alerts": labelled(lambda at: problem_counts(at.alerts, ALERTS)),
    "csi_troubles": labelled(lambda at: problem_counts(at.alerts, ALERTS)),
    "csi_problem": problem_series,
    "csi_config_reload_failed": one(lambda at: at.facts.reload_error is not None),
    "csi_build_info": lambda at: {(__version__,): 1.0},
}

# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────


def leaves_of(document: Any, rows: Mapping[str, Row]) -> dict[str, Any]:
    """By path; `[]` stands for every element of a list. A path of the table is not divided further."""
    found: dict[str, Any] = {}

    def visit(value: Any, path: str) -> None:
        if path not in rows and isinstance(value, dict) and value:
            for key, inner in value.items():
                visit(inner, f"{path}.{key}" if path else key)
        elif path not in rows and isinstance(value, list):
            for inner in value:
                visit(inner, f"{path}[]")
        elif "[]" in path:
            found.setdefault(path, []).append(value)
        elif not (value is None and any(name.startswith((f"{path}.", f"{path}[")) for name in rows)):
            found[path] = value  # null in place of an object: its rows say None

    visit(document, "")
    return found


def iso(moment: float | None) -> str | None:
    return None if moment is None else clock.iso(moment)


def rounded(value: float | None, places: int) -> float | None:
    return None if value is None else round(value, places)


def each(path: str, things: Callable[[Moment], Iterable[Any]], **keys: Callable[[Any], Any]) -> dict[str, Row]:
    """A row for each key of the elements of a list."""

    def row(value: Callable[[Any], Any]) -> Row:
        return lambda at: [value(thing) for thing in things(at)]

    return {f"{path}[].{key}": row(value) for key, value in keys.items()}


def under(path: str, thing: Callable[[Moment], Any], **keys: Callable[[Any], Any]) -> dict[str, Row]:
    """A row for each key of an object. The thing None: the object is null."""

    def row(value: Callable[[Any], Any]) -> Row:
        return lambda at: None if thing(at) is None else value(thing(at))

    return {f"{path}.{key}" if path else key: row(value) for key, value in keys.items()}


PROBLEM_KEYS = ("id", "subject", "severity", "effect", "events", "remedy", "incident", "explained_by")


def problem_rows(path: str = "problems") -> dict[str, Row]:
    same = {name: attrgetter(name) for name in PROBLEM_KEYS}
    texts = {
        "what": lambda one: redact(one.what),
        "cause": lambda one: redact(one.cause) if one.cause else None,
        "since": lambda one: iso(one.since),
        "page": attrgetter("kind.page"),
        "runbook": attrgetter("runbook"),
    }
    return each(path, lambda at: at.verdict.problems, **same, **texts)


def backlog_rows(path: str) -> dict[str, Row]:
    return each(
        path,
        attrgetter("backlog"),
        **{name: attrgetter(name) for name in ("step", "what", "count")},
        why=attrgetter("reason.text"),
        problem=attrgetter("reason.is_problem"),
        since=lambda one: iso(one.since),
        until=lambda one: iso(one.reason.until),
    )


def event_counts(path: str, thing: Callable[[Moment], slo.Success]) -> dict[str, Row]:
    return under(path, thing, **{name: attrgetter(name) for name in ("seen", "delivered", "dead", "waiting")})


HOST_PACING: dict[str, Row] = each(
    "host_pacing",
    lambda at: host_pace.host_paces(at.rt),
    host=attrgetter("host"),
    spacing_seconds=attrgetter("spacing_seconds"),
    learned=attrgetter("is_learned"),
    next_at=lambda one: iso(one.next_at),
    plan=attrgetter("plan"),
)

STATUS: dict[str, Row] = {
    **HOST_PACING,
    "status": attrgetter("verdict.status"),
    **problem_rows(),
    "at": lambda at: iso(at.now),
    "version": lambda at: __version__,
    "instance_id": attrgetter("rt.settings.csi.instance_id"),
    **under(
        "worker",
        attrgetter("facts"),
        alive=attrgetter("worker.is_alive"),
        problem=attrgetter("worker.problem"),
        trouble=attrgetter("worker.problem"),
        clock_hold=attrgetter("clock_hold"),
        started_at=lambda one: iso(getattr(one.worker.heartbeat, "started_at", None)),
        heartbeat_age_seconds=lambda one: rounded(one.worker.age, 1),
    ),
    **each(
        "sources",
        attrgetter("overview.sources"),
        source=attrgetter("name"),
        enabled=attrgetter("is_enabled"),
        **{name: attrgetter(name) for name in ("active", "paused", "failing", "last_poll_failed")},
        last_success_at=lambda one: iso(one.last_success_at),
        last_new_at=lambda one: iso(one.last_new_at),
        next_poll_at=lambda one: iso(one.next_poll_at),
    ),
    "sources[].states": lambda at: [dict(+at.states(one.name)) for one in at.overview.sources],
    **each(
        "hosts",
        attrgetter("overview.hosts"),
        host=attrgetter("host"),
        kind=attrgetter("kind"),
        since=lambda one: iso(one.since),
        until=lambda one: iso(one.until),
        reason=lambda one: redact(one.reason),
    ),
    **event_counts("last_hour", attrgetter("hour.success")),
    **event_counts("last_day", attrgetter("day.success")),
    "delivery.enabled": attrgetter("facts.delivery_is_on"),
    **each(
        "delivery.destinations",
        attrgetter("destinations"),
        destination=attrgetter("name"),
        **{name: attrgetter(name) for name in ("state", "gate", "pending", "in_flight")},
        reason=lambda one: redact(one.cause) if one.cause else None,
        dead_letters=attrgetter("dead"),
        last_success_at=lambda one: iso(one.row.last_success_at),
    ),
    **backlog_rows("backlog"),
    **backlog_rows("waiting"),
    "dead_letters": attrgetter("facts.dead_letters"),
    **under("quota", attrgetter("quota"), **{name: attrgetter(name) for name in ("day", "limit", "used", "left")}),
    **under("quota", attrgetter("facts"), low=lambda one: one.quota_left < one.quota_buffer),
}


@dataclass(frozen=True)
class Nearly:
    """Equals numbers that are not further away than `by`."""

    value: int | None
    by: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.value is not None and abs(other - self.value) <= self.by


def failing(at: Moment, *checks: Any) -> list[str]:
    return list(dict.fromkeys(one.what_and_why for check in checks for one in at.verdict.failing(check)))


def adapters(at: Moment) -> dict[str, Any]:
    shown = {}
    for plan in at.facts.sources:
        rows = [row for row in watches.schedule() if row.source == plan.name]
        on_time = sum(is_on_time(row, plan.idle_interval, at.now) for row in rows)
        shown[plan.name] = {
            "polling": at.facts.polling and at.facts.worker.is_alive and on_time > 0,
            "last_poll": iso(max((row.last_poll_at for row in rows if row.last_poll_at is not None), default=None)),
            "last_success": iso(max((row.last_success_at for row in rows if row.last_success_at), default=None)),
            "watches": max(plan.watches, len(rows)),
            "on_time": on_time,
            "failing": sum(watch_states.is_failing(row, at.now) for row in rows),
            "last_poll_failed": sum(watch_states.last_poll_failed(row) for row in rows),
        }
    return shown


def default(at: Moment) -> destinations.DestinationStatus:
    return next(one for one in at.destinations if one.name == "default")


READY: dict[str, Row] = {
    "status": lambda at: "not_ready" if failing(at, "ready") else "ready",
    "timestamp": lambda at: iso(at.now),
    "adapters": adapters,
    **under(
        "delivery",
        default,
        ua_reachable=attrgetter("is_reachable"),
        last_success=lambda one: iso(one.row.last_success_at),
        last_failure=lambda one: iso(one.row.last_failure_at),
        state=attrgetter("state"),
        breaker=attrgetter("row.circuit"),
        paused_until=lambda one: iso(one.row.throttled_until) if one.state == "throttled" else None,
        canonical_json=lambda one: one.form or "ascii",
    ),
    # A sentence and no figure: worded by csi.web.health alone, from the facts.
    "delivery.note": lambda at: health.readiness(at.facts).body["delivery"]["note"],
    "delivery.enabled": attrgetter("facts.delivery_is_on"),
    "delivery.held": lambda at: [one.name for one in at.destinations if one.row.paused_reason is not None],
    "delivery.destinations": lambda at: {
        one.name: {
            "reachable": one.is_reachable,
            "last_success": iso(one.row.last_success_at),
            "state": one.state,
            "breaker": one.row.circuit,
        }
        for one in at.destinations
        if one.name != "default"
    },
    "worker.heartbeat_age_seconds": lambda at: rounded(at.facts.worker.age, 1),
    "database.ok": lambda at: not (at.facts.storage.nearly_full or at.facts.storage.fault),
    "database.note": attrgetter("facts.storage.note"),
    "database.free_mb": lambda at: Nearly(at.facts.storage.free_mb, 512),  # other programs write, too
    "database.log_mb": attrgetter("facts.storage.log_mb"),
    "reasons": lambda at: failing(at, "ready"),
    **each(
        "problems",
        lambda at: at.verdict.failing("ready"),
        **{name: attrgetter(name) for name in ("id", "subject", "severity", "what", "cause", "effect", "events")},
        since=lambda one: iso(one.since),
        page=attrgetter("kind.page"),
        runbook=lambda one: f"/docs/runbook#{one.runbook}",
    ),
}

API_STATUS: dict[str, Row] = {
    **STATUS,
    "ready": lambda at: not failing(at, "ready"),
    "live": lambda at: not failing(at, "live"),
    "reasons": lambda at: failing(at, "ready", "live"),
    **{f"readiness.{name}": row for name, row in READY.items()},
}

PROBLEM_LIST: dict[str, Row] = {"status": attrgetter("verdict.status"), **problem_rows()}
BACKLOG: dict[str, Row] = {**backlog_rows("backlog"), **backlog_rows("waiting")}


def slo_rows(report: Callable[[Moment], slo.WindowReport]) -> dict[str, Row]:
    def figure(name: str, attribute: str, **more: Callable[[Any], Any]) -> dict[str, Row]:
        shared = {
            "target": attrgetter("target"),
            "met": attrgetter("is_met"),
            "value": lambda one: rounded(one.value, 6),
        }
        return under(name, lambda at: getattr(report(at), attribute), **shared, **more)

    counts = {name: attrgetter(f"counts.{name}") for name in ("sent", "reported", "possible", "resent")}
    parts = {"occurred_to_seen": "to_seen", "seen_to_accepted": "to_accepted", "occurred_to_accepted": "total"}
    percentiles = {
        f"{part}.{name}": (lambda path: lambda one: rounded(attrgetter(path)(one), 3))(f"{attribute}.{name}")
        for part, attribute in parts.items()
        for name in ("p50", "p95", "p99")
    }
    return {
        "since": lambda at: iso(report(at).since),
        "until": lambda at: iso(report(at).until),
        "rows_since": lambda at: iso(report(at).rows_since),
        "met": lambda at: report(at).is_met,
        **event_counts("delivery", lambda at: report(at).success),
        **figure("delivery", "success"),
        **figure("duplicates", "duplicates", **counts),
        **figure(
            "uptime",
            "uptime",
            known_since=lambda one: iso(one.attendance.since),
            interruptions=lambda one: len(one.attendance.gaps),
            down_seconds=lambda one: rounded(one.attendance.down_seconds, 3),
        ),
        **each(
            "latency",
            lambda at: report(at).latencies,
            **{name: attrgetter(name) for name in ("tier", "events", "old_items", "late")},
            target_p95_seconds=attrgetter("target"),
            met=attrgetter("is_met"),
            **percentiles,
        ),
        "notes": lambda at: list(report(at).notes),
    }


SLO: dict[str, Row] = slo_rows(attrgetter("day"))
SLO_HOUR: dict[str, Row] = slo_rows(attrgetter("hour"))

_PLANNED = {
    "id": attrgetter("id"),
    "source": attrgetter("source"),
    "ref": attrgetter("ref"),
    "name": attrgetter("name"),
}

QUEUE: dict[str, Row] = {
    "worker.alive": attrgetter("facts.worker.is_alive"),
    "worker.heartbeat_at": lambda at: iso(getattr(at.facts.worker.heartbeat, "beat_at", None)),
    "worker.beat_at": lambda at: iso(getattr(at.facts.worker.heartbeat, "beat_at", None)),
    "worker.started_at": lambda at: iso(getattr(at.facts.worker.heartbeat, "started_at", None)),
    "worker.queued": lambda at: getattr(at.facts.worker.heartbeat, "queued", None),
    "due": attrgetter("upcoming.due"),
    "due_within_a_minute": attrgetter("upcoming.soon"),
    "polling": attrgetter("upcoming.polling"),
    "being_read": attrgetter("upcoming.polling"),
    "inbox.waiting": lambda at: sum(one.count for one in at.backlog if one.what == "items"),
    "inbox.quarantined": lambda at: sum(one.count for one in at.backlog if one.what == "quarantined items"),
    "inbox.oldest_seen_at": lambda at: next((iso(one.since) for one in at.backlog if one.what == "items"), None),
    **each(
        "batches",
        attrgetter("upcoming.batches"),
        **{name: attrgetter(name) for name in ("batch_id", "destination", "lane", "size", "state", "attempts")},
        next_attempt_at=lambda one: iso(one.next_attempt_at),
    ),
    "unsettled": lambda at: {
        state: sum(batch.state == state for batch in at.upcoming.batches) for state in ("ready", "sending")
    },
    **each("polls", attrgetter("upcoming.polls"), **_PLANNED, next_poll_at=lambda one: iso(one.next_poll_at)),
    **each("reads", attrgetter("upcoming.polls"), **_PLANNED, next_poll_at=lambda one: iso(one.next_poll_at)),
}

QUOTA: dict[str, Row] = {
    **HOST_PACING,
    **under("", attrgetter("quota"), **{name: attrgetter(name) for name in ("day", "limit", "used", "left", "buffer")}),
    "low": lambda at: at.facts.quota_left < at.facts.quota_buffer,
    "enabled": lambda at: at.quota is not None,
    "ends_at": lambda at: iso(at.facts.quota_resets_at),
    "lasts_until": lambda at: iso(at.quota.lasts_until),
    "units_per_hour": lambda at: rounded(at.quota.per_hour, 1),
    "planned_units": attrgetter("quota.planned_units"),
    **each(
        "intervals",
        attrgetter("quota.groups"),
        seconds=lambda one: None if math.isinf(one.seconds) else one.seconds,
        watches=attrgetter("watches"),
        as_configured=attrgetter("is_fast"),
        as_wished=attrgetter("is_fast"),
    ),
    "forecast": lambda at: quota_schedule.sentence(at.quota),
    "warning": attrgetter("quota.warning"),
    "urgent": attrgetter("quota.urgent"),
    **under(
        "catalogue",
        attrgetter("catalog"),
        limit=attrgetter("limit"),
        used=attrgetter("used"),
        needed_per_day=attrgetter("needed"),
        needed_a_day=attrgetter("needed"),
        short=attrgetter("is_short"),
        stats_limit=attrgetter("stats_limit"),
        stats_used=attrgetter("stats_used"),
        stats_needed_per_day=attrgetter("stats_needed"),
        stats_refused=attrgetter("stats_refused"),
    ),
}

# ── the dashboard's overview ────────────────────────────────────────────────────────────────────────────


class OverviewPage(HTMLParser):
    """The texts of the page by the part that shows them: a tile, a cell of a table, a chart, the rest of a section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.figures: dict[str, list[str]] = {}
        self._open: list[tuple[str, dict[str, str | None], str | None]] = []
        self._section, self._term = "main", ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("br", "meta", "link", "img", "input"):
            return
        if tag == "section":
            self._section = values.get("id") or ""
        if (name := self._name(tag, values)) is not None:
            self.figures.setdefault(name, []).append("")
        self._open.append((tag, values, name))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Lines of charts have no text."""

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _, _ in self._open]
        if (
            not data.strip()
            or "button" in tags
            or "dialog" in tags
            or self._is_slot()
            or ("header" in tags and "b" not in tags)
        ):
            return
        if "h2" in tags:
            self._section = self._section or data.strip()
        if "dt" in tags:
            self._term = data.strip()
        if {"dt", "h1", "h2", "th", "script", "style", "noscript"} & set(tags) or self._is_axis():
            return
        name = next((name for _, _, name in reversed(self._open) if name is not None), None)
        if name is None:
            if "main" not in tags or not re.search(r"\d", data):
                return
            name = f"{self._section}: text"
            self.figures.setdefault(name, []).append("")
        self.figures[name][-1] = f"{self.figures[name][-1]} {' '.join(data.split())}".strip()

    def _is_slot(self) -> bool:
        """What a click on an interval opens says the same as its bar."""
        return any(tag == "rect" and values.get("class") == "slot" for tag, values, _ in self._open)

    def _is_axis(self) -> bool:
        return any(tag == "text" and values.get("class") == "axis" for tag, values, _ in self._open)

    def _name(self, tag: str, values: dict[str, str | None]) -> str | None:
        kind = values.get("class") or ""
        if self._is_slot() or any(one == "dialog" for one, _, _ in self._open):
            return None
        match tag:
            case "a" if "tile" in kind.split():
                return f"tile {values.get('href')}"
            case "b" if kind == "count" and self._open[-1][0] == "a":
                return f"count beside {self._open[-1][1].get('href')}"
            case "span" if values.get("id") == "clock":
                return "clock"
            case "p" if values.get("id") in ("headline", "consequences"):
                return values["id"]
            case "td" if kind != "acts":
                return f"{self._section}: {values.get('data-label', 'result')}"
            case "h3":
                return f"{self._section}: title"
            case "dd":
                return f"{self._section}: {self._term}"
            case "title" if self._open[-1][0] == "svg":
                return f"{self._section}: chart"
            case "title" if self._open[-1][0] == "rect":
                return f"{self._section}: bars"
            case "p" if self._section == "quota":
                return "quota: text"
        return None


def plain_text(text: str) -> str:
    """As OverviewPage joins texts; the spaces between elements do not count."""
    return "".join(text.split())


def shown(*texts: str) -> list[str]:
    return [plain_text(text) for text in texts]


def when(moment: float | None, now: float) -> str:
    return "never" if moment is None else ago(moment, now)


def beside(figure: Callable[[Moment], int]) -> Row:
    """The number beside the name of a page; none for 0."""
    return lambda at: shown(f"{figure(at):,}") if figure(at) else []


def flow_tile(report: slo.WindowReport, name: str) -> list[str]:
    return shown(f"{report.success.delivered:,} of {report.success.seen:,} events of the last {name} delivered")


def waiting_tile(at: Moment) -> list[str]:
    age = backlog.backlog_age(at.overview.oldest_pending, at.now)
    return shown(f"{backlog.queued(at.backlog):,} waiting{f', the oldest for {span_words(age)}' if age else ''}")


def watches_tile(at: Moment) -> list[str]:
    states = at.states()
    others = [f", {states[state]} {state}" for state in ("unknown", "new", "quiet", "paused") if states[state]]
    return shown(f"{states['healthy']}/{states.total()} watches healthy{''.join(others)}")


def headline(at: Moment) -> list[str]:
    number = len(at.verdict.attention)
    if not number:
        return shown("No problems.")
    need = "needs" if number == 1 else "need"
    return shown(f"{at.verdict.status.capitalize()}: {plural(number, 'problem')} {need} attention.")


def consequences(at: Moment) -> list[str]:
    found = at.verdict.consequences
    is_shown = found and at.verdict.attention
    return shown(f"From this follows: {'; '.join(one.what_and_why for one in found)}.") if is_shown else []


def cases(section: str, problems: Callable[[Moment], Iterable[Any]]) -> dict[str, Row]:
    return {
        f"{section}: title": lambda at: shown(*(one.what_and_why for one in problems(at))),
        f"{section}: Since": lambda at: shown(
            *(f"{stamp(one.since)}, {ago(one.since, at.now)}" for one in problems(at) if one.since)
        ),
        f"{section}: Effect": lambda at: shown(
            *(f"{one.effect}; {one.affected}" if one.affected else one.effect for one in problems(at))
        ),
        f"{section}: What to do": lambda at: shown(*(one.remedy.replace("`", "") for one in problems(at))),
    }


def objective_cells(cell: Callable[[slo.Objective], str]) -> Row:
    return lambda at: shown(*(cell(one) for one in slo.objectives(at.day)))


def reached(one: slo.Objective) -> str:
    return percent(one.value) if one.kind == "share" else span_words(one.value)


def target(one: slo.Objective) -> str:
    limit = percent(one.target) if one.kind == "share" else whole_seconds(one.target)
    return f"{'≥' if one.at_least else '<'} {limit}"


def result(one: slo.Objective) -> str:
    return "nothing to measure" if one.is_met is None else "met" if one.is_met else "missed"


def chart_rows(name: str, chart: Callable[[Moment], Any]) -> dict[str, Row]:
    def bars(at: Moment) -> Iterator[str]:
        found = chart(at)
        for place, (seen, arrived, died) in enumerate(zip(found.seen, found.arrived, found.died, strict=True)):
            start = clock.iso(found.starts + place * found.step)[11:16]
            text = f"{start} UTC: {seen:,} seen, {arrived:,} delivered, {died:,} died"
            yield from [text] * (bool(arrived) + bool(died))

    def title(at: Moment) -> str:
        seen, arrived, died = (sum(counts) for counts in (chart(at).seen, chart(at).arrived, chart(at).died))
        return f"{name}: {seen:,} seen, {arrived:,} delivered, {died:,} died"

    return {f"{name}: chart": lambda at: shown(title(at)), f"{name}: bars": lambda at: shown(*bars(at))}


def destination_state(at: Moment, one: destinations.DestinationStatus) -> str:
    parts = [destinations.STATE_TEXTS[one.state], one.cause]
    if one.state == "throttled":
        parts.append(f"until {stamp(one.row.throttled_until)}")
    if one.row.certificate_expires_at:
        parts.append(f"certificate {certificate_text(one.row.certificate_expires_at, at.now)}")
    return " ".join(part for part in (*parts, one.note) if part)


def destination_cells(cell: Callable[[Moment, destinations.DestinationStatus], str]) -> Row:
    return lambda at: shown(*(cell(at, one) for one in at.destinations))


def quota_text(at: Moment) -> list[str]:
    found = at.quota
    if found is None:
        return shown("No enabled source uses API units.")
    left = f"{at.facts.quota_left:,} of {at.facts.quota_limit:,} left; {quota_schedule.sentence(found)}."
    return shown(left, *([found.warning] if found.warning else []))


def last_failure(at: Moment, one: destinations.DestinationStatus) -> str:
    error = one.last_error if one.row.last_failure_at and one.last_error else ""
    return f"{when(one.row.last_failure_at, at.now)} {error}"


OVERVIEW: dict[str, Row] = {
    "count beside /sources": beside(lambda at: sum(at.states()[state] for state in watch_states.FAILING_STATES)),
    "count beside /destinations": beside(
        lambda at: sum(one.breaker_is_open for one in at.destinations if one.is_configured)
    ),
    "count beside /dead-letters": beside(attrgetter("facts.dead_letters")),
    "count beside /jobs": beside(lambda at: at.dead_jobs),
    "clock": lambda at: shown(stamp(at.now)),
    "headline": headline,
    "consequences": consequences,
    **cases("problems", attrgetter("verdict.attention")),
    **cases("notices", attrgetter("verdict.notices")),
    "tile /events?since=1h": lambda at: flow_tile(at.hour, "hour"),
    "tile /events?since=24h": lambda at: flow_tile(at.day, "day"),
    "tile #waiting": waiting_tile,
    "tile /dead-letters": lambda at: shown(f"{at.overview.open_dead_letters:,} dead letters"),
    "tile /sources": watches_tile,
    **chart_rows("Last hour", attrgetter("hour_chart")),
    **chart_rows("Last day", attrgetter("day_chart")),
    "waiting: What": lambda at: shown(*(one.what.replace("_", " ") for one in at.backlog)),
    "waiting: How many": lambda at: shown(*(f"{one.count:,}" for one in at.backlog)),
    "waiting: Oldest": lambda at: shown(*(when(one.since, at.now) for one in at.backlog)),
    "waiting: Reason": lambda at: shown(*(one.reason.timed(at.now) for one in at.backlog)),
    "Objectives: Objective": objective_cells(lambda one: f"{one.name} {one.detail}"),
    "Objectives: Reached": objective_cells(reached),
    "Objectives: Target": objective_cells(target),
    "Objectives: result": objective_cells(result),
    "quota: chart": lambda at: shown(f"{at.facts.quota_left:,} of {at.facts.quota_limit:,} API units left"),
    "quota: text": lambda at: [
        *quota_text(at),
        *(plain_text(f"{one.host}: {one.sentence}.") for one in host_pace.host_paces(at.rt)),
    ],
    "destinations: Destination": destination_cells(
        lambda at, one: one.name if one.is_configured else f"{one.name} no longer configured"
    ),
    "destinations: State": destination_cells(destination_state),
    "destinations: Last success": destination_cells(lambda at, one: when(one.row.last_success_at, at.now)),
    "destinations: Last failure": destination_cells(last_failure),
    "destinations: Waiting": destination_cells(lambda at, one: f"{one.pending + one.in_flight:,}"),
}


def overview_figures(page: str) -> dict[str, list[str]]:
    return {name: [plain_text(text) for text in texts] for name, texts in OverviewPage(page).figures.items()}
