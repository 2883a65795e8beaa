"""What the health pages need, read from settings and database in one go."""

from csi.config.settings import SourceSettings
from csi.pipeline import clock_check, disk_guard
from csi.runtime import Runtime
from csi.store import destinations, heartbeats, watches
from csi.store.destinations import DestinationRow
from csi.web.health import Delivery, Facts, Receiver, SourcePlan

WORKER = "worker"


def gather(rt: Runtime) -> Facts:
    now, beat = rt.now(), heartbeats.latest(WORKER)
    return Facts(
        now=now,
        polling=rt.settings.features.polling,
        beat=beat,
        sources=tuple(_plan(name, rt.settings.sources[name]) for name in rt.enabled_sources()),
        watches=tuple(watches.schedule()),
        delivery=_delivery(rt, destinations.find()),
        place=disk_guard.place(rt),
        clock_hold=clock_check.hold_text(beat, now),
    )


def _plan(name: str, source: SourceSettings) -> SourcePlan:
    adaptive = source.adaptive
    idle = adaptive.idle_interval_seconds if adaptive and adaptive.enabled else 0.0
    return SourcePlan(name, watches=len(source.watches), idle_interval=idle)


def _delivery(rt: Runtime, endpoint: DestinationRow | None) -> Delivery:
    wanted = rt.settings.delivery.canonical_json
    learned = (endpoint.form if endpoint else None) or "ascii"
    form = learned if wanted == "auto" else wanted
    known = [destinations.get(name) for name in rt.destinations]
    held = tuple(one.destination for one in known if one.held is not None)
    others = tuple(_receiver(one) for one in known if one.destination != destinations.DEFAULT)
    if endpoint is None:
        return Delivery(rt.settings.features.delivery, form, held=held, others=others)
    return Delivery(
        rt.settings.features.delivery,
        form,
        breaker=endpoint.breaker,
        paused_until=endpoint.paused_until,
        last_success_at=endpoint.last_success_at,
        last_failure_at=endpoint.last_failure_at,
        last_error=endpoint.last_error,
        held=held,
        others=others,
    )


def _receiver(endpoint: DestinationRow) -> Receiver:
    return Receiver(
        endpoint.destination,
        endpoint.breaker,
        endpoint.last_success_at,
        endpoint.last_failure_at,
        endpoint.last_error,
    )
