"""How it stands with each destination, and the switch by which a person holds its delivery."""

from dataclasses import dataclass

from csi.dlq import dead_letters
from csi.errors import CsiError
from csi.logs import log
from csi.pipeline import destination_state
from csi.runtime import Runtime
from csi.store import destinations
from csi.store.db import writing
from csi.store.destinations import DestinationRow
from csi.store.queries import timeline
from csi.store.queries.timeline import Lane

GATES: dict[destination_state.State, str] = {
    "accepting": "open",
    "paused": "held",
    "throttled": "paused",
    "circuit_open": "away",
    "half_open": "probe",
}
"""The words of release 1.0 for the same states: the value of the JSON key `gate`."""


class UnknownDestination(CsiError):
    """No destination of that name."""


@dataclass(frozen=True)
class Standing:
    """One destination at this moment."""

    name: str
    is_configured: bool
    gate: str
    """The state in the words of release 1.0: open, held, paused, away, probe."""
    endpoint: DestinationRow
    form: str
    lanes: tuple[Lane, ...]
    dead: int

    @property
    def pending(self) -> int:
        return sum(lane.pending for lane in self.lanes)

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self.lanes)


def standings(rt: Runtime, name: str | None = None) -> list[Standing]:
    """All destinations, also those that were configured once and still have something waiting."""
    if name is not None:
        return [_standing(rt, known_name(rt, name))]
    return [_standing(rt, one) for one in dict.fromkeys([*rt.destinations, *_waiting_elsewhere(rt)])]


def hold(rt: Runtime, name: str, reason: str) -> bool:
    """Nothing is sent to it from now on, over restarts, until `resume`. False: it was held already."""
    with writing():
        row = destinations.get(known_name(rt, name))
        destination_state.write(row, destination_state.paused(row, rt.now(), reason))
    log.info("delivery is paused by command", destination=name, reason=reason)
    return row.held is None


def resume(rt: Runtime, name: str) -> bool:
    """What waits goes out again. False: it was not held."""
    with writing():
        row = destinations.get(known_name(rt, name))
        destination_state.write(row, destination_state.resumed(row))
    log.info("delivery is resumed by command", destination=name)
    return row.held is not None


def known_name(rt: Runtime, name: str) -> str:
    known = [*rt.destinations, *timeline.all_destinations()]
    if name not in known:
        raise UnknownDestination(f"there is no destination {name[:60]!r}; known: {', '.join(dict.fromkeys(known))}")
    return name


def configured_name(rt: Runtime, name: str) -> str:
    """A name that events can be sent to now."""
    if name not in rt.destinations:
        raise UnknownDestination(f"there is no destination {name[:60]!r}; configured: {', '.join(rt.destinations)}")
    return name


def _standing(rt: Runtime, name: str) -> Standing:
    endpoint, destination = destinations.get(name), rt.destinations.get(name)
    wanted = destination.canonical_json if destination else "auto"
    return Standing(
        name=name,
        is_configured=destination is not None,
        gate=GATES[destination_state.current(endpoint, rt.now())],
        endpoint=endpoint,
        form=f"{wanted} (configured)" if wanted != "auto" else endpoint.form or "not known yet",
        lanes=tuple(timeline.lanes(name)),
        dead=dead_letters.open_count(name),
    )


def _waiting_elsewhere(rt: Runtime) -> list[str]:
    return [name for name in timeline.all_destinations() if name not in rt.destinations and timeline.lanes(name)]
