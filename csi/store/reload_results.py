"""The result of each configuration reload; status pages show the last one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from csi.store.db import fetch, run

KEPT = 100


@dataclass(frozen=True)
class Reload:
    """One reload. `error` None: the new configuration is in use; otherwise the old one is still in use."""

    at: float
    error: str | None
    sources: tuple[str, ...] | None = None
    """The sources that are enabled in the configuration in use. None: not recorded."""
    features: dict[str, bool] = field(default_factory=dict)
    """The switches of `features` in the configuration in use; empty: not recorded."""


def note(
    now: float,
    error: str | None = None,
    *,
    sources: Sequence[str] | None = None,
    features: Mapping[str, bool] | None = None,
) -> None:
    result, names = "loaded" if error is None else "refused", None if sources is None else json.dumps(list(sources))
    switches = None if features is None else json.dumps(dict(features))
    columns = "at, result, error, sources_json, features_json"
    run(f"INSERT INTO reloads ({columns}) VALUES (?, ?, ?, ?, ?)", now, result, error, names, switches)
    run("DELETE FROM reloads WHERE id <= (SELECT MAX(id) FROM reloads) - ?", KEPT)


def last() -> Reload | None:
    found = fetch("SELECT at, error, sources_json, features_json FROM reloads ORDER BY id DESC LIMIT 1")
    if not found:
        return None
    at, error, names, switches = found[0]
    return Reload(at, error, None if names is None else tuple(json.loads(names)), json.loads(switches or "{}"))


def off_since(feature: str) -> float | None:
    """When the configuration in use switched this feature off; None: it is on, or not recorded."""
    since = None
    for at, switches in fetch("SELECT at, features_json FROM reloads WHERE features_json IS NOT NULL ORDER BY id DESC"):
        if json.loads(switches).get(feature, True):
            break
        since = at
    return since
