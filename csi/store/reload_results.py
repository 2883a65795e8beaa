"""The result of each configuration reload; status pages show the last one."""

from dataclasses import dataclass

from csi.store.db import fetch, run

KEPT = 100


@dataclass(frozen=True)
class Reload:
    """One reload. `error` None: the new configuration is in use; otherwise the old one is still in use."""

    at: float
    error: str | None


def note(now: float, error: str | None = None) -> None:
    result = "loaded" if error is None else "refused"
    run("INSERT INTO reloads (at, result, error) VALUES (?, ?, ?)", now, result, error)
    run("DELETE FROM reloads WHERE id <= (SELECT MAX(id) FROM reloads) - ?", KEPT)


def last() -> Reload | None:
    found = fetch("SELECT at, error FROM reloads ORDER BY id DESC LIMIT 1")
    return Reload(*found[0]) if found else None
