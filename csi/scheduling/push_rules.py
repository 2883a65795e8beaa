"""When a subscription is renewed or tried again, what a hub may grant, when polling may be rarer. Pure."""

import random

LADDER = (120.0, 300.0, 900.0, 1800.0, 3600.0)
"""Waits after a failed request to a hub; the last one repeats."""
VERIFY_SECONDS = 600.0
"""A hub that accepted a request and does not verify it within this time has failed."""
SHORTEST_LEASE, LONGEST_LEASE = 300.0, 2_592_000.0
LONGEST_CHALLENGE = 1000

CHECKS = (0.0, 60.0, 900.0)
"""Seconds after a push at which the source is read, until a read lists the item: caches may be 900 s old."""
MISS_SECONDS = {"websub": 900.0, "composio": 1800.0}
"""An item that a poll found and no push announced within this time is missed. Composio polls every 15 minutes."""
UNBROKEN = 20
STRETCH, LONGEST_INTERVAL = 4.0, 3600.0


def renewal(now: float, lease: float, rng: random.Random) -> float:
    """At 70–80 % of the lease, so that subscriptions made together are not renewed together."""
    return now + lease * rng.uniform(0.7, 0.8)


def retry(now: float, failures: int, rng: random.Random, retry_after: float | None = None) -> float:
    """After the `failures`-th failure in a row."""
    wait = LADDER[min(max(failures, 1), len(LADDER)) - 1] * rng.uniform(0.8, 1.2)
    return now + max(wait, min(retry_after or 0.0, LADDER[-1]))


def granted_lease(text: str | None, asked: float) -> float | None:
    """The lease that a hub grants, at most LONGEST_LEASE; what was asked for if it names none. None: not usable."""
    if text is None or not text.strip():
        return asked
    if not (text.isascii() and text.isdigit() and len(text) <= 12) or int(text) < SHORTEST_LEASE:
        return None
    return min(float(text), LONGEST_LEASE)


def is_challenge(text: str | None) -> bool:
    """A challenge is echoed to the hub: printable ASCII, and short."""
    return text is not None and 0 < len(text) <= LONGEST_CHALLENGE and text.isascii() and text.isprintable()


def next_check(pushed_at: float, checks: int) -> float | None:
    """The time of the check after `checks` of them. None: there is no further one."""
    return pushed_at + CHECKS[checks] if checks < len(CHECKS) else None


def stretched(now: float, at: float) -> float:
    """The next poll of a watch whose pushes are complete."""
    return max(at, now + min((at - now) * STRETCH, LONGEST_INTERVAL))
