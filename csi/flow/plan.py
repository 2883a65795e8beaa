"""Step one: which watches fall due, and what the configuration wants watched."""

from csi.flow.wake import Wake
from csi.ingester.config import FirstPollLast
from csi.runtime import Runtime
from csi.store import watches

TICK_SECONDS = 60.0


def sync_watches(rt: Runtime) -> None:
    """Make the stored watches those of the configuration."""
    wanted = [want for source in rt.enabled_sources() for want in _wanted(rt, source)]
    watches.sync(wanted, rt.now())


def plan(rt: Runtime, horizon: float = TICK_SECONDS) -> list[Wake]:
    """Wake-ups for the watches that fall due within the horizon; a doubled tick finds nothing."""
    if not rt.settings.features.polling:
        return []
    now = rt.now()
    return [Wake("poll", due.id, at=due.at if due.at > now else None) for due in watches.plan_due(now, horizon)]


def _wanted(rt: Runtime, source: str) -> list[watches.WantedWatch]:
    tier = rt.settings.sources[source].priority
    return [
        watches.WantedWatch(
            source=source,
            ref=spec.ref,
            name=spec.name,
            route_profile=spec.route_profile,
            tags=spec.tags,
            tier=tier,
            interval=spec.interval,
            first_poll=spec.first_poll.model_dump() if isinstance(spec.first_poll, FirstPollLast) else spec.first_poll,
        )
        for spec in rt.adapter(source).watches()
    ]
