"""Numbers that only grow, kept where every process can add to them and the sidecar can read them."""

from bisect import bisect_left

from csi.store.models import Counter

POLL_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LATENCY_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


def add(name: str, amount: float = 1, *, source: str = "", label: str = "") -> None:
    if not amount:
        return
    (
        Counter.insert(name=name, source=source, label=label, value=amount)
        .on_conflict(
            conflict_target=[Counter.name, Counter.source, Counter.label],
            update={Counter.value: Counter.value + amount},
        )
        .execute()
    )


def observe(name: str, value: float, buckets: tuple[float, ...], *, source: str) -> None:
    """One value of a histogram: a bucket, and the sum."""
    index = bisect_left(buckets, value)
    add(name, label=str(buckets[index]) if index < len(buckets) else "+Inf", source=source)
    add(f"{name}_sum", value, source=source)


def all_of(name: str) -> dict[tuple[str, str], float]:
    """By (source, label)."""
    return {(row.source, row.label): row.value for row in Counter.select().where(Counter.name == name)}
