"""The story of one item in words: what happened to it, oldest first, and why it is where it is. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.config.settings import TierSettings
from csi.dlq.dead_letters import StoredDeadLetter
from csi.store.destinations import DestinationRow
from csi.store.queries.timeline import Journey, KnownKey, OnItsWay, Request, ToldEvent, WaitingItem, Watched

ATTEMPTS = 3


@dataclass(frozen=True)
class Found:
    """Every row that one item has left behind."""

    key: str
    known: KnownKey | None = None
    item: WaitingItem | None = None
    events: Sequence[ToldEvent] = ()
    entries: Sequence[OnItsWay] = ()
    journeys: Sequence[Journey] = ()
    requests: Sequence[Request] = ()
    letters: Sequence[StoredDeadLetter] = ()
    watch: Watched | None = None


@dataclass(frozen=True)
class Gate:
    """How it stands with one destination at this moment."""

    state: str
    """What `gate.look` says, or `gone` for a destination that is not configured any more."""
    endpoint: DestinationRow
    tier: TierSettings | None = None
    earlier: str | None = None
    """What this item waits for, to keep the order of its watch."""


_GONE = Gate("gone", DestinationRow(""))


@dataclass(frozen=True)
class Scene:
    """What the rest of the house does meanwhile."""

    now: float
    gates: Mapping[str, Gate] = field(default_factory=dict)
    delivery_is_on: bool = True
    worker_age: float | None = 0.0
    """Seconds since the worker's last sign of life; None: there never was one."""
    events_days: int = 30


@dataclass(frozen=True)
class Step:
    """One thing that happened."""

    at: float
    what: str
    text: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Leg:
    """How far the item has come on its way to one destination, and why no further."""

    destination: str
    state: str
    reason: str


@dataclass(frozen=True)
class Story:
    """All that is known of one item."""

    key: str
    state: str
    reason: str
    event_id: str | None = None
    source: str | None = None
    event_type: str | None = None
    title: str | None = None
    url: str | None = None
    watch: str | None = None
    legs: tuple[Leg, ...] = ()
    steps: tuple[Step, ...] = ()


def tell(found: Found, scene: Scene) -> Story:
    event = found.events[-1] if found.events else None
    subject = _subject(found, event)
    legs = tuple(_legs(found, scene))
    state, reason = _state(found, event, legs, scene)
    return Story(
        key=found.key,
        state=state,
        reason=reason,
        event_id=event.event_id if event else _event_id(found),
        source=_source(found, event),
        event_type=event.event_type if event else found.item.event_type if found.item else None,
        title=_text(subject.get("title")),
        url=_text(subject.get("url")),
        watch=_watch_name(found.watch),
        legs=legs,
        steps=tuple(sorted(_steps(found), key=lambda step: (step.at, _ORDER.index(step.what)))),
    )


# ── where it is, and why ────────────────────────────────────────────────────────────────────────────────

_NOT_SENT = {
    "first_poll": "it was there when its watch was read for the first time: remembered, not sent (first_poll)",
    "filtered": "the filters of its watch do not want it",
    "unwanted": "no destination wants it: their filters by source, type and tag leave it out",
    "malformed": "it could not be read; it is among the dead letters with its raw payload",
    "discarded": "it was discarded by command",
    "taken_over": "the poller before us had sent it already (csi compare --take-over)",
}


def _state(found: Found, event: ToldEvent | None, legs: Sequence[Leg], scene: Scene) -> tuple[str, str]:
    if event is not None:
        unfinished = [leg for leg in legs if leg.state != "delivered"]
        return event.state, "; ".join(dict.fromkeys(leg.reason for leg in unfinished or legs))
    if found.item is not None:
        return _item_state(found.item, scene)
    if found.letters:
        return _letter_state(found.letters[-1])
    reason = found.known.reason if found.known else "unknown"
    if reason == "emitted":
        return "gone", f"it was emitted; its event was removed by retention (kept for {scene.events_days} days)"
    return reason, _NOT_SENT.get(reason, f"it is known as {reason!r}")


def _item_state(item: WaitingItem, scene: Scene) -> tuple[str, str]:
    if item.state == "quarantined":
        return "quarantined", "handling it ended the process three times; look at its dead letter"
    return "inbox", f"it was seen and is not an event yet{_no_worker(scene)}"


def _letter_state(letter: StoredDeadLetter) -> tuple[str, str]:
    if letter.state == "open":
        return "malformed" if letter.kind == "item" else "dead", f"dead letter {letter.id}: {letter.reason}"
    return letter.state, f"dead letter {letter.id} was {letter.state}: {letter.result or 'no result'}"


def _legs(found: Found, scene: Scene) -> Iterator[Leg]:
    """Per destination: what is under way tells most, then dead letters, then journeys that arrived."""
    names = [entry.destination for entry in found.entries]
    names += [letter.destination for letter in found.letters if letter.kind == "event"]
    names += [journey.destination for journey in found.journeys]
    for name in dict.fromkeys(names):
        entry = next((entry for entry in found.entries if entry.destination == name), None)
        yield _leg_under_way(name, entry, found, scene) if entry else _leg_ended(name, found)


def _leg_under_way(name: str, entry: OnItsWay, found: Found, scene: Scene) -> Leg:
    journey = next((one for one in found.journeys if one.pk == entry.batch_pk), None)
    if entry.state == "in_flight" and journey is not None:
        return Leg(name, "in_flight", _why_in_flight(journey, scene))
    return Leg(name, "pending", why_pending(entry, scene))


def _leg_ended(name: str, found: Found) -> Leg:
    letter = next((one for one in reversed(found.letters) if one.destination == name), None)
    if letter is not None and letter.state != "replayed":
        how = f"dead letter {letter.id} ({letter.cause}): {letter.reason}"
        return Leg(name, "dead" if letter.state == "open" else letter.state, how)
    arrived = [one for one in found.journeys if one.destination == name and one.state == "delivered"]
    if arrived or (letter is not None and letter.result == "delivered"):
        when = arrived[-1].settled_at if arrived else letter.closed_at if letter else None
        return Leg(name, "delivered", f"accepted{_at(when)}")
    return Leg(name, "unknown", "nothing is under way to it")


def why_pending(entry: OnItsWay, scene: Scene) -> str:
    """The first thing in its way."""
    gate = scene.gates.get(entry.destination, _GONE)
    if barrier := _barrier(entry.destination, gate, scene):
        return barrier
    if gate.earlier is not None:
        return f"it waits for an earlier item of its watch: {gate.earlier}"
    if entry.due_at > scene.now:
        more = f" or until {gate.tier.batch_size} wait" if gate.tier and gate.tier.batch_size > 1 else ""
        return f"lane {entry.lane} collects: due at {_iso(entry.due_at)}{more}"
    return f"due since {_iso(entry.due_at)}; it waits for its turn in lane {entry.lane}{_no_worker(scene)}"


def _why_in_flight(journey: Journey, scene: Scene) -> str:
    if journey.state == "sending":
        return f"it is being sent now, in {journey.batch_id}"
    if barrier := _barrier(journey.destination, scene.gates.get(journey.destination, _GONE), scene):
        return barrier
    if journey.attempts and journey.next_attempt_at > scene.now:
        return f"attempt {journey.attempts + 1} of {ATTEMPTS} is due at {_iso(journey.next_attempt_at)}"
    return f"{journey.batch_id} is due since {_iso(journey.next_attempt_at)}{_no_worker(scene)}"


def _barrier(name: str, gate: Gate, scene: Scene) -> str | None:
    """Why nothing at all goes to this destination now; None: it does."""
    endpoint = gate.endpoint
    if not scene.delivery_is_on:
        return "delivery is switched off (features.delivery)"
    match gate.state:
        case "gone":
            return f"destination {name} is not configured any more"
        case "held":
            return f"delivery to {name} is paused by command{_since(endpoint.held_at)}: {endpoint.held}"
        case "paused":
            return f"the receiver asked for a pause until {_iso(endpoint.paused_until)}: {endpoint.last_error}"
        case "away" | "probe":
            return f"the receiver is away{_since(endpoint.opened_at)} ({endpoint.reason}); it is asked again soon"
    return None


def _no_worker(scene: Scene) -> str:
    if scene.worker_age is None:
        return "; no worker has ever run here"
    return f"; the worker gave no sign of life for {scene.worker_age:.0f} s" if scene.worker_age > 30 else ""


# ── what happened ───────────────────────────────────────────────────────────────────────────────────────


_ORDER = (
    *("occurred", "seen", "stored", "batched", "attempt", "split", "released"),
    *("dead", "replayed", "discarded", "delivered"),
)
"""Of what happened at one moment, this came before that."""


def _steps(found: Found) -> Iterator[Step]:
    yield from _sighting(found)
    for event in found.events:
        yield from _event_steps(event)
    for journey in found.journeys:
        yield from _journey_steps(journey)
    for request in found.requests:
        yield _request_step(request, found.journeys)
    for letter in found.letters:
        yield from _letter_steps(letter)


def _sighting(found: Found) -> Iterator[Step]:
    seen = [event.first_seen_at for event in found.events]
    seen += [letter.first_seen_at for letter in found.letters if letter.first_seen_at is not None]
    if found.item is not None:
        seen.append(found.item.seen_at)
    if not seen and found.known is not None and found.known.first_seen_at is not None:
        seen.append(found.known.first_seen_at)
    if not seen:
        return
    where = f" in {_watch_name(found.watch)}" if found.watch else ""
    reason = found.known.reason if found.known else None
    note = f"; not sent: {reason}" if reason in _NOT_SENT and not found.events else ""
    yield Step(min(seen), "seen", f"seen for the first time{where}{note}", {"reason": reason})


def _event_steps(event: ToldEvent) -> Iterator[Step]:
    occurred = _parse(event.occurred_at)
    if occurred is not None:
        yield Step(occurred, "occurred", "published, or added to its list, at the source")
    yield Step(event.first_seen_at, "stored", f"became event {event.event_id}", {"lane": event.tier})
    if event.delivered_at is not None:
        took = event.delivered_at - event.first_seen_at
        text = f"delivered everywhere, {took:.1f} s after it was first seen"
        yield Step(event.delivered_at, "delivered", text, {"seconds": round(took, 3)})


_ENDS = {
    "split": "was refused and taken apart",
    "released": "was dissolved; its events were pending again",
    "dead": "was given up",
}


def _journey_steps(journey: Journey) -> Iterator[Step]:
    others = f" with {journey.size - 1} others" if journey.size > 1 else " alone"
    probe = ", as a probe" if journey.is_probe else ""
    details = {"batch_id": journey.batch_id, "destination": journey.destination, "size": journey.size}
    text = f"put into {journey.batch_id} to {journey.destination}{others}{probe}"
    yield Step(journey.created_at, "batched", text, details | {"lane": journey.lane})
    if journey.state in _ENDS and journey.settled_at is not None:
        yield Step(journey.settled_at, journey.state, f"{journey.batch_id} {_ENDS[journey.state]}", details)


def _request_step(request: Request, journeys: Sequence[Journey]) -> Step:
    batch = next((one.batch_id for one in journeys if one.pk == request.batch_pk), None)
    took = None if request.finished_at is None else round(request.finished_at - request.started_at, 3)
    answered = "no answer yet" if request.outcome == "sending" else _answer_words(request)
    details = {
        "batch_id": batch,
        "destination": request.destination,
        "request_id": request.request_id,
        "attempt": request.attempt,
        "form": request.form,
        "outcome": request.outcome,
        "status": request.status,
        "reason": request.reason,
        "answer": request.answer,
        "seconds": took,
    }
    text = f"attempt {request.attempt} to {request.destination}: {answered}"
    return Step(request.started_at, "attempt", text, details)


def _answer_words(request: Request) -> str:
    status = f"http {request.status}" if request.status is not None else ""
    reason = request.reason if request.reason and request.reason != status else ""
    words = " ".join(filter(None, [status if not reason.startswith(status or " ") else "", reason]))
    return f"{request.outcome} ({words})" if words else request.outcome


def _letter_steps(letter: StoredDeadLetter) -> Iterator[Step]:
    details = {"letter": letter.id, "destination": letter.destination or None, "cause": letter.cause}
    yield Step(letter.died_at, "dead", f"dead letter {letter.id} ({letter.cause}): {letter.reason}", details)
    if letter.closed_at is not None:
        text = f"dead letter {letter.id} {letter.state}: {letter.result or 'no result'}"
        yield Step(letter.closed_at, letter.state, text, details | {"result": letter.result})


# ── small things ────────────────────────────────────────────────────────────────────────────────────────


def _subject(found: Found, event: ToldEvent | None) -> dict[str, Any]:
    if event is not None:
        subject = json.loads(event.subject_json)
    elif found.letters:
        subject = found.letters[-1].payload.get("subject")
    else:
        subject = None
    return subject if isinstance(subject, dict) else {}


def _event_id(found: Found) -> str | None:
    return next((letter.event_id for letter in found.letters if letter.kind == "event"), None)


def _source(found: Found, event: ToldEvent | None) -> str | None:
    if event is not None:
        return event.source
    if found.letters:
        return found.letters[-1].source
    return found.watch.source if found.watch else None


def _watch_name(watch: Watched | None) -> str | None:
    if watch is None:
        return None
    return f"{watch.source} {watch.ref}" + (f" ({watch.name})" if watch.name else "")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _parse(text: str) -> float | None:
    try:
        return clock.parse(text)
    except (ValueError, OverflowError):
        return None


def _iso(moment: float | None) -> str:
    return "an unknown time" if moment is None else clock.iso(moment)


def _at(moment: float | None) -> str:
    return "" if moment is None else f" at {clock.iso(moment)}"


def _since(moment: float | None) -> str:
    return "" if moment is None else f" since {clock.iso(moment)}"
