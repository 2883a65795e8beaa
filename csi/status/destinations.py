"""Whether each destination accepts events now, and what is queued for it. Reads only."""

from dataclasses import dataclass
from typing import Literal

from csi.dlq import dead_letters
from csi.emitter.failure_cause import in_words
from csi.errors import CsiError
from csi.pipeline import destination_state
from csi.pipeline.destination_state import State
from csi.runtime import Runtime
from csi.status.worker import worker_status
from csi.store import destinations
from csi.store.destinations import DestinationRow
from csi.store.queries import backlog_rows, timeline_rows
from csi.store.queries.backlog_rows import UnsettledBatch
from csi.store.queries.timeline_rows import Lane

StateWord = State | Literal["untested", "unknown"]
"""`untested`: accepting as far as is known, and never contacted. `unknown`: it accepted events, and the worker that
would send them is not alive."""

GATES: dict[StateWord, str] = {
    "accepting": "open",
    "untested": "open",
    "unknown": "open",
    "paused": "held",
    "throttled": "paused",
    "circuit_open": "away",
    "half_open": "probe",
}
"""The words of release 1.0 for the same states: the value of the deprecated JSON key `gate`."""

STATE_TEXTS: dict[StateWord, str] = {
    "accepting": "accepting events",
    "untested": "not contacted yet",
    "unknown": "unknown: the worker is not alive",
    "paused": "paused by the operator",
    "throttled": "throttled by the receiver",
    "circuit_open": "circuit breaker open",
    "half_open": "circuit breaker half-open; the next batch is a probe",
}


def throttled_text(cause: str) -> str:
    return f"the receiver asks us to wait: {cause}; sending is paused until its Retry-After has passed"


NO_COUNTS = (
    'this receiver does not confirm counts: its answers have no "accepted", so events that it does not store are '
    "not noticed"
)


class UnknownDestination(CsiError):
    """No destination of that name."""


@dataclass(frozen=True)
class DestinationState:
    """May events be sent to this destination now, and what its row says."""

    name: str
    state: StateWord
    row: DestinationRow
    is_configured: bool = True
    wanted_form: str = "auto"
    """The configured form of the signed JSON; `auto`: learned from the receiver."""
    quiet_until: float | None = None
    """When its quiet hours end; None: none have begun."""
    canary: UnsettledBatch | None = None
    """The one batch that keeps its attempts while the circuit is open; empty probes are sent between them."""

    @property
    def form(self) -> str | None:
        """None: not known yet."""
        return self.row.json_form if self.wanted_form == "auto" else self.wanted_form

    @property
    def form_words(self) -> str:
        return f"{self.wanted_form} (configured)" if self.wanted_form != "auto" else self.form or "not known yet"

    @property
    def gate(self) -> str:
        """The deprecated name of the state."""
        return GATES[self.state]

    @property
    def breaker_is_open(self) -> bool:
        """Also while it is half-open."""
        return self.row.circuit != "closed"

    @property
    def is_reachable(self) -> bool | None:
        """Whether the receiver accepts what it is sent; None: it has never answered, or no worker asks it."""
        if self.breaker_is_open:
            return False
        if self.state == "unknown":
            return None
        return True if self.row.answered_at is not None or self.row.last_success_at is not None else None

    @property
    def cause(self) -> str | None:
        """Why it is not accepting: the operator's or the receiver's own words, which may hold a secret."""
        match self.state:
            case "paused":
                return self.row.paused_reason
            case "throttled":
                return in_words(self.row.last_error)
            case "circuit_open" | "half_open":
                return in_words(self.row.reason)
        return in_words(self.row.last_error) if self.row.failing_since is not None else None

    @property
    def breaker_words(self) -> str | None:
        """Why the circuit is open, in words; None: it is closed."""
        return in_words(self.row.reason) if self.row.reason else None

    @property
    def last_error(self) -> str | None:
        """Why the last request that failed did so, in words."""
        return in_words(self.row.last_error) if self.row.last_error else None

    @property
    def note(self) -> str | None:
        """What the operator should know once about this receiver."""
        return NO_COUNTS if self.row.confirms_counts is not None and not self.row.confirms_counts else None


@dataclass(frozen=True)
class DestinationStatus(DestinationState):
    """The same with its queue: lanes and open dead letters."""

    lanes: tuple[Lane, ...] = ()
    dead: int = 0

    @property
    def pending(self) -> int:
        return sum(lane.pending for lane in self.lanes)

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self.lanes)


def destination_state_of(rt: Runtime, name: str) -> DestinationState:
    """Cheap: one row, whatever the size of the backlog."""
    row = destinations.get(name)
    # Read once, so that the state and the batch that it names agree.
    canary = backlog_rows.unsettled_batch(row.canary) if row.circuit == "open" and row.canary is not None else None
    is_sending = canary is not None and canary.state == "sending"
    state: StateWord = destination_state.judge(row, rt.now(), canary_is_sending=is_sending)
    if state == "accepting":
        # Whether anything shows that an accepting destination accepts events
        if not row.was_contacted:
            state = "untested"
        else:
            worker = worker_status(rt)
            state = "unknown" if worker.heartbeat is not None and not worker.is_alive else "accepting"
    destination = rt.destinations.get(name)
    wanted = destination.canonical_json if destination else "auto"
    quiet_until = destination.quiet_until(rt.now()) if destination else None
    return DestinationState(name, state, row, destination is not None, wanted, quiet_until, canary)


def collecting(rt: Runtime) -> list[str]:
    """Destinations at which events wait by design now: collected into one message, or in quiet hours."""
    now = rt.now()
    return [name for name, one in rt.destinations.items() if one.is_grouped or one.quiet_until(now) is not None]


def destination_status(rt: Runtime, name: str) -> DestinationStatus:
    found = destination_state_of(rt, name)
    return DestinationStatus(**vars(found), lanes=tuple(timeline_rows.lanes(name)), dead=dead_letters.open_count(name))


def all_destinations(rt: Runtime) -> list[DestinationStatus]:
    """Every configured destination, then those that are no longer configured and still have events queued."""
    known = [name for name in timeline_rows.all_destinations() if name not in rt.destinations]
    found = [destination_status(rt, name) for name in (*rt.destinations, *known)]
    return [one for one in found if one.is_configured or one.lanes]


def known_name(rt: Runtime, name: str) -> str:
    """A destination that is configured, or that the database knows. UnknownDestination otherwise."""
    known = dict.fromkeys([*rt.destinations, *timeline_rows.all_destinations()])
    if name not in known:
        raise UnknownDestination(f"there is no destination {name[:60]!r}; known: {', '.join(known)}")
    return name


def configured_name(rt: Runtime, name: str) -> str:
    """A destination that events can be sent to now. UnknownDestination otherwise."""
    if name not in rt.destinations:
        raise UnknownDestination(f"there is no destination {name[:60]!r}; configured: {', '.join(rt.destinations)}")
    return name
