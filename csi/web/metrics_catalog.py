"""Metrics of the catalogue: what its jobs do and wait for, and its part of the API units."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from csi.catalog.data_api import UNITS
from csi.jobs.job_kinds import KINDS
from csi.runtime import Runtime
from csi.store import api_units, counters
from csi.store.catalog import jobs

STATUSES = ("pending", "running", "failed", "dead")
"""Completed ones are many, and `csi_job_runs_total` counts them."""

RESULTS = ("completed", "failed", "waits", "dead")


def collect(rt: Runtime) -> Iterator[Metric]:
    now, found, counted = rt.now(), jobs.unfinished(), counters.all_of("jobs")
    states = GaugeMetricFamily("csi_jobs", "Jobs that are not completed", labels=["type", "status"])
    runs = CounterMetricFamily("csi_job_runs", "Ends of jobs, and of tries of them", labels=["type", "result"])
    for kind in KINDS:
        for status in STATUSES:
            states.add_metric([kind, status], found.get((kind, status), 0))
        for result in RESULTS:
            runs.add_metric([kind, result], counted.get((kind, result), 0.0))
    yield from (states, runs)
    since = jobs.waiting_since(now) if rt.settings.catalog.enabled else None
    oldest = 0.0 if since is None else now - since
    yield GaugeMetricFamily("csi_jobs_oldest_due_seconds", "How long the oldest due job waits for a worker", oldest)
    used, share = api_units.share_used(UNITS, now), rt.settings.catalog.units_per_day
    yield GaugeMetricFamily("csi_catalog_units_used", "API units that the catalogue used this Pacific day", used)
    yield GaugeMetricFamily("csi_catalog_units_limit", "API units that the catalogue may use in a Pacific day", share)
