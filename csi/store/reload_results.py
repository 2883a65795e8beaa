"""The result of each configuration reload; status pages show the last one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import fetch, run

KEPT = 100


@dataclass(frozen=True)
class Reload:
    """One reload. `error` None: the new configuration is in use; otherwise the old one is still in use."""

    at: float
    error: str | None
    sources: tuple[str, ...] | None = None
    """The sources that are enabled in the configuration in use. None: not recorded."""


def note(now: float, error: str | None = None, *, sources: Sequence[str] | None = None) -> None:
    result, names = "loaded" if error is None else "refused", None if sources is None else json.dumps(list(sources))
    run("INSERT INTO reloads (at, result, error, sources_json) VALUES (?, ?, ?, ?)", now, result, error, names)
    run("DELETE FROM reloads WHERE id <= (SELECT MAX(id) FROM reloads) - ?", KEPT)


def last() -> Reload | None:
    found = fetch("SELECT at, error, sources_json FROM reloads ORDER BY id DESC LIMIT 1")
    if not found:
        return None
    at, error, names = found[0]
    return Reload(at, error, None if names is None else tuple(json.loads(names)))
