"""What happens to watches that the configuration no longer has: removed and reported, or held if they are most."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from csi.config.source_settings import SourceSettings
from csi.logs import log
from csi.store import held_removals, incidents
from csi.store.held_removals import LostWatch, names
from csi.store.models import Watch

WATCHES_REMOVED = "watches_removed"

FEWEST_HELD = 2
"""The removal of a single watch is never held."""


@dataclass(frozen=True)
class Removal:
    """What the configuration removes. Watches of a source with `enabled: false` are switched off on purpose."""

    switched_off: dict[str, int] = field(default_factory=dict)
    lost: tuple[LostWatch, ...] = ()
    configured: int = 0

    @property
    def is_held(self) -> bool:
        """More than half of the watches at once: probably a mistake."""
        return len(self.lost) >= FEWEST_HELD and 2 * len(self.lost) > self.configured

    @property
    def held(self) -> set[tuple[str, str]]:
        return {(one.source, one.ref) for one in self.lost} if self.is_held else set()

    def lost_by_source(self) -> dict[str, list[LostWatch]]:
        found: dict[str, list[LostWatch]] = {}
        for one in self.lost:
            found.setdefault(one.source, []).append(one)
        return found


def plan(rows: Iterable[Watch], wanted: Collection[tuple[str, str]], switched_off: Collection[str]) -> Removal:
    """Pure. `rows`: the stored watches that are not removed; `wanted`: (source, ref) of the configured ones."""
    off: dict[str, int] = {}
    lost, configured = [], 0
    for row in rows:
        if row.origin != "config":
            continue
        if row.source in switched_off:
            off[row.source] = off.get(row.source, 0) + 1
            continue
        configured += 1
        if (row.source, row.ref) not in wanted:
            lost.append(LostWatch(row.id, row.source, row.ref, row.name, row.removal_held_at))
    return Removal(off, tuple(lost), configured)


def report(removal: Removal, now: float) -> None:
    """Log what was removed or held; a removal is an incident for each source. Part of the caller's transaction."""
    for source, count in removal.switched_off.items():
        log.info("source is switched off; its watches are not polled", source=source, watches=count)
    for source, lost in removal.lost_by_source().items():
        if removal.is_held:
            log.warning(
                "configuration removes most watches; they are polled until the operator accepts it",
                source=source,
                watches=len(lost),
                names=names(lost),
            )
        else:
            log.warning("configuration removes watches", source=source, watches=len(lost), names=names(lost))
            _report_incident(source, now)


def _report_incident(source: str, now: float) -> None:
    """One incident for each source, with all watches that were removed since it began."""
    begun = [one.since for one in incidents.unacknowledged_of(WATCHES_REMOVED) if one.subject == source]
    gone = held_removals.removed_since(source, min(begun, default=now))
    number = f"{len(gone):,} watches were" if len(gone) > 1 else "1 watch was"
    incidents.report(
        *(WATCHES_REMOVED, source),
        what=f"{source}: {number} removed by a new configuration: {names(gone)}",
        effect="new items of these watches are not seen",
        remedy="if this was a mistake, put them back into the file and reload the worker: they continue where they "
        "were; `csi sources list --removed` shows them",
        now=now,
    )


def close_incidents(now: float) -> None:
    """Acknowledge removals whose watches are all back in the configuration."""
    for one in incidents.unacknowledged_of(WATCHES_REMOVED):
        if not held_removals.removed_since(one.subject, one.since):
            incidents.acknowledge(one.id, "configuration", now)


def remembered(settings: SourceSettings) -> str:
    """The settings of a source without its watches, as JSON. Keys that are not set stay so: their defaults apply."""
    return settings.model_dump_json(exclude_unset=True, exclude={settings.watch_key} if settings.watch_key else None)
