"""A feed without news for longer than usual: ask the API whether the channel is quiet, or its feed is stale."""

from dataclasses import dataclass, field, replace
from typing import Any

from csi.adapters.base import Position, RawEvent
from csi.errors import SourceError
from csi.logs import log
from csi.runtime import Runtime
from csi.scheduling import watch_health
from csi.scheduling.watch_health import DAY, HOUR
from csi.store.models import Watch

UNITS = 2
"""Of one comparison: the first page of the uploads, and that of the shorts."""


@dataclass(frozen=True)
class Comparison:
    """Items that only the API lists, and the columns to change on the watch."""

    items: tuple[RawEvent, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)


def compare(rt: Runtime, watch: Watch, position: Position, newest: float | None, now: float) -> Comparison:
    """Read the uploads of a quiet watch from the API once a day, and those of a stale feed once an hour.

    `newest`: when the newest item that the feed lists now was published; None: the feed is unchanged.
    """
    known = watch.last_video_published_at
    if watch.stale_since is not None and newest is not None and newest >= (known or 0.0):
        log.info("feed lists the newest items again", source=watch.source, watch=watch.ref)
        return Comparison(changes={"stale_since": None, "compared_at": None})
    if not _is_due(watch, now) or known is None or not rt.adapter(watch.source).tools.spare(UNITS):
        return Comparison()
    try:
        found = rt.adapter(watch.source).fill_gap(replace(position, emits=None), known)
    except SourceError as error:
        log.info("quiet feed is not compared with the API", source=watch.source, watch=watch.ref, error=str(error))
        found = None
    if found is None or not found.items:
        return Comparison(changes={"compared_at": now})
    if watch.stale_since is None:
        log.warning("feed is stale: the API lists newer items", source=watch.source, watch=watch.ref)
    return Comparison(found.items, {"compared_at": now, "stale_since": watch.stale_since or now})


def _is_due(watch: Watch, now: float) -> bool:
    if watch.via != "feed" or watch.first_read_at is None:
        return False
    wait = HOUR if watch.stale_since is not None else DAY
    if watch.compared_at is not None and 0 <= now - watch.compared_at < wait:
        return False
    return watch.stale_since is not None or watch_health.quiet_seconds(watch) is not None
