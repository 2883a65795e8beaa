"""Watches: what is read, when it is due, and who reads it now."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.store.db import new_token, writing
from csi.store.models import Watch

REWAKE_SECONDS = 15.0
"""A wake-up that was lost is repeated after this long."""

ERROR_TEXT = 500


@dataclass(frozen=True)
class WantedWatch:
    """A watch as the configuration wants it to be."""

    source: str
    ref: str
    name: str | None
    route_profile: str | None
    tags: tuple[str, ...]
    tier: str
    interval: float
    first_poll: Any


@dataclass(frozen=True)
class DueWatch:
    """A watch to wake at `at`."""

    id: int
    at: float


@dataclass(frozen=True)
class WatchTimes:
    """When an active watch was read and when it is due, without saying which watch it is."""

    source: str
    interval: float
    next_poll_at: float
    last_poll_at: float | None
    last_success_at: float | None
    errors: int


def sync(wanted: Iterable[WantedWatch], now: float) -> None:
    """Make the watches of origin `config` those of the configuration. Nothing is deleted: a watch that went away is
    `removed`, and continues where it was when it comes back."""
    with writing():
        keep = [_upsert(watch, now) for watch in wanted]
        gone = (Watch.origin == "config") & (Watch.state == "active")
        Watch.update(state="removed").where(gone & Watch.id.not_in(keep or [0])).execute()


def _upsert(wanted: WantedWatch, now: float) -> int:
    values = {
        "name": wanted.name,
        "route_profile": wanted.route_profile,
        "tags_json": json.dumps(wanted.tags),
        "tier": wanted.tier,
        "interval_seconds": wanted.interval,
        "first_poll": json.dumps(wanted.first_poll),
    }
    found = Watch.get_or_none(source=wanted.source, ref=wanted.ref)
    if found is None:
        place = {"source": wanted.source, "ref": wanted.ref}
        times = {"next_poll_at": now, "wake_at": now, "created_at": clock.iso(now)}
        # Ignored: on PostgreSQL another worker that starts at this moment may have been first.
        Watch.insert(**place, **times, **values).on_conflict_ignore().execute()
        return int(Watch.get(**place).id)
    if found.state == "removed":
        values |= {"state": "active", "next_poll_at": now, "wake_at": now}
    elif found.next_poll_at > now + wanted.interval:
        values |= {"next_poll_at": now + wanted.interval, "wake_at": now + wanted.interval}
    Watch.update(**values).where(Watch.id == found.id).execute()
    return int(found.id)


def plan_due(now: float, horizon: float, limit: int = 2000) -> list[DueWatch]:
    """Watches that fall due within the horizon and that nobody woke yet. Whoever gets one here wakes it: a second
    planner at the same moment finds nothing."""
    not_woken = (Watch.wake_at == Watch.next_poll_at) & (Watch.wake_at <= now + horizon)
    ahead = (
        Watch.select(Watch.id, Watch.wake_at, Watch.next_poll_at)
        .where((Watch.state == "active") & (not_woken | (Watch.wake_at <= now)))
        .order_by(Watch.wake_at)
        .limit(limit)
    )
    rows = list(ahead)
    if not rows:
        return []
    with writing():
        return [DueWatch(row.id, row.next_poll_at) for row in rows if _mark_woken(row, now)]


def _mark_woken(row: Watch, now: float) -> bool:
    again = max(row.next_poll_at, now) + REWAKE_SECONDS
    query = Watch.update(wake_at=again).where((Watch.id == row.id) & (Watch.wake_at == row.wake_at))
    return bool(query.execute())


def claim(watch_id: int, now: float, lease_seconds: float, *, early: bool = False) -> Watch | None:
    """Hold this watch for one poll. None: it is not due, not active, or somebody else reads it."""
    free = Watch.lease_until.is_null() | (Watch.lease_until < now)
    due = Watch.state == "active"
    if not early:
        due &= Watch.next_poll_at <= now
    token, until = new_token(), now + lease_seconds
    taken = (
        Watch.update(lease_token=token, lease_until=until, wake_at=until, last_poll_at=now)
        .where((Watch.id == watch_id) & due & free)
        .execute()
    )
    return Watch.get_by_id(watch_id) if taken and _holds(watch_id, token) else None


def _holds(watch_id: int, token: str | None) -> bool:
    return bool(Watch.select().where((Watch.id == watch_id) & (Watch.lease_token == token)).exists())


def still_held(watch: Watch) -> bool:
    """False: the lease ran out and somebody else may have read the watch meanwhile."""
    return _holds(watch.id, watch.lease_token)


def finish(watch: Watch, now: float, next_poll_at: float, *, woken: bool, **changes: Any) -> bool:
    """Give the lease back with what the poll found. `woken`: the caller wakes the next poll itself."""
    wake_at = max(next_poll_at, now) + REWAKE_SECONDS if woken else next_poll_at
    changes |= {"next_poll_at": next_poll_at, "wake_at": wake_at, "lease_token": None, "lease_until": None}
    held = (Watch.id == watch.id) & (Watch.lease_token == watch.lease_token)
    return bool(Watch.update(**changes).where(held).execute())


def of_source(source: str) -> list[Watch]:
    return list(Watch.select().where((Watch.source == source) & (Watch.state == "active")).order_by(Watch.id))


def active() -> list[Watch]:
    return list(Watch.select().where(Watch.state == "active").order_by(Watch.source, Watch.id))


def find(watch_id: int) -> Watch | None:
    found: Watch | None = Watch.get_or_none(id=watch_id)
    return found


def schedule() -> list[WatchTimes]:
    """The times of every active watch, for health checks."""
    columns = (Watch.source, Watch.interval_seconds, Watch.next_poll_at, Watch.errors)
    rows = Watch.select(*columns, Watch.last_poll_at, Watch.last_success_at).where(Watch.state == "active")
    return [
        WatchTimes(
            source=row.source,
            interval=row.interval_seconds,
            next_poll_at=row.next_poll_at,
            last_poll_at=row.last_poll_at,
            last_success_at=row.last_success_at,
            errors=row.errors,
        )
        for row in rows
    ]


def find_id(source: str, ref: str) -> int | None:
    """Also of a watch that was removed: what it saw may still be dealt with."""
    found = Watch.select(Watch.id).where((Watch.source == source) & (Watch.ref == ref)).first()
    return int(found.id) if found else None
