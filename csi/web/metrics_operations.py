"""Metrics for whoever is on call: what is wrong now, and how the last reload of the configuration went."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from csi.runtime import Runtime
from csi.status import alert_facts
from csi.status.alert_rules import NAMES
from csi.store import counters, reloads

RESULTS = ("loaded", "refused")


def collect(rt: Runtime) -> Iterator[Metric]:
    """Judged at the scrape, by the same rules that tell people: a worker that is gone cannot hide its absence."""
    found = Counter(trouble.name for trouble in alert_facts.current(rt))
    family = GaugeMetricFamily("csi_troubles", "Troubles that are there now", labels=["trouble"])
    for name in NAMES:
        family.add_metric([name], found[name])
    yield family
    last = reloads.last()
    failed = float(last is not None and last.error is not None)
    yield GaugeMetricFamily("csi_config_reload_failed", "1 while a new configuration is refused", value=failed)
    counted = counters.all_of("config_reloads")
    reloaded = CounterMetricFamily("csi_config_reloads", "Reloads of the configuration by result", labels=["result"])
    for result in RESULTS:
        reloaded.add_metric([result], counted.get(("", result), 0.0))
    yield reloaded
