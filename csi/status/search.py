"""Event search, page by page: the same for the command line, the API and the dashboard."""

from dataclasses import dataclass

from csi.store.queries import event_search
from csi.store.queries.event_search import EventQuery, EventRow


@dataclass(frozen=True)
class EventPage:
    """Events, newest first. `next_before` None: there are no older ones."""

    events: tuple[EventRow, ...]
    next_before: int | None


def search(query: EventQuery, limit: int, before: int | None = None) -> EventPage:
    found = event_search.newest(query, limit + 1, before)
    shown = tuple(found[:limit])
    return EventPage(shown, shown[-1].id if len(found) > limit else None)


def find_event(text: str) -> EventRow | None:
    """By number, event_id or dedupe key."""
    return event_search.find(text)
