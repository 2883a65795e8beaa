"""Numbers that only grow, kept where every process can add to them and the sidecar can read them."""

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
    """So much more of one number."""

    name: str
    amount: float = 1
    source: str = ""
    label: str = ""


def add(name: str, amount: float = 1, *, source: str = "", label: str = "") -> None:
    add_all([Count(name, amount, source, label)])


def add_all(counts: Iterable[Count]) -> None:
    """Several at once, each number at most once: a statement costs more than the rows in it."""
    rows = [(count.name, count.source, count.label, count.amount) for count in counts if count.amount]
    if rows:
        values = ", ".join(["(?, ?, ?, ?)"] * len(rows))
        run(_ADD.replace("{rows}", values), *(value for row in sorted(rows) for value in row))


def observe(name: str, values: Sequence[float], buckets: tuple[float, ...], *, source: str) -> None:
    """Values of a histogram: their buckets, and their sum."""
    add_all(observed(name, values, buckets, source=source))


def observed(name: str, values: Sequence[float], buckets: tuple[float, ...], *, source: str) -> list[Count]:
    """What `observe` adds, for whoever has more to add."""
    counted = Counter(_bucket(value, buckets) for value in values)
    found = [Count(name, count, source, label) for label, count in counted.items()]
    return [*found, Count(f"{name}_sum", sum(values), source)]


def _bucket(value: float, buckets: tuple[float, ...]) -> str:
    index = bisect_left(buckets, value)
    return str(buckets[index]) if index < len(buckets) else "+Inf"


def all_of(name: str) -> dict[tuple[str, str], float]:
    """By (source, label)."""
    found = fetch("SELECT source, label, value FROM counters WHERE name = ?", name)
    return {(source, label): value for source, label, value in found}
