"""When each host may be asked again, and the spacing that was learned from its answers. Shared by all processes."""

from dataclasses import dataclass

from csi.store.db import columns, fetch, fetch_all, fetch_one, run, writing

LONGEST_AHEAD = 21_600.0
"""A time further ahead was written with a wrong clock and is ignored."""


@dataclass(frozen=True)
class HostPacing:
    """`next_at`: the next slot that is not reserved. `spacing`: learned; None: the configured one applies."""

    name: str
    next_at: float = 0.0
    spacing: float | None = None
    throttled_at: float | None = None
    last_status: int | None = None
    last_at: float | None = None


_RESERVE = """
    INSERT INTO host_pacing (name, next_at) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET next_at = ? + CASE
        WHEN host_pacing.next_at > ? AND host_pacing.next_at <= ? THEN host_pacing.next_at ELSE ? END
    RETURNING next_at
"""


def find(name: str) -> HostPacing | None:
    """None: the host was never paced."""
    return fetch_one(HostPacing, f"SELECT {columns(HostPacing)} FROM host_pacing WHERE name = ?", name)


def every() -> list[HostPacing]:
    return fetch_all(HostPacing, f"SELECT {columns(HostPacing)} FROM host_pacing ORDER BY name")


def reserve(name: str, step: float, now: float) -> float:
    """Take the next free slot, which is `step` seconds long. Returns when it begins; one statement, so that two
    processes never get the same slot."""
    with writing():
        ((ends,),) = fetch(_RESERVE, name, now + step, step, now, now + LONGEST_AHEAD, now)
    return float(ends) - step


def hold(name: str, until: float) -> None:
    """No slot before this time."""
    with writing():
        run("INSERT INTO host_pacing (name, next_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", name, until)
        run("UPDATE host_pacing SET next_at = ? WHERE name = ? AND next_at < ?", until, name, until)


def learn(name: str, spacing: float | None, status: int, now: float, *, throttled: bool) -> None:
    """Record an answer, and the spacing that follows from it."""
    with writing():
        run("INSERT INTO host_pacing (name, next_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", name, now)
        changes = "spacing = ?, last_status = ?, last_at = ?"
        if throttled:
            run(f"UPDATE host_pacing SET {changes}, throttled_at = ? WHERE name = ?", spacing, status, now, now, name)
        else:
            run(f"UPDATE host_pacing SET {changes} WHERE name = ?", spacing, status, now, name)
