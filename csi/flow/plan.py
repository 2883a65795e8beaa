"""Step one: which watches fall due, and what the configuration wants watched."""

import json

from csi.flow.wake import Wake
from csi.ingester.config import FirstPollLast
from csi.logs import log
from csi.runtime import Runtime
from csi.store import watches, watchlist

TICK_SECONDS = 60.0


def sync_watches(rt: Runtime) -> None:
    """Make the stored watches those of the configuration."""
    wanted = [want for source in rt.enabled_sources() for want in _wanted(rt, source)]
    for row in watchlist.added_by_command({(want.source, want.ref) for want in wanted}):
        log.info("watch added by command is now in the configuration, which wins", source=row.source, watch=row.ref)
    watches.sync(wanted, rt.now())


def plan(rt: Runtime, horizon: float = TICK_SECONDS) -> list[Wake]:
    """Wake-ups for the watches that fall due within the horizon; a doubled tick finds nothing."""
    if not rt.settings.features.polling:
        return []
    now = rt.now()
    if mended := watches.mend_times(now):
        log.warning("the clock was set back; watches wait from now", watches=mended)
    found = watches.plan_due(now, horizon, sources=rt.enabled_sources())
    return [Wake("poll", due.id, at=due.at if due.at > now else None) for due in found]


def _wanted(rt: Runtime, source: str) -> list[watches.WantedWatch]:
    settings, adapter = rt.settings.sources[source], rt.adapter(source)
    filters = {watch.ref: settings.filters_of(watch) for watch in settings.watches}
    return [
        watches.WantedWatch(
            source=source,
            ref=spec.ref,
            name=spec.name,
            route_profile=spec.route_profile,
            tags=spec.tags,
            tier=settings.priority,
            interval=spec.interval,
            first_poll=spec.first_poll.model_dump() if isinstance(spec.first_poll, FirstPollLast) else spec.first_poll,
            filters=json.dumps(filters.get(spec.ref) or settings.filters_of()),
            via=spec.via,
            host=adapter.host(spec.ref, spec.via) or source,
            feed_url=adapter.feed_url(spec.ref),
        )
        for spec in adapter.watches()
    ]
