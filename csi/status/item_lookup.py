"""What became of one item: every row it left behind, from the first sighting to the receipt."""

from dataclasses import dataclass

from csi.adapters import registry
from csi.dlq import dead_letters
from csi.ingester.text import clean
from csi.pipeline import destination_state
from csi.runtime import Runtime
from csi.status.destinations import GATES
from csi.status.timeline import Found, Gate, Scene, Story, tell
from csi.store import destinations, heartbeats, outbox
from csi.store.queries import timeline as stories
from csi.store.queries.timeline import OnItsWay

LONGEST = 512


@dataclass(frozen=True)
class Traced:
    """The stories of all items that were meant. `is_cut`: there are more."""

    query: str
    stories: tuple[Story, ...]
    is_cut: bool = False


def trace(rt: Runtime, text: str) -> Traced:
    """By the id of a video, an event_id or a dedupe key. Reads only."""
    query = clean(text, LONGEST).strip()
    keys = stories.find_keys(query, registry.key_stems()) if query else []
    shown = keys[: stories.MOST_KEYS]
    return Traced(query, tuple(story_of(rt, key) for key in shown), len(keys) > len(shown))


def story_of(rt: Runtime, key: str) -> Story:
    """By the very dedupe key."""
    found = gather(key)
    return tell(found, _scene(rt, found))


def gather(key: str) -> Found:
    events, item = stories.events_of(key), stories.waiting_item(key)
    pks = [event.pk for event in events]
    journeys = stories.journeys_of(pks)
    watch_id = events[-1].watch_id if events else item.watch_id if item else None
    return Found(
        key=key,
        known=stories.known_key(key),
        item=item,
        events=events,
        entries=stories.outbox_of(pks),
        journeys=journeys,
        requests=stories.requests_of([journey.pk for journey in journeys]),
        letters=dead_letters.of_item(key),
        watch=stories.watched(watch_id),
    )


def _scene(rt: Runtime, found: Found) -> Scene:
    beat, now = heartbeats.last_beat("worker"), rt.now()
    return Scene(
        now=now,
        gates={entry.destination: _gate(rt, entry, now) for entry in found.entries},
        delivery_is_on=rt.settings.features.delivery,
        worker_age=None if beat is None else now - beat,
        events_days=rt.settings.retention.events_days,
    )


def _gate(rt: Runtime, entry: OnItsWay, now: float) -> Gate:
    endpoint, destination = destinations.get(entry.destination), rt.destinations.get(entry.destination)
    if destination is None:
        return Gate("gone", endpoint)
    in_order = entry.state == "pending" and entry.lane not in outbox.UNORDERED
    earlier = stories.earlier_one(entry) if in_order else None
    return Gate(GATES[destination_state.current(endpoint, now)], endpoint, destination.tiers.of(entry.lane), earlier)
