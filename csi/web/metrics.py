"""`/metrics` in the Prometheus text format: every number is read from the database when it is asked for.

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
from csi.dlq import store as dlq
from csi.flow import pace
from csi.ingester.config import TIERS
from csi.runtime import Runtime
from csi.store import budget, counters, endpoints, events, heartbeats, inbox, outbox
from csi.web import operations
from csi.web.facts import WORKER

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
NAN = float("nan")

EVENT_STATUSES = ("stored", "delivered", "dlq", "replayed", "duplicate", "malformed")
"""`malformed`: items that never became an event. `replayed`: dead letters whose second journey has ended."""
POLL_RESULTS = ("ok", "error")

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
        sources, now = tuple(self._rt.settings.sources), self._rt.now()
        yield from _promised(sources)
        yield _labelled("csi_polls", "Polls by result", counters.all_of("polls"), sources, POLL_RESULTS, "result")
        yield _histogram(
            "csi_accept_latency_seconds",
            "Time from first seen to accepted by the receiver",
            "tier",
            "accept_seconds",
            counters.LATENCY_BUCKETS,
            TIERS,
        )
        yield from _waiting(now)
        yield from _state(now)
        yield from _quota(self._rt, now)
        yield from operations.collect(self._rt)
        yield InfoMetricFamily("csi_build", "The version that runs", {"version": __version__})


def _promised(sources: Sequence[str]) -> Iterator[Metric]:
    """The four of PRD §11.4, as named and typed there."""
    handled = counters.all_of("events")
    yield _labelled("csi_events", "Total events processed", handled, sources, EVENT_STATUSES, "status")
    # A letter that was sent again does not count any more: its event arrived, or left a new letter that counts.
    delivered, dead = _total(handled, "delivered"), _total(handled, "dlq") - _total(handled, "replayed")
    yield _gauge("csi_delivery_success_rate", "Delivery success rate", _share(delivered, max(dead, 0.0)))
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


def _waiting(now: float) -> Iterator[Metric]:
    pending = GaugeMetricFamily("csi_pending_events", "Events that wait to be sent", labels=["tier"])
    for tier in TIERS:
        pending.add_metric([tier], outbox.pending_count(tier))
    yield pending
    oldest = events.oldest_pending()
    age = 0.0 if oldest is None else max(now - oldest, 0.0)
    yield _gauge("csi_backlog_age_seconds", "Age of the oldest event that is not settled", age)
    yield _gauge("csi_inbox_items", "Items that were seen and are not events yet", inbox.waiting_count())
    yield _gauge("csi_dead_letters_open", "Dead letters that nobody has dealt with", dlq.open_count())


def _state(now: float) -> Iterator[Metric]:
    endpoint, beat = endpoints.find(), heartbeats.latest(WORKER)
    away = endpoint is not None and endpoint.breaker != "closed"
    yield _gauge("csi_breaker_open", "1 while the receiver is away", float(away))
    age = NAN if beat is None else now - beat.beat_at
    yield _gauge("csi_worker_heartbeat_age_seconds", "Time since the worker's last sign of life", age)


def _quota(rt: Runtime, now: float) -> Iterator[Metric]:
    limit = pace.unit_limit(rt)
    if limit is None:
        return
    yield _gauge("csi_api_quota_used", "API units used this Pacific day", budget.used(now))
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


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _total(counted: Counted, label: str) -> float:
    return sum(value for (_, word), value in counted.items() if word == label)


def _share(part: float, rest: float) -> float:
    """NaN while there is nothing to share: 0 would raise an alarm."""
    return part / (part + rest) if part + rest else NAN
