"""Metrics of the verdict: status, problems, alerts, and the last reload of the configuration."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from csi.status.facts import SystemFacts
from csi.status.problems import ALERTS, PROBLEMS
from csi.status.verdict import judge
from csi.store import counters

STATUSES = ("ok", "degraded", "down")
RESULTS = ("loaded", "refused")


def collect(facts: SystemFacts) -> Iterator[Metric]:
    """Judged at the scrape, by the same rules as notifications: a dead worker cannot hide its absence."""
    found = judge(facts)
    yield GaugeMetricFamily("csi_status", "The verdict: 0 ok, 1 degraded, 2 down", value=STATUSES.index(found.status))
    counted = Counter(problem.id for problem in found.problems)
    alerts = Counter(problem.id for problem in found.problems if "alert" in problem.fails)
    yield _by_name("csi_problems", "Problems that exist now, by id", "problem", PROBLEMS, counted)
    yield _by_name("csi_troubles", "Problems that operators are notified of, by id", "trouble", ALERTS, alerts)
    failed = float(facts.reload_error is not None)
    yield GaugeMetricFamily("csi_config_reload_failed", "1 while a new configuration is refused", value=failed)
    reloaded = CounterMetricFamily("csi_config_reloads", "Reloads of the configuration by result", labels=["result"])
    reloads = counters.all_of("config_reloads")
    for result in RESULTS:
        reloaded.add_metric([result], reloads.get(("", result), 0.0))
    yield reloaded


def _by_name(name: str, text: str, label: str, words: tuple[str, ...], counted: Counter[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for word in words:
        family.add_metric([word], counted[word])
    return family
