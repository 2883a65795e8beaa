"""`/metrics` in the Prometheus text format: every number is read from the database at the scrape.

Labels are configured names and our own words, never text from outside.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from csi import __version__
from csi.catalog.data_api import UNITS
from csi.config.delivery_settings import RESEND, STREAM
from csi.config.setting_types import TIERS
from csi.dlq.dead_letters import OLD_CAUSES
from csi.jobs.job_kinds import KINDS
from csi.logs import redact
from csi.runtime import Runtime
from csi.status.backlog import pending_by_lane
from csi.status.facts import SystemFacts, gather
from csi.status.problems import ALERTS, PROBLEMS, Problem, to_notify
from csi.status.slo import DAY, HOUR, WindowReport, reports
from csi.status.storage_problems import problem_of
from csi.status.verdict import judge, overdue
from csi.status.watch_states import STATES, watch_counts
from csi.store import api_units, counters
from csi.store.database_faults import DatabaseFault
from csi.store.queries import backlog_rows, charts, job_figures

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
NAN = float("nan")

EVENT_STATUSES = ("stored", "delivered", "dlq", "replayed", "resent", "duplicate", "malformed")
"""`malformed`: items that never became an event. `replayed`: dead letters whose replay has ended. `resent`: events that
a receiver got again because an operator sent them again."""
BATCH_STATES = ("ready", "sending")
CAUSES = ("transient", "destination", "event", "malformed", "crash", *OLD_CAUSES)
JOB_STATUSES = ("pending", "running", "failed", "dead")
"""Completed ones are many, and `csi_job_runs_total` counts them."""
JOB_RESULTS = ("completed", "failed", "waits", "dead")
RELOAD_RESULTS = ("loaded", "refused")
NOTIFICATION_RESULTS = ("sent", "failed")
PUSH_RESULTS = ("push", "confirmed", "miss", "near_miss")
INBOUND_RESULTS = ("stored", "repeated", "conflict", "full", "refused", "done", "failed")
VERDICTS = ("ok", "degraded", "down")
LANES = (*TIERS, STREAM)
SUBJECTS = 20
"""Problems of one id beyond this number share a series with the subject `others`."""
CAUSE_CHARACTERS = 120

LabelValues = TypeVar("LabelValues", bound=tuple[str, ...])


def render(rt: Runtime) -> bytes:
    registry = CollectorRegistry()
    registry.register(StoreCollector(rt))
    return generate_latest(registry)


def render_fault(fault: DatabaseFault) -> bytes:
    """Without the database: only its problem. An error page instead would tell Prometheus that the sidecar is down."""
    registry = CollectorRegistry()
    registry.register(FaultCollector(problem_of(fault)))
    return generate_latest(registry)


class FaultCollector(Collector):
    """The metrics of problems, with this one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def collect(self) -> Iterator[Metric]:
        yield from _problem_metrics([self._problem])


class StoreCollector(Collector):
    """Reads the counters of all processes where they were added up."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt

    def describe(self) -> Iterable[Metric]:
        return []  # registering must not ask the database

    def collect(self) -> Iterator[Metric]:
        rt, sources, facts = self._rt, tuple(self._rt.settings.sources), gather(self._rt)
        hour, day = reports(rt, [HOUR, DAY])
        yield from _promised(sources, day)
        yield from _objectives({"1h": hour, "24h": day})
        yield from _counted(sources)
        yield from _waiting(facts)
        yield from _watches(rt, facts, sources)
        yield from _destinations(facts)
        yield from _worker_and_quota(facts)
        yield from _catalog(rt)
        yield from _backups_and_verdict(facts)
        yield InfoMetricFamily("csi_build", "The running version", {"version": __version__})


def _promised(sources: Sequence[str], day: WindowReport) -> Iterator[Metric]:
    """The four of PRD §11.4, as named and typed there."""
    yield _counter("csi_events", "Total events processed", "status", "events", sources, EVENT_STATUSES)
    yield _gauge("csi_delivery_success_rate", "Delivery success rate of the last day", day.success.value)
    items: Counter[str] = Counter()
    for (_, result), count in counters.all_of("items").items():
        items[result] += int(count)
    listed = items["known"] + items["new"]
    yield _gauge("csi_dedupe_hit_rate", "Dedupe hit rate", items["known"] / listed if listed else None)
    name, bounds = "csi_adapter_poll_duration_seconds", counters.POLL_BUCKETS
    yield _histogram(name, "Adapter poll duration", "source", "poll_seconds", bounds, sources)


def _objectives(windows: Mapping[str, WindowReport]) -> Iterator[Metric]:
    """The figures of `csi slo`."""
    success = {(window,): report.success.value for window, report in windows.items()}
    yield _gauges("csi_slo_delivery_success_ratio", "Delivered share of settled events", ["window"], success)
    dead = {(window,): report.success.dead for window, report in windows.items()}
    yield _gauges("csi_slo_dead_events", "Events of the window that are dead letters", ["window"], dead)
    slow = {(one.tier, window): one.slow for window, report in windows.items() for one in report.latencies}
    text = "Events that took longer than their objective from first seen to accepted"
    yield _gauges("csi_slo_slow_events", text, ["tier", "window"], slow)
    duplicates = {(window,): report.duplicates.value for window, report in windows.items()}
    text = "Share of accepted events that a receiver may have got twice"
    yield _gauges("csi_slo_duplicates_ratio", text, ["window"], duplicates)
    latencies = {}
    for window, report in windows.items():
        for one in report.latencies:
            latencies[one.tier, "occurred_to_seen", window] = one.to_seen.p95
            latencies[one.tier, "seen_to_accepted", window] = one.to_accepted.p95
            latencies[one.tier, "occurred_to_accepted", window] = one.total.p95
    labels = ["tier", "part", "window"]
    yield _gauges("csi_slo_latency_p95_seconds", "P95 of latencies of events", labels, latencies)


def _counted(sources: Sequence[str]) -> Iterator[Metric]:
    """Items, polls, gaps and outages by source; latencies by lane, counted since the beginning."""
    results = ("new", "known", "filtered")
    yield _counter("csi_items", "Items read, by what became of them", "result", "items", sources, results)
    yield _counter("csi_polls", "Polls by result", "result", "polls", sources, ("ok", "error"))
    text = "Gaps in feeds that were filled, or left open"
    yield _counter("csi_gaps", text, "result", "gaps", sources, ("filled", "open"))
    text = "Upstream outages that began and ended"
    yield _counter("csi_outages", text, "step", "outages", sources, ("began", "ended"))
    text = "Pushes of hubs and of Composio, and items that a push announced, missed or announced late"
    yield _counter("csi_pushes", text, "result", "pushes", sources, PUSH_RESULTS)
    text = "Messages at /hooks by what became of them"
    yield _results("csi_inbound_messages", text, "inbound", INBOUND_RESULTS)
    seen, accepted = "Time from occurred to first seen", "Time from first seen to accepted by the receiver"
    ages, waits = counters.AGE_BUCKETS, counters.LATENCY_BUCKETS
    yield _histogram("csi_seen_latency_seconds", seen, "tier", "seen_seconds", ages, LANES)
    yield _histogram("csi_accept_latency_seconds", accepted, "tier", "accept_seconds", waits, LANES)


def _waiting(facts: SystemFacts) -> Iterator[Metric]:
    yield _by("csi_pending_events", "Events that are pending in a lane", "tier", pending_by_lane(), (*LANES, RESEND))
    yield _gauge("csi_backlog_age_seconds", "Age of the oldest event that is not settled", facts.backlog_age)
    yield _gauge("csi_inbox_items", "Items that were seen and are not events yet", backlog_rows.inbox().waiting)
    yield _by("csi_batches", "Batches that are not settled", "state", backlog_rows.unsettled_counts(), BATCH_STATES)
    letters = charts.open_dead_letters()
    letters_by_word = letters | {old: letters.get(word, 0) for old, word in OLD_CAUSES.items()}
    yield _gauge("csi_dead_letters_open", "Open dead letters", sum(letters.values()))
    yield _by("csi_dead_letters", "Open dead letters by cause", "cause", letters_by_word, CAUSES)


def _watches(rt: Runtime, facts: SystemFacts, sources: Sequence[str]) -> Iterator[Metric]:
    found = {(one.source, one.state): one.watches for one in watch_counts(rt, facts.survey)}
    states = {pair: found.get(pair, 0) for pair in product(sources, STATES)}
    yield _gauges("csi_watches", "Watches by state", ["source", "state"], states)
    ages = {(source,): facts.success_age(source) for source in sources}
    yield _gauges("csi_source_success_age_seconds", "Time since a watch of this source was last read", ["source"], ages)
    yield _by("csi_watches_overdue", "Watches that are long overdue", "source", overdue(facts), sources)
    yield _gauge("csi_hosts_in_outage", "Hosts of sources that have an outage", len(facts.outages))


def _destinations(facts: SystemFacts) -> Iterator[Metric]:
    names = [one.name for one in facts.destinations]
    opened = {one.name: float(one.breaker_is_open) for one in facts.destinations}
    paused = {one.name: float(one.row.paused_reason is not None) for one in facts.destinations}
    yield _gauge("csi_breaker_open", "1 while a circuit breaker is open", max(opened.values(), default=0.0))
    yield _by("csi_destination_breaker_open", "1 while its circuit breaker is open", "destination", opened, names)
    yield _by("csi_destination_held", "1 while paused by the operator", "destination", paused, names)
    waiting = {(name,): facts.waiting(name) for name in names}
    text = "Events that wait for a destination, counted every 30 s"
    yield _gauges("csi_destination_waiting_events", text, ["destination"], waiting)
    ends = {one.name: one.row.certificate_expires_at for one in facts.destinations}
    left = {(name,): None if at is None else at - facts.now for name, at in ends.items()}
    text = "Time until the receiver's certificate expires"
    yield _gauges("csi_destination_certificate_left_seconds", text, ["destination"], left)


def _worker_and_quota(facts: SystemFacts) -> Iterator[Metric]:
    heartbeat = facts.worker.heartbeat
    started, depth = (heartbeat.started_at, heartbeat.queued) if heartbeat else (None, None)
    yield _gauge("csi_worker_alive", "1 while the worker writes heartbeats", float(facts.worker.is_alive))
    yield _gauge("csi_worker_heartbeat_age_seconds", "Time since the worker's last heartbeat", facts.worker.age)
    yield _gauge("csi_worker_start_time_seconds", "When the worker started, since 1970", started)
    yield _gauge("csi_queue_depth", "Tasks in the worker's queue at its last heartbeat", depth)
    if facts.quota_limit is not None:
        yield _gauge("csi_api_quota_used", "API units used this Pacific day", facts.quota_used)
        yield _gauge("csi_api_quota_left", "API units left of this Pacific day", facts.quota_left)
        yield _gauge("csi_api_quota_limit", "API units allowed in a Pacific day", facts.quota_limit)


def _catalog(rt: Runtime) -> Iterator[Metric]:
    """What the catalogue's jobs do and wait for, and its part of the API units."""
    now, found = rt.now(), job_figures.unfinished()
    states = {pair: found.get(pair, 0) for pair in product(KINDS, JOB_STATUSES)}
    yield _gauges("csi_jobs", "Jobs that are not completed", ["type", "status"], states)
    yield _counter("csi_job_runs", "Ends of jobs, and of tries of them", "result", "jobs", KINDS, JOB_RESULTS, "type")
    since = job_figures.waiting_since(now) if rt.settings.catalog.enabled else None
    oldest = 0.0 if since is None else now - since
    yield _gauge("csi_jobs_oldest_due_seconds", "How long the oldest due job waits for a worker", oldest)
    used, share = api_units.share_used(UNITS, now), rt.settings.catalog.units_per_day
    yield _gauge("csi_catalog_units_used", "API units that the catalogue used this Pacific day", used)
    yield _gauge("csi_catalog_units_limit", "API units that the catalogue may use in a Pacific day", share)
    used, limit = api_units.used(now, "stats"), rt.settings.catalog.stats_units_per_day
    yield _gauge("csi_api_stats_units_used", "Units of videos:batchGetStats used this Pacific day", used)
    yield _gauge("csi_api_stats_units_limit", "Units of videos:batchGetStats allowed in a Pacific day", limit)


def _backups_and_verdict(facts: SystemFacts) -> Iterator[Metric]:
    good = facts.backups.last_good  # NaN until a backup was made
    age = None if good is None else max(facts.now - good.at, 0.0)
    yield _gauge("csi_backup_age_seconds", "Time since the last good backup was made", age)
    yield _gauge("csi_backup_size_bytes", "Size of the last good backup", good.bytes if good else None)
    yield _gauge("csi_backup_duration_seconds", "How long the last good backup took", good.seconds if good else None)
    yield _gauge("csi_backup_failed", "1 while the last backup failed", float(facts.backups.last_failed is not None))
    # Judged at the scrape, by the same rules as notifications: a dead worker cannot hide its absence.
    found = judge(facts)
    yield _gauge("csi_status", "The verdict: 0 ok, 1 degraded, 2 down", VERDICTS.index(found.status))
    yield from _problem_metrics(found.problems)
    failed = float(facts.reload_error is not None)
    yield _gauge("csi_config_reload_failed", "1 while a new configuration is refused", failed)
    yield _results("csi_config_reloads", "Reloads of the configuration by result", "config_reloads", RELOAD_RESULTS)
    text = "Notifications to each target by result; a failed one is tried again"
    yield _results("csi_notifications", text, "notifications", NOTIFICATION_RESULTS)


def _problem_metrics(found: Sequence[Problem]) -> Iterator[Metric]:
    counted = Counter(problem.id for problem in found)
    alerts = Counter(problem.id for problem in to_notify(found))
    yield _by("csi_problems", "Problems that exist now, by id", "problem", counted, PROBLEMS)
    text = "Problems that operators are notified of, by id"
    yield _by("csi_alerts", text, "alert", alerts, ALERTS)
    yield _by("csi_troubles", "The old name of csi_alerts", "trouble", alerts, ALERTS)
    yield problem_series(found)


def _results(name: str, text: str, kept_as: str, words: Sequence[str]) -> Metric:
    counted = counters.all_of(kept_as)
    family = CounterMetricFamily(name, text, labels=["result"])
    for result in words:
        family.add_metric([result], counted.get(("", result), 0.0))
    return family


def problem_series(problems: Sequence[Problem]) -> Metric:
    """One series for each problem that exists; none for those that do not."""
    notified, counted = to_notify(problems), Counter[str]()
    values: dict[tuple[str, ...], float] = {}
    for one in problems:
        counted[one.id] += 1
        subject, cause = one.subject, " ".join(redact(one.cause or "").split())[:CAUSE_CHARACTERS]
        if counted[one.id] > SUBJECTS:
            subject, cause = "others", ""
        key = (one.id, subject, one.severity, "yes" if one.is_proven else "no", cause, one.runbook)
        values[key] = max(float(one in notified), values.get(key, 0.0))
    text = "1 for each problem that operators are to be alerted of; 0 where another problem explains it"
    return _gauges("csi_problem", text, ["problem", "subject", "severity", "proven", "cause", "runbook"], values)


def _counter(
    name: str, text: str, label: str, kept_as: str, groups: Iterable[str], words: Sequence[str], group: str = "source"
) -> Metric:
    """Every series is there from the start, at 0, so that rates see the first increase."""
    counted = counters.all_of(kept_as)
    family = CounterMetricFamily(name, text, labels=[group, label])
    for pair in product(groups, words):
        family.add_metric(pair, counted.get(pair, 0.0))
    return family


def _histogram(
    name: str, text: str, label: str, kept_as: str, bounds: Sequence[float], groups: Sequence[str]
) -> Metric:
    counted, sums = counters.all_of(kept_as), counters.all_of(f"{kept_as}_sum")
    family = HistogramMetricFamily(name, text, labels=[label])
    edges = [*map(str, bounds), "+Inf"]
    for group in groups:
        heights = accumulate(counted.get((group, edge), 0.0) for edge in edges)
        family.add_metric([group], list(zip(edges, heights, strict=True)), sum_value=sums.get((group, ""), 0.0))
    return family


def _by(name: str, text: str, label: str, values: Mapping[str, float], words: Iterable[str]) -> Metric:
    """A gauge for each of these words, and for no other."""
    return _gauges(name, text, [label], {(word,): values.get(word, 0) for word in words})


def _gauges(name: str, text: str, labels: Sequence[str], values: Mapping[LabelValues, float | None]) -> Metric:
    """NaN for None, where there is nothing to measure: 0 would raise an alarm."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, NAN if value is None else value)
    return family


def _gauge(name: str, text: str, value: float | None) -> Metric:
    return GaugeMetricFamily(name, text, value=NAN if value is None else value)
