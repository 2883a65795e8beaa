"""What was measured, held against what was wanted. Pure."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).with_name("baseline.json")
FALL = 1 / 3
"""A ratio that fell by more than this is a regression."""


@dataclass(frozen=True)
class Target:
    """A figure of the report by its path, and the bound it should keep."""

    name: str
    path: str
    bound: float
    at_least: bool = True
    unit: str = ""
    is_ratio: bool = False
    """Comparable between machines, and so part of the baseline."""


TARGETS = (
    Target("standard, events a second", "line.standard.events_per_second", 4000, unit="/s"),
    Target("standard, CPU of an event", "line.standard.cpu_ms_per_event", 0.28, at_least=False, unit=" ms"),
    Target("standard, beside the plain loop", "line.standard.to_floor", 0.35, is_ratio=True),
    Target("standard, beside Celery (acks_late)", "line.standard.to_peer", 4.5, is_ratio=True),
    Target("standard, CPU of the loop beside ours", "line.standard.cpu_to_floor", 0.18, is_ratio=True),
    Target("standard, peak memory in a flood", "line.standard.peak_mb", 170, at_least=False, unit=" MB"),
    Target("urgent, events a second", "line.urgent.events_per_second", 1200, unit="/s"),
    Target("urgent, CPU of an event", "line.urgent.cpu_ms_per_event", 0.95, at_least=False, unit=" ms"),
    Target("urgent, beside the plain loop", "line.urgent.to_floor", 0.45, is_ratio=True),
    Target("urgent, beside Celery (acks_late)", "line.urgent.to_peer", 2.5, is_ratio=True),
    Target("urgent, CPU of the loop beside ours", "line.urgent.cpu_to_floor", 0.33, is_ratio=True),
    Target("urgent at 20 events a second, P50", "line.steady.p50_ms", 12, at_least=False, unit=" ms"),
    Target("urgent at 20 events a second, P95", "line.steady.p95_ms", 25, at_least=False, unit=" ms"),
    Target("unchanged feed, CPU of a poll", "poll.cpu_ms_per_same_feed", 0.9, at_least=False, unit=" ms"),
    Target("500 feeds, share of a core", "poll.share_percent", 1.5, at_least=False, unit=" %"),
    Target("500 feeds, cold round", "poll.cold_seconds", 5, at_least=False, unit=" s"),
    Target("500 feeds, PRD §6.1: a round in its interval", "poll.cold_seconds", 300, at_least=False, unit=" s"),
    Target("500 feeds, PRD §6.1: share of a core", "poll.share_percent", 5, at_least=False, unit=" %"),
    Target("500 feeds, PRD §6.1: memory", "poll.peak_mb", 512, at_least=False, unit=" MB"),
    Target("receiver, signed events a second", "receiver.events_per_second", 950, unit="/s"),
    Target("receiver, accepted and lost", "receiver.lost", 0, at_least=False),
    Target("receiver, answered with neither 200 nor 503", "receiver.not_answered", 0, at_least=False),
    Target("receiver, growth of its memory in a minute", "receiver.memory_growth_mb", 10, at_least=False, unit=" MB"),
    Target("worker and sidecar, memory", "startup.worker_and_sidecar_mb", 115, at_least=False, unit=" MB"),
    Target("worker and sidecar at rest, share of a core", "startup.idle_core_percent", 0.2, at_least=False, unit=" %"),
    Target("csi --help", "startup.help_ms", 200, at_least=False, unit=" ms"),
    Target("an event at the most keys, beside the fewest", "growth.ratio", 1.25, at_least=False, is_ratio=True),
    Target("next job beside a million finished ones", "catalogue.next_job.ms", 5, at_least=False, unit=" ms"),
    Target("next job, rows read for ten", "catalogue.next_job.rows_read", 10, at_least=False),
    Target(
        "PostgreSQL, CPU of an event in the worker", "scale.busy.one.cpu_ms_per_event", 0.55, at_least=False, unit=" ms"
    ),
    Target(
        "PostgreSQL, CPU of an event in the database",
        "scale.busy.one.database_cpu_ms_per_event",
        0.25,
        at_least=False,
        unit=" ms",
    ),
    Target("two workers beside one, slow receiver", "scale.waiting.ratio", 1.6, is_ratio=True),
    *(
        Target(f"high volume, {name}: {what}", f"highvolume.{name}.{key}", bound, at_least=at_least, unit=unit)
        for name in ("batches", "streaming")
        for what, key, bound, at_least, unit in (
            ("lost", "lost", 0, False, ""),
            ("sent twice", "again", 0, False, ""),
            ("most that waited", "most_waiting", 12_000, False, ""),
            ("memory, simulator included", "peak_mb", 256, False, " MB"),
            ("growth of memory", "memory_growth_mb", 48, False, " MB"),
        )
    ),
    Target("high volume, batches: reading slowed down, times", "highvolume.batches.slowest", 1.5),
    Target("high volume, batches: the problem was shown", "highvolume.batches.problem_shown", 1),
    Target("urgent, longest delay by retention", "growth.retention.longest_delay_ms", 250, at_least=False, unit=" ms"),
)


def find(report: dict[str, Any], path: str) -> float | None:
    """None: it was not measured."""
    found: Any = report
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int | float) else None


def is_met(target: Target, value: float) -> bool:
    return value >= target.bound if target.at_least else value <= target.bound


def table(report: dict[str, Any]) -> list[str]:
    lines = []
    for target in TARGETS:
        value = find(report, target.path)
        wanted = f"{'≥' if target.at_least else '≤'} {target.bound:g}{target.unit}"
        shown = "not measured" if value is None else f"{value:.2f}{target.unit}"
        verdict = "" if value is None else ("pass" if is_met(target, value) else "FAIL")
        lines.append(f"{target.name:52}{wanted:>14}{shown:>18}  {verdict}")
    return lines


def ratios(report: dict[str, Any]) -> dict[str, float]:
    found = {it.path: find(report, it.path) for it in TARGETS if it.is_ratio}
    return {path: round(value, 3) for path, value in found.items() if value is not None}


def fallen(report: dict[str, Any], baseline: dict[str, float]) -> list[str]:
    """Ratios that are worse than the baseline by more than a third."""
    said = []
    for target in TARGETS:
        before, now = baseline.get(target.path), find(report, target.path)
        if before is None or now is None:
            continue
        worse = now < before * (1 - FALL) if target.at_least else now > before / (1 - FALL)
        if worse:
            said.append(f"{target.name}: {before:.2f} before, {now:.2f} now")
    return said


def load_baseline() -> dict[str, float]:
    """Empty where none was written yet: `python -m ops.bench --write-baseline` writes one."""
    found: dict[str, float] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return found
