"""The list of watches and tracked channels: searched, filtered, sorted, page by page."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from csi.runtime import Runtime
from csi.status import watch_states
from csi.status.watch_states import FAILING_STATES
from csi.store.queries import watch_rows
from csi.store.queries.watch_rows import WatchRow

CHANNEL_SOURCE = "youtube_channel_rss"
VIEWS = ("", "unwell", "quiet", "paused", "tracked")
PER_PAGE = 50


@dataclass(frozen=True)
class WatchListQuery:
    """Which watches, in which order. An empty text is no condition."""

    words: str = ""
    view: str = ""
    source: str = ""
    tag: str = ""
    sort: str = ""
    """A key of SORTS; with a dash the other way round. Empty: failing ones first, then by source and name."""
    page: int = 1


@dataclass(frozen=True)
class WatchListPage:
    """One page of the list, and the counts of all views."""

    rows: tuple[WatchRow, ...]
    states: Mapping[int, str]
    """By watch id, of all watches."""
    counts: Mapping[str, int]
    ids: tuple[int, ...]
    """Of all watches that match, on every page."""
    total: int
    page: int
    pages: int
    tags: tuple[str, ...]


def _name(row: WatchRow) -> str:
    return (row.name or row.ref).casefold()


SORTS: dict[str, Callable[[WatchRow], Any]] = {
    "name": _name,
    "source": lambda row: (row.source, _name(row)),
    "last_poll": lambda row: row.last_success_at,
    "next_poll": lambda row: row.next_poll_at if row.state == "active" else None,
    "last_new": lambda row: row.last_new_at,
    "interval": lambda row: row.interval or None,
    "subscribers": lambda row: row.subscribers,
    "state": lambda row: row.state,
}


def watch_list(rt: Runtime, query: WatchListQuery, per_page: int = PER_PAGE) -> WatchListPage:
    rows = watch_rows.every(CHANNEL_SOURCE)
    watched = [row for row in rows if row.id]
    states = {row.id: state for row, state in zip(watched, watch_states.states_of(rt, watched), strict=True)}
    tags: dict[str, list[str]] = {text: json.loads(text) for text in {row.tags_json for row in watched}}
    found = _sorted([row for row in rows if _fits(row, query, states, tags.get(row.tags_json, []))], query.sort, states)
    pages = max(-(-len(found) // per_page), 1)
    page = min(max(query.page, 1), pages)
    counted = Counter(states.values())
    return WatchListPage(
        rows=tuple(found[(page - 1) * per_page : page * per_page]),
        states=states,
        counts={
            "": len(rows),
            "unwell": sum(counted[state] for state in FAILING_STATES),
            "quiet": counted["quiet"],
            "paused": counted["paused"],
            "tracked": sum(_is_tracked(row) for row in rows),
        },
        ids=tuple(row.id for row in found if row.id),
        total=len(found),
        page=page,
        pages=pages,
        tags=tuple(sorted({tag for some in tags.values() for tag in some})),
    )


def _is_tracked(row: WatchRow) -> bool:
    return row.tracking not in (None, "paused")


def _fits(row: WatchRow, query: WatchListQuery, states: Mapping[int, str], tags: list[str]) -> bool:
    match query.view:
        case "unwell":
            is_wanted = states.get(row.id) in FAILING_STATES
        case "quiet" | "paused":
            is_wanted = states.get(row.id) == query.view
        case "tracked":
            is_wanted = _is_tracked(row)
        case _:
            is_wanted = True
    if not is_wanted or query.source not in ("", row.source) or (query.tag and query.tag not in tags):
        return False
    text = f"{row.name or ''} {row.ref} {row.source} {row.last_error or ''}"
    return not query.words or query.words.casefold() in text.casefold()


def _sorted(rows: list[WatchRow], sort: str, states: Mapping[int, str]) -> list[WatchRow]:
    key = SORTS.get(sort.removeprefix("-"))
    if key is None:
        return sorted(rows, key=lambda row: (states.get(row.id) not in FAILING_STATES, row.source, _name(row)))
    if sort.removeprefix("-") == "state":
        return sorted(rows, key=lambda row: (states.get(row.id, "unwatched"), _name(row)), reverse=sort.startswith("-"))
    # Rows without a value stand last in both directions.
    known = sorted((row for row in rows if key(row) is not None), key=key, reverse=sort.startswith("-"))
    return known + [row for row in rows if key(row) is None]
