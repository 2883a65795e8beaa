"""Watches that the configuration has lost, held until the operator accepts it, and the settings of lost sources."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import changed, fetch, fetch_all, marks, number, run


@dataclass(frozen=True)
class LostWatch:
    """A watch that the configuration no longer has."""

    id: int
    source: str
    ref: str
    name: str | None
    removal_held_at: float | None

    @property
    def label(self) -> str:
        return self.name or self.ref


@dataclass(frozen=True)
class HeldRemoval:
    """How many watches a configuration would remove, of how many; `since`: the first time it was used."""

    watches: tuple[LostWatch, ...] = ()
    configured: int = 0

    @property
    def since(self) -> float | None:
        return min((one.removal_held_at or 0.0 for one in self.watches), default=None)


NAMED = 5


def names(watches: Sequence[LostWatch]) -> str:
    """The first few by name."""
    more = f" and {len(watches) - NAMED:,} more" if len(watches) > NAMED else ""
    return ", ".join(one.label for one in watches[:NAMED]) + more


_COLUMNS = ", ".join(LostWatch.__dataclass_fields__)


def current() -> HeldRemoval:
    held = fetch_all(LostWatch, f"SELECT {_COLUMNS} FROM watches WHERE removal_held_at IS NOT NULL ORDER BY source, id")
    total = number("SELECT COUNT(*) FROM watches WHERE origin = 'config' AND state <> 'removed'") if held else 0
    return HeldRemoval(tuple(held), total)


def accept(watches: Sequence[LostWatch], now: float) -> int:
    """Remove these watches. Those that are not held any more stay; part of the caller's transaction."""
    sql = (
        "UPDATE watches SET state = 'removed', removed_at = ?, removal_held_at = NULL, lease_token = NULL, "
        f"lease_until = NULL WHERE removal_held_at IS NOT NULL AND id IN ({marks(watches)})"
    )
    return changed(sql, now, *(one.id for one in watches)) if watches else 0


def removed_since(source: str, moment: float) -> list[LostWatch]:
    """Watches of this source that configurations removed since then, and that are still removed."""
    condition = "source = ? AND origin = 'config' AND state = 'removed' AND removed_at >= ?"
    return fetch_all(LostWatch, f"SELECT {_COLUMNS} FROM watches WHERE {condition} ORDER BY id", source, moment)


def remember_settings(settings: dict[str, str]) -> None:
    """Store the settings of each source as JSON; only what differs is written. Part of the caller's transaction."""
    known = dict(fetch("SELECT source, settings_json FROM source_settings"))
    for source, text in settings.items():
        if known.get(source) != text:
            sql = (
                "INSERT INTO source_settings (source, settings_json) VALUES (?, ?) "
                "ON CONFLICT (source) DO UPDATE SET settings_json = excluded.settings_json"
            )
            run(sql, source, text)


def settings_of_held_sources() -> dict[str, str]:
    """The last known settings of each source that has held watches."""
    sql = (
        "SELECT source, settings_json FROM source_settings "
        "WHERE source IN (SELECT source FROM watches WHERE removal_held_at IS NOT NULL)"
    )
    return dict(fetch(sql))
