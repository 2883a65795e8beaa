"""Watches managed by commands (added, paused, resumed, removed, reset), their API cost and planned intervals."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.store.db import changed, chunks, fetch, fetch_all, marks, number, writing
from csi.store.models import Watch
from csi.store.watches import WantedWatch

CLEAN = {
    "errors": 0,
    "last_error": None,
    "error_kind": None,
    "health": "healthy",
    "health_since": None,
    "note": None,
    "missing_since": None,
    "gap_json": None,
    "empty_reads": 0,
    "gone_at": None,
    "stale_since": None,
    "compared_at": None,
}
"""Column values of a watch without a history of errors."""


@dataclass(frozen=True)
class PaidWatch:
    """A watch that uses API units, as the quota plan needs it. Fields are in the order that `paid` selects."""

    id: int
    source: str
    interval: float
    pages: int
    via: str
    last_new_at: float | None
    first_read_at: float | None
    tier: str = "standard"
    own_interval: float | None = None


def every(*, removed: bool = False) -> list[Watch]:
    """All watches in a stable order, without removed ones unless `removed`."""
    rows = Watch.select().order_by(Watch.source, Watch.id)
    return list(rows if removed else rows.where(Watch.state != "removed"))


def matching(text: str) -> list[Watch]:
    """Watches that have this id, ref or name and are not removed."""
    same = (Watch.ref == text) | (Watch.name == text)
    if text.isascii() and text.isdigit() and len(text) < 19:
        same |= Watch.id == int(text)
    return list(Watch.select().where(same & (Watch.state != "removed")).order_by(Watch.source, Watch.id))


def find(source: str, ref: str) -> Watch | None:
    found: Watch | None = Watch.get_or_none(source=source, ref=ref)
    return found


def added_by_command(pairs: set[tuple[str, str]]) -> list[Watch]:
    """Watches with one of these (source, ref) that were added by command and are not removed."""
    rows = Watch.select().where((Watch.origin == "command") & (Watch.state != "removed"))
    return [row for row in rows if (row.source, row.ref) in pairs]


def add(new: WantedWatch, now: float, options_json: str | None = None) -> int:
    """Insert a watch, or activate a removed one, which continues with its stored state. Returns the id."""
    values = new.values("command") | {"state": "active", "next_poll_at": now, "wake_at": now}
    values |= {"options_json": options_json, "removed_at": None}
    with writing():
        found = find(new.source, new.ref)
        if found is None:
            values |= {"source": new.source, "ref": new.ref, "created_at": clock.iso(now)}
            return int(Watch.insert(**values).execute())
        Watch.update(**values, **CLEAN).where(Watch.id == found.id).execute()
        return int(found.id)


def change(watch: Watch, wanted: WantedWatch, options_json: str | None, now: float) -> None:
    """Replace the options of a watch. `options_json`: all of them, or of a configured watch those that differ from the
    configuration. Part of the caller's transaction."""
    values = wanted.values(watch.origin) | {"options_json": options_json, "name": wanted.name or watch.title}
    if watch.first_read_at is not None or watch.last_success_at is not None:
        del values["first_poll"]  # it was read already, or `csi sources reset` has set the policy of the next poll
    Watch.update(**values).where(Watch.id == watch.id).execute()
    make_due(watch.id, now + wanted.interval)


def pause(watch_id: int) -> bool:
    """Stop polling until `resume`, across restarts and configuration changes. False: the watch was not active."""
    with writing():
        return _update(watch_id, Watch.state == "active", state="paused")


def resume(watch_id: int, now: float) -> bool:
    """Poll a paused watch again, now. False: it was not paused."""
    with writing():
        return _update(watch_id, Watch.state == "paused", state="active", next_poll_at=now, wake_at=now, **CLEAN)


def remove(watch_id: int) -> bool:
    """Stop polling for good. The row stays: events refer to it, and a watch that is added again continues with it."""
    with writing():
        return _update(watch_id, Watch.state != "removed", state="removed", lease_token=None, lease_until=None)


def reset(watch_id: int, first_poll: Any, now: float) -> bool:
    """Forget the baseline: the next successful poll is a first poll with this policy."""
    values = {"first_read_at": None, "etag": None, "last_modified": None, "probe_json": None, "walked_at": None}
    due = {"next_poll_at": now, "wake_at": now, "last_new_at": None}
    with writing():
        first = json.dumps(first_poll)
        return _update(watch_id, Watch.state != "removed", first_poll=first, **values, **due, **CLEAN)


def forget_unemitted(keys: Sequence[str]) -> int:
    """Delete keys that a first poll or a filter marked as seen. An item that became an event keeps its key, so it is
    not delivered twice. Part of the caller's transaction."""
    sql = "DELETE FROM dedupe_keys WHERE reason IN ('first_poll', 'filtered') AND key IN"
    return sum(changed(f"{sql} ({marks(chunk)})", *chunk) for chunk in chunks(keys))


def waiting_items(watch_id: int) -> int:
    """Items and events of this watch that are not delivered yet."""
    pending = "SELECT COUNT(*) FROM events WHERE watch_id = ? AND state IN ('pending', 'in_flight')"
    return number("SELECT COUNT(*) FROM inbox WHERE watch_id = ?", watch_id) + number(pending, watch_id)


def paid(sources: Iterable[str]) -> list[PaidWatch]:
    """Active watches of these sources, which always use units, and watches of others that are polled by API."""
    named = [*sources, ""]
    sql = (
        "SELECT id, source, interval_seconds, pages, via, last_new_at, first_read_at, tier, own_interval "
        "FROM watches "
        f"WHERE state = 'active' AND (source IN ({marks(named)}) OR via <> 'feed') ORDER BY id"
    )
    return fetch_all(PaidWatch, sql, *named)


def make_due(watch_id: int, at: float) -> int:
    """Make an active watch due at this time if it is due later and no thread polls it. Returns how many changed."""
    sql = """UPDATE watches SET next_poll_at = ?, wake_at = ? WHERE id = ? AND state = 'active' AND next_poll_at > ?
        AND lease_token IS NULL"""
    with writing():
        return changed(sql, at, at, watch_id, at)


def set_planned_interval(watch_id: int, seconds: float | None) -> None:
    """The interval that the quota plan allows this watch; part of the caller's transaction."""
    Watch.update(planned_interval=seconds).where(Watch.id == watch_id).execute()


def without_icon(sources: Sequence[str], now: float) -> list[str]:
    """Those of these sources with active watches whose icon may be looked up now."""
    if not sources:
        return []
    sql = (
        "SELECT DISTINCT source FROM watches WHERE state = 'active' AND icon_url IS NULL "
        f"AND (icon_due_at IS NULL OR icon_due_at <= ?) AND source IN ({marks(sources)}) ORDER BY source"
    )
    return [source for (source,) in fetch(sql, now, *sources)]


def claim_icons(source: str, now: float, *, until: float, limit: int) -> dict[str, int]:
    """Watches without an icon, id by ref: they are due again at `until`. Part of the caller's transaction."""
    sql = (
        "UPDATE watches SET icon_due_at = ? WHERE id IN (SELECT id FROM watches WHERE source = ? AND state = 'active' "
        "AND icon_url IS NULL AND (icon_due_at IS NULL OR icon_due_at <= ?) ORDER BY id LIMIT ?) RETURNING ref, id"
    )
    return dict(fetch(sql, until, source, now, limit))


def set_icon(watch_id: int, url: str | None, due_at: float) -> None:
    Watch.update(icon_url=url, icon_due_at=due_at).where(Watch.id == watch_id).execute()


def active_spells(sources: Iterable[str], since: float, spell: float) -> dict[int, int]:
    """By watch: in how many periods of `spell` seconds since then at least one event was first seen."""
    named = [*sources, ""]
    sql = f"""SELECT watch_id, first_seen_at FROM events
        WHERE id >= ? AND first_seen_at >= ? AND source IN ({marks(named)}) AND watch_id IS NOT NULL"""
    rows = fetch(sql, _first_since(since), since, *named)
    return Counter(watch_id for watch_id, _ in {(watch_id, seen_at // spell) for watch_id, seen_at in rows})


def _first_since(moment: float) -> int:
    """The first event id that was seen at or after this moment. Ids grow with time, so a binary search finds it in
    some twenty reads; an index on the time would slow down every insert."""
    low, high = 0, number("SELECT MAX(id) FROM events")
    while low < high:
        middle = (low + high) // 2
        found, seen_at = fetch("SELECT id, first_seen_at FROM events WHERE id >= ? ORDER BY id LIMIT 1", middle)[0]
        low, high = (found + 1, high) if seen_at < moment else (low, middle)
    return low


def _update(watch_id: int, condition: Any, **values: Any) -> bool:
    return bool(Watch.update(**values).where((Watch.id == watch_id) & condition).execute())
