"""Counters that only grow: every process adds to them, the sidecar's metrics show them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from csi.store.db import fetch, run

POLL_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LATENCY_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
AGE_BUCKETS = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0)

_ADD = """
    INSERT INTO counters (name, source, label, value) VALUES {rows}
    ON CONFLICT (name, source, label) DO UPDATE SET value = counters.value + excluded.value
"""


@dataclass(frozen=True)
class Count:
    """An amount to add to one counter."""

    name: str
    amount: float = 1
    source: str = ""
    label: str = ""


def add(name: str, amount: float = 1, *, source: str = "", label: str = "") -> None:
    add_all([Count(name, amount, source, label)])


def add_all(counts: Iterable[Count]) -> None:
    """Add to several counters in one statement; each counter may occur once. Rows are sorted so that two workers lock
    them in the same order."""
    rows = [(count.name, count.source, count.label, count.amount) for count in counts if count.amount]
    if rows:
        values = ", ".join(["(?, ?, ?, ?)"] * len(rows))
        run(_ADD.replace("{rows}", values), *(value for row in sorted(rows) for value in row))


def observed(name: str, values: Sequence[float], buckets: tuple[float, ...], *, source: str) -> list[Count]:
    """What values add to a histogram: to one counter for each bucket, and to one for their sum."""
    labels = (*map(str, buckets), "+Inf")
    counted = Counter(labels[bisect_left(buckets, value)] for value in values)
    found = [Count(name, count, source, label) for label, count in counted.items()]
    return [*found, Count(f"{name}_sum", sum(values), source)]


def all_of(name: str) -> dict[tuple[str, str], float]:
    """By (source, label)."""
    found = fetch("SELECT source, label, value FROM counters WHERE name = ?", name)
    return {(source, label): value for source, label, value in found}
