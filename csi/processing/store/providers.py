"""Providers that failed: which one is paused since when and why, and which one fails since when.

A provider without a row has never failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from csi.processing.store.db import changed, fetch, one

PauseCause = Literal["authentication", "no_credit"]


@dataclass(frozen=True)
class ProviderState:
    """`paused_at` None: it is called. `failing_since` None: its last call succeeded."""

    name: str
    paused_at: float | None = None
    pause_cause: PauseCause | None = None
    probe_at: float = 0.0
    """When it is probed next, while it is paused."""
    probe_job: str | None = None
    """The one waiting job that may call the paused provider."""
    failing_since: float | None = None
    failures: int = 0
    """Failed calls since its last success."""
    last_error: str | None = None


_COLUMNS = ", ".join(field.name for field in fields(ProviderState))


def find(name: str) -> ProviderState:
    row = one(f"SELECT {_COLUMNS} FROM providers WHERE name = ?", name)
    return ProviderState(*row) if row else ProviderState(name)


def all_states() -> list[ProviderState]:
    return [ProviderState(*row) for row in fetch(f"SELECT {_COLUMNS} FROM providers ORDER BY name")]


def pause(name: str, cause: PauseCause, error: str, now: float, *, probe_at: float) -> bool:
    """True: it was not paused before. A provider that stays paused keeps the time of its first refusal."""
    _insert(name)
    sql = """UPDATE providers SET paused_at = ?, pause_cause = ?, last_error = ?, probe_at = ?, probe_job = NULL
             WHERE name = ? AND paused_at IS NULL"""
    if changed(sql, now, cause, error, probe_at, name) == 1:
        return True
    sql = "UPDATE providers SET pause_cause = ?, last_error = ?, probe_job = NULL WHERE name = ?"
    changed(sql, cause, error, name)
    return False


def resume(name: str, causes: Iterable[PauseCause] = ("authentication", "no_credit")) -> bool:
    """True: it was paused for one of these causes."""
    paused = find(name)
    if paused.pause_cause is None or paused.pause_cause not in set(causes):
        return False
    sql = """UPDATE providers SET paused_at = NULL, pause_cause = NULL, probe_job = NULL, failing_since = NULL,
                    failures = 0, last_error = NULL WHERE name = ? AND pause_cause = ?"""
    return changed(sql, name, paused.pause_cause) == 1


def claim_probe(name: str, now: float, *, next_at: float) -> bool:
    """True: this process probes the paused provider now."""
    sql = "UPDATE providers SET probe_at = ? WHERE name = ? AND paused_at IS NOT NULL AND probe_at <= ?"
    return changed(sql, next_at, name, now) == 1


def set_probe_job(name: str, job_id: str) -> None:
    changed("UPDATE providers SET probe_job = ? WHERE name = ? AND paused_at IS NOT NULL", job_id, name)


def due_probes(now: float) -> list[str]:
    sql = "SELECT name FROM providers WHERE paused_at IS NOT NULL AND probe_at <= ? ORDER BY name"
    return [row[0] for row in fetch(sql, now)]


def make_probes_due(now: float) -> None:
    """At the start of the worker: the operator may have corrected a key."""
    changed("UPDATE providers SET probe_at = ? WHERE paused_at IS NOT NULL", now)


def record_failure(name: str, error: str, now: float) -> None:
    _insert(name)
    sql = """UPDATE providers SET failing_since = COALESCE(failing_since, ?), failures = failures + 1, last_error = ?
             WHERE name = ? AND paused_at IS NULL"""
    changed(sql, now, error, name)


def record_success(name: str) -> None:
    sql = """UPDATE providers SET failing_since = NULL, failures = 0, last_error = NULL
             WHERE name = ? AND failures > 0 AND paused_at IS NULL"""
    changed(sql, name)


def _insert(name: str) -> None:
    changed("INSERT INTO providers (name) VALUES (?) ON CONFLICT DO NOTHING", name)
