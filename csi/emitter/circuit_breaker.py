"""When a receiver counts as away, and how often it is tried meanwhile. Pure (DECISIONS 23)."""

FAILING_BATCHES = 3
REFUSED_IN_A_ROW = 5
REFUSES = "it refuses every event"
PROBE_FIRST, PROBE_MAX = 5.0, 20.0
"""Probes come at most this far apart, so that redrive begins within 30 s of recovery (DECISIONS 47)."""


def opens(*, endpoint_fault: bool, exhausted: bool, failing_batches: int) -> bool:
    """An endpoint fault opens it at once; so does a batch that used up its attempts, or three that fail in a row."""
    return endpoint_fault or exhausted or failing_batches >= FAILING_BATCHES


def refuses_all(*, refused: int, reason: str | None) -> bool:
    """Events that were refused each by itself, and none was taken meanwhile: that is not their fault any more.
    `reason` is why the breaker is open already."""
    return refused >= REFUSED_IN_A_ROW or (reason or "").startswith(REFUSES)


def probe_delay(probes_made: int) -> float:
    return min(PROBE_FIRST * 2.0 ** min(probes_made, 10), PROBE_MAX)
