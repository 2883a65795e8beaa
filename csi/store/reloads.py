"""How each attempt to take a new configuration went; the last one is what counts."""

from dataclasses import dataclass

from csi.store.db import fetch, run

KEPT = 100


@dataclass(frozen=True)
class Reload:
    """One attempt. `error` None: it was taken."""

    at: float
    error: str | None


def note(now: float, error: str | None = None) -> None:
    result = "loaded" if error is None else "refused"
    run("INSERT INTO reloads (at, result, error) VALUES (?, ?, ?)", now, result, error)
    run("DELETE FROM reloads WHERE id <= (SELECT MAX(id) FROM reloads) - ?", KEPT)


def last() -> Reload | None:
    found = fetch("SELECT at, error FROM reloads ORDER BY id DESC LIMIT 1")
    return Reload(*found[0]) if found else None
