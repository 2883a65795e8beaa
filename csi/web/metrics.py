"""`/metrics` in the Prometheus text format: every number is read from the database at the scrape.

Labels are configured names and our own words, never text from outside.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from csi import __version__
from csi.config.settings import STREAM, TIERS
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.status.facts import SystemFacts, gather
from csi.status.slo import DAY, HOUR, WindowReport, reports
from csi.status.verdict import overdue
from csi.store import api_units, counters, inbox, outbox
from csi.store.queries import backlog_rows, charts
from csi.web import metrics_catalog, metrics_verdict

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
NAN = float("nan")

EVENT_STATUSES = ("stored", "delivered", "dlq", "replayed", "duplicate", "malformed")
"""`malformed`: items that never became an event. `replayed`: dead letters whose replay has ended."""
POLL_RESULTS = ("ok", "error")
ITEM_RESULTS = ("new", "known", "filtered")
GAP_RESULTS = ("filled", "open")
OUTAGE_STEPS = ("began", "ended")
BATCH_STATES = ("ready", "sending")
CAUSES = ("transient", "endpoint", "event", "malformed", "crash")
WATCH_STATES = ("healthy", "backing_off", "throttled", "outage", "suspect", "dead", "paused")
LANES = (*TIERS, STREAM)

Counted = Mapping[tuple[str, str], float]
"""As `counters.all_of` gives it: by source (or tier) and label."""


def render(rt: Runtime) -> bytes:
    registry = CollectorRegistry()
    registry.register(StoreCollector(rt))
    return generate_latest(registry)


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
        yield from _latencies()
        yield from _waiting(facts)
        yield from _watches(facts, sources)
        yield from _destinations(facts)
        yield from _worker(facts)
        yield from _quota(rt, facts.now)
        yield from metrics_catalog.collect(rt)
        yield from metrics_verdict.collect(facts)
        yield InfoMetricFamily("csi_build", "The running version", {"version": __version__})


def _promised(sources: Sequence[str], day: WindowReport) -> Iterator[Metric]:
    """The four of PRD §11.4, as named and typed there."""
    handled = counters.all_of("events")
    yield _labelled("csi_events", "Total events processed", handled, sources, EVENT_STATUSES, "status")
    yield _gauge("csi_delivery_success_rate", "Delivery success rate of the last day", _known(day.success.value))
    items = counters.all_of("items")
    known, new = _total(items, "known"), _total(items, "new")
    yield _gauge("csi_dedupe_hit_rate", "Dedupe hit rate", _share(known, new))
    yield _histogram(
        "csi_adapter_poll_duration_seconds",
        "Adapter poll duration",
        "source",
        "poll_seconds",
        counters.POLL_BUCKETS,
        sources,
    )


def _objectives(windows: Mapping[str, WindowReport]) -> Iterator[Metric]:
    """The figures of `csi slo`. NaN where there was nothing to measure: 0 would raise an alarm."""
    success = GaugeMetricFamily(
        "csi_slo_delivery_success_ratio", "Delivered share of settled events", labels=["window"]
    )
    duplicates = GaugeMetricFamily(
        "csi_slo_duplicates_ratio", "Share of accepted events that a receiver may have got twice", labels=["window"]
    )
    latency = GaugeMetricFamily(
        "csi_slo_latency_p95_seconds", "P95 of latencies of events", labels=["tier", "part", "window"]
    )
    for window, report in windows.items():
        success.add_metric([window], _known(report.success.value))
        duplicates.add_metric([window], _known(report.duplicates.value))
        for tier in report.latencies:
            parts = {
                "occurred_to_seen": tier.to_seen,
                "seen_to_accepted": tier.to_accepted,
                "occurred_to_accepted": tier.total,
            }
            for part, found in parts.items():
                latency.add_metric([tier.tier, part, window], _known(found.p95))
    yield from (success, duplicates, latency)


def _counted(sources: Sequence[str]) -> Iterator[Metric]:
    """Items, polls, gaps and outages by source."""
    items, polls = counters.all_of("items"), counters.all_of("polls")
    yield _labelled("csi_items", "Items read, by what became of them", items, sources, ITEM_RESULTS, "result")
    yield _labelled("csi_polls", "Polls by result", polls, sources, POLL_RESULTS, "result")
    gaps, outages = counters.all_of("gaps"), counters.all_of("outages")
    yield _labelled("csi_gaps", "Gaps in feeds that were filled, or left open", gaps, sources, GAP_RESULTS, "result")
    yield _labelled("csi_outages", "Upstream outages that began and ended", outages, sources, OUTAGE_STEPS, "step")


def _latencies() -> Iterator[Metric]:
    """Counted since the beginning: until an event is first seen, and from there to its acceptance."""
    seen, accepted = "Time from occurred to first seen", "Time from first seen to accepted by the receiver"
    ages, waits = counters.AGE_BUCKETS, counters.LATENCY_BUCKETS
    yield _histogram("csi_seen_latency_seconds", seen, "tier", "seen_seconds", ages, LANES)
    yield _histogram("csi_accept_latency_seconds", accepted, "tier", "accept_seconds", waits, LANES)


def _waiting(facts: SystemFacts) -> Iterator[Metric]:
    pending = GaugeMetricFamily("csi_pending_events", "Events that are pending in a lane", labels=["tier"])
    for tier in LANES:
        pending.add_metric([tier], outbox.pending_count(tier))
    yield pending
    age = 0.0 if facts.oldest_pending is None else max(facts.now - facts.oldest_pending, 0.0)
    yield _gauge("csi_backlog_age_seconds", "Age of the oldest event that is not settled", age)
    yield _gauge("csi_inbox_items", "Items that were seen and are not events yet", inbox.waiting_count())
    yield _by("csi_batches", "Batches that are not settled", "state", backlog_rows.unsettled_counts(), BATCH_STATES)
    letters = charts.open_dead_letters()
    yield _gauge("csi_dead_letters_open", "Open dead letters", sum(letters.values()))
    yield _by("csi_dead_letters", "Open dead letters by cause", "cause", letters, CAUSES)


def _watches(facts: SystemFacts, sources: Sequence[str]) -> Iterator[Metric]:
    found = {(one.source, one.state): one.watches for one in charts.watch_counts(sources)}
    states = GaugeMetricFamily("csi_watches", "Watches by state", labels=["source", "state"])
    age = GaugeMetricFamily(
        "csi_source_success_age_seconds", "Time since a watch of this source was last read", labels=["source"]
    )
    late = GaugeMetricFamily("csi_watches_overdue", "Watches that are long overdue", labels=["source"])
    counted = overdue(facts)
    for source in sources:
        for state in WATCH_STATES:
            states.add_metric([source, state], found.get((source, state), 0))
        read = [one.last_success_at for one in facts.watches_of(source) if one.last_success_at is not None]
        age.add_metric([source], max(facts.now - max(read), 0.0) if read else NAN)
        late.add_metric([source], counted.get(source, 0))
    yield from (states, age, late)
    yield _gauge("csi_hosts_in_outage", "Hosts of sources that have an outage", len(facts.outages))


def _destinations(facts: SystemFacts) -> Iterator[Metric]:
    names = [one.name for one in facts.destinations]
    opened = {one.name: float(one.row.circuit != "closed") for one in facts.destinations}
    paused = {one.name: float(one.row.paused_reason is not None) for one in facts.destinations}
    yield _gauge("csi_breaker_open", "1 while a circuit breaker is open", max(opened.values(), default=0.0))
    yield _by("csi_destination_breaker_open", "1 while its circuit breaker is open", "destination", opened, names)
    yield _by("csi_destination_held", "1 while paused by the operator", "destination", paused, names)


def _worker(facts: SystemFacts) -> Iterator[Metric]:
    heartbeat, age = facts.worker.heartbeat, facts.worker.age
    started = NAN if heartbeat is None else heartbeat.started_at
    depth = NAN if heartbeat is None or heartbeat.queued is None else heartbeat.queued
    yield _gauge("csi_worker_alive", "1 while the worker writes heartbeats", float(facts.worker.is_alive))
    yield _gauge("csi_worker_heartbeat_age_seconds", "Time since the worker's last heartbeat", _known(age))
    yield _gauge("csi_worker_start_time_seconds", "When the worker started, since 1970", started)
    yield _gauge("csi_queue_depth", "Tasks in the worker's queue at its last heartbeat", depth)


def _quota(rt: Runtime, now: float) -> Iterator[Metric]:
    limit = quota_schedule.unit_limit(rt)
    if limit is None:
        return
    used = api_units.used(now)
    yield _gauge("csi_api_quota_used", "API units used this Pacific day", used)
    yield _gauge("csi_api_quota_left", "API units left of this Pacific day", max(limit - used, 0))
    yield _gauge("csi_api_quota_limit", "API units allowed in a Pacific day", limit)


def _labelled(
    name: str, text: str, counted: Counted, sources: Sequence[str], words: Sequence[str], label: str
) -> Metric:
    """Every series is there from the start, at 0, so that rates see the first increase."""
    family = CounterMetricFamily(name, text, labels=["source", label])
    for source in sources:
        for word in words:
            family.add_metric([source, word], counted.get((source, word), 0.0))
    return family


def _histogram(
    name: str, text: str, label: str, counter: str, bounds: Sequence[float], groups: Sequence[str]
) -> Metric:
    counted, sums = counters.all_of(counter), counters.all_of(f"{counter}_sum")
    family = HistogramMetricFamily(name, text, labels=[label])
    edges = [*map(str, bounds), "+Inf"]
    for group in groups:
        heights = accumulate(counted.get((group, edge), 0.0) for edge in edges)
        family.add_metric([group], list(zip(edges, heights, strict=True)), sum_value=sums.get((group, ""), 0.0))
    return family


def _by(name: str, text: str, label: str, values: Mapping[str, float], words: Sequence[str]) -> Metric:
    """A gauge for each of these words, and for no other."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for word in words:
        family.add_metric([word], values.get(word, 0))
    return family


def _known(value: float | None) -> float:
    return NAN if value is None else value


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _total(counted: Counted, label: str) -> float:
    return sum(value for (_, word), value in counted.items() if word == label)


def _share(part: float, rest: float) -> float:
    """NaN while there is nothing to share: 0 would raise an alarm."""
    return part / (part + rest) if part + rest else NAN
