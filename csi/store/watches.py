"""Watches: when each is due, and the lease of the thread that polls it now.

`next_poll_at` is when the watch is due. `wake_at` is when the maintenance loop looks at it: equal to `next_poll_at`
while no wake-up is in the queue, else the time at which that wake-up counts as lost and is repeated (a grace period
after it, or the end of the lease while a thread polls the watch).
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.store.db import changed, chunks, columns, fetch, fetch_all, fetch_one, marks, new_token, number, run, writing
from csi.store.models import Watch, database

GRACE_SECONDS = 3.0
"""How late the wake-up that a poll scheduled for its successor may be before the maintenance loop repeats it."""

REWAKE_SECONDS = 15.0
"""How late a wake-up of the maintenance loop may be before it is repeated: many watches may wait for a slot."""

MISSED_SECONDS = 60.0
"""No worker looked for so long: the machine slept, the process was down, or the clock was moved."""

AT_ONCE = 10
"""Watches that were missed are woken so many a second, and all of them within a minute."""

LEASE_SECONDS = 55.0
LONGEST_LEASE = 60.0
LONGEST_WAIT = 3600.0
ERROR_TEXT = 500
FAR = 1e12
"""Later than any due time: an early poll does not depend on it."""

# Plain SQL: for a row this wide Peewee takes longer to write a statement than the database to run it, and these run for
# every read of every watch, or several times a second.
# `wake_at = next_poll_at`: no wake-up was sent yet, so the watch is taken up to `horizon` early. Otherwise one is in
# the queue, and it is repeated only once `wake_at` has passed.
_DUE = """
    SELECT id, wake_at, next_poll_at FROM watches
    WHERE state = 'active' AND wake_at <= ? AND (wake_at = next_poll_at OR wake_at <= ?){ours}
    ORDER BY wake_at, id LIMIT ?
"""
# A lease that expired belongs to a process that died or hangs. One further off than any lease lasts was written before
# the clock was set back.
_CLAIM = """
    UPDATE watches SET lease_token = ?, lease_until = ?, wake_at = ?, last_poll_at = ?, slot_at = NULL
    WHERE id = ? AND state = 'active' AND next_poll_at <= ?
      AND (lease_until IS NULL OR lease_until < ? OR lease_until > ?)
    RETURNING *
"""
_FROM_THE_FUTURE = """
    SELECT id, next_poll_at, last_poll_at, interval_seconds FROM watches
    WHERE state = 'active' AND (last_poll_at > ? OR (last_poll_at IS NULL AND next_poll_at > ?))
"""
_RESET_TIMES = """
    UPDATE watches SET next_poll_at = ?, wake_at = ?, last_poll_at = ?, lease_token = NULL, lease_until = NULL,
        last_success_at = CASE WHEN last_success_at > ? THEN ? ELSE last_success_at END
    WHERE id = ? AND next_poll_at = ?
"""


@dataclass(frozen=True)
class WantedWatch:
    """A watch as the configuration or a command wants it to be."""

    source: str
    ref: str
    name: str | None
    route_profile: str | None
    tags: tuple[str, ...]
    tier: str
    interval: float
    first_poll: Any
    filters: str = "{}"
    via: str = "feed"
    host: str | None = None
    feed_url: str | None = None
    own_interval: float | None = None
    """The interval that is set for this watch alone. None: `interval` is that of its source."""

    def values(self, origin: str) -> dict[str, Any]:
        """Its columns, except those that identify it."""
        return {
            "name": self.name,
            "route_profile": self.route_profile,
            "tags_json": json.dumps(self.tags),
            "tier": self.tier,
            "interval_seconds": self.interval,
            "first_poll": json.dumps(self.first_poll),
            "filters_json": self.filters,
            "via": self.via,
            "host": self.host,
            "feed_url": self.feed_url,
            "own_interval": self.own_interval,
            "origin": origin,
        }


@dataclass(frozen=True)
class DueWatch:
    """A watch to wake at `at`."""

    id: int
    at: float


@dataclass(frozen=True)
class PollCandidate:
    """The columns that decide whether a watch is polled now."""

    id: int
    source: str
    ref: str
    via: str
    tier: str
    next_poll_at: float
    last_poll_at: float | None
    interval_seconds: float
    wake_at: float = 0.0
    slot_at: float | None = None
    """The slot of its host that this watch has reserved."""


@dataclass(frozen=True)
class _Ahead:
    id: int
    wake_at: float
    next_poll_at: float


@dataclass(frozen=True)
class WatchRouting:
    """How the events of a watch are routed."""

    id: int
    source: str
    ref: str
    tier: str
    route_profile: str | None
    tags_json: str


@dataclass(frozen=True)
class WatchTimes:
    """When an active watch was polled and when it is due next."""

    source: str
    interval: float
    next_poll_at: float
    last_poll_at: float | None
    last_success_at: float | None
    errors: int
    id: int = 0
    ref: str = ""
    name: str | None = None
    state: str = "active"
    host: str | None = None
    health: str = "healthy"
    health_since: float | None = None
    error_kind: str | None = None
    last_error: str | None = None
    first_read_at: float | None = None
    last_new_at: float | None = None
    last_video_published_at: float | None = None
    usual_gap: float | None = None
    gone_at: float | None = None
    stale_since: float | None = None
    planned_interval: float | None = None
    """The interval in force: within the quota, or stretched while pushes are complete. None: not polled yet."""


TIMES = columns(WatchTimes).replace("interval", "interval_seconds", 1)


def sync(wanted: Iterable[WantedWatch], now: float, held: Collection[tuple[str, str]] = ()) -> None:
    """Make the watches of origin `config` those of the configuration. Nothing is deleted: a watch that is not in it any
    more is `removed`, and continues with its stored state when it is configured again. A watch that was added by
    command and is now configured gets origin `config`. Paused watches stay paused.

    `held`: (source, ref) of watches that stay as they are although the configuration does not have them."""
    with writing():
        stored = {(row.source, row.ref): row for row in Watch.select()}
        keep = {(want.source, want.ref): want for want in wanted}
        times = {"next_poll_at": now, "wake_at": now, "created_at": clock.iso(now)}
        new = [
            {"source": want.source, "ref": want.ref, **want.values("config"), **times}
            for place, want in keep.items()
            if place not in stored
        ]
        for chunk in chunks(new):
            # Conflicts are ignored: on PostgreSQL another worker that starts now may have inserted the same row.
            Watch.insert_many(chunk).on_conflict_ignore().execute()
        for place, row in stored.items():
            # Only what differs is written: a restart with 500 watches writes nothing
            changes = _changes(row, keep.get(place), now, is_held=place in held)
            changes = {name: value for name, value in changes.items() if getattr(row, name) != value}
            if changes:
                Watch.update(**changes).where(Watch.id == row.id).execute()


def changed_options() -> dict[tuple[str, str], dict[str, Any]]:
    """What an operator changed of configured watches, by (source, ref). A value of None: the source's default."""
    rows = Watch.select(Watch.source, Watch.ref, Watch.options_json)
    rows = rows.where(Watch.origin == "config", Watch.options_json.is_null(False))
    return {(row.source, row.ref): json.loads(row.options_json or "{}") for row in rows}


def _changes(row: Watch, wanted: WantedWatch | None, now: float, *, is_held: bool) -> dict[str, Any]:
    if wanted is not None:
        values = wanted.values("config")
        if row.state == "removed":
            values |= {"state": "active", "next_poll_at": now, "wake_at": now}
        elif row.health == "healthy" and row.next_poll_at > now + max(wanted.interval, row.planned_interval or 0):
            # Its interval is shorter now.
            values |= {"next_poll_at": now + wanted.interval, "wake_at": now + wanted.interval}
        values["name"] = wanted.name or row.title
        values |= {"removed_at": None, "removal_held_at": None}
        if row.origin != "config":
            values["options_json"] = None
        if row.first_read_at is None and row.last_success_at is not None:
            del values["first_poll"]  # `csi sources reset` has set the policy of the next poll
        return values
    if row.origin != "config" or row.state == "removed":
        return {}
    if is_held:
        return {"removal_held_at": row.removal_held_at or now}
    return {"state": "removed", "removed_at": now, "removal_held_at": None, "options_json": None}


def plan_due(now: float, horizon: float, limit: int = 2000, sources: Sequence[str] | None = None) -> list[DueWatch]:
    """Watches that are due within the horizon and were not woken yet. Moves their wake time, so that a second planner
    at the same moment finds none: the caller must wake them. Watches that were missed for a while are spread out."""
    named = [] if sources is None else [*sources, ""]
    # `source || ''` keeps SQLite from using an index on source: searching by time is faster, most watches are not due.
    ours = f" AND (source || '') IN ({marks(named)})" if named else ""
    rows = fetch_all(_Ahead, _DUE.replace("{ours}", ours), now + horizon, now, *named, limit)
    if not rows:
        return []
    # When to wake each: at its time, or AT_ONCE per second where many were missed.
    missed = [row.id for row in rows if row.wake_at < now - MISSED_SECONDS]
    pace = max(AT_ONCE, len(missed) / MISSED_SECONDS)
    late = {watch_id: now + int(place / pace) for place, watch_id in enumerate(missed)}
    times = {row.id: late.get(row.id, row.next_poll_at) for row in rows}
    # Committed before the caller enqueues anything: if the process ends in between, `wake_at` repeats the wake-ups.
    woken = []
    sql = "UPDATE watches SET wake_at = ?, next_poll_at = ? WHERE id = ? AND wake_at = ?"
    with writing():
        for row in rows:
            at = times[row.id]
            # A watch that is spread is due at its new time: an older wake-up, still in the queue, does nothing.
            next_at = at if at > max(row.next_poll_at, now) else row.next_poll_at
            # Changes nothing if another planner was faster: then `wake_at` differs, and that planner wakes the watch.
            if changed(sql, max(at, now) + REWAKE_SECONDS, next_at, row.id, row.wake_at):
                woken.append(DueWatch(row.id, at))
    return woken


def reset_future_times(now: float) -> int:
    """After the clock was set back: a watch whose last read lies in the future waits as long as it would have waited
    from then, but from now, and its lease is released. Returns how many there were."""
    rows = fetch(_FROM_THE_FUTURE, now + MISSED_SECONDS, now + LONGEST_WAIT + MISSED_SECONDS)
    if not rows:
        return 0
    with writing():
        for watch_id, next_at, last_at, interval in rows:
            wait = next_at - last_at if last_at is not None else 0.0
            at = now + min(max(wait, 0.0), max(interval, LONGEST_WAIT))
            run(_RESET_TIMES, at, at, now, now, now, watch_id, next_at)
    return len(rows)


def claim(watch_id: int, now: float, lease_seconds: float, *, early: bool = False) -> Watch | None:
    """Lease this watch for one poll. None: it is not due, not active, or leased by another thread."""
    until, latest = now + lease_seconds, FAR if early else now
    sql = _CLAIM.replace("?", database.param)
    values = (new_token(), until, until, now, watch_id, latest, now, now + 2 * LONGEST_LEASE)
    # Fetched to the end, although there is at most one row: SQLite ends the statement, and releases its lock, after
    # the last one.
    return next(iter(list(Watch.raw(sql, *values))), None)


def poll_candidate(watch_id: int) -> PollCandidate | None:
    """Read only the columns that decide whether the watch is polled now. None: it is not active."""
    sql = f"SELECT {columns(PollCandidate)} FROM watches WHERE id = ? AND state = 'active'"
    return fetch_one(PollCandidate, sql, watch_id)


def wake_again(watch_id: int, at: float) -> None:
    """The watch is due but has no free slot: the maintenance loop wakes it at this time."""
    run("UPDATE watches SET wake_at = ? WHERE id = ? AND lease_token IS NULL", at, watch_id)


def postpone(watch: PollCandidate, until: float, *, slot_at: float | None = None) -> None:
    """Move the next poll of a watch that was not claimed. The caller schedules the wake-up, as after `finish`.
    `slot_at`: the slot of its host that is reserved for it."""
    # Changes nothing if another thread has claimed or polled the watch since it was read: its time is newer.
    sql = """UPDATE watches SET next_poll_at = ?, wake_at = ?, slot_at = ?
        WHERE id = ? AND next_poll_at = ? AND lease_token IS NULL"""
    run(sql, until, until + GRACE_SECONDS, slot_at, watch.id, watch.next_poll_at)


def postpone_all(ids: Sequence[int], until: float) -> None:
    """Watches that wait for a read in which another one includes them: due only if that read does not happen."""
    for chunk in chunks(ids):
        sql = f"""UPDATE watches SET next_poll_at = ?, wake_at = ? WHERE id IN ({marks(chunk)})
            AND next_poll_at < ? AND lease_token IS NULL"""
        run(sql, until, until + GRACE_SECONDS, *chunk, until)


def extend_lease(watch: Watch, until: float) -> bool:
    """False: another thread holds the watch now, or it was paused meanwhile, and what is read will not be stored."""
    # `wake_at` moves with the lease, or the maintenance loop would wake a watch that is being read.
    sql = "UPDATE watches SET lease_until = ?, wake_at = ? WHERE id = ? AND lease_token = ? AND state = 'active'"
    return bool(changed(sql, until, until, watch.id, watch.lease_token))


def lease_is_held(watch: Watch) -> bool:
    """False: the lease expired, and another thread may have polled the watch meanwhile."""
    return bool(fetch("SELECT 1 FROM watches WHERE id = ? AND lease_token = ?", watch.id, watch.lease_token))


def finish(watch: Watch, next_poll_at: float, **changes: Any) -> bool:
    """Release the lease with what the poll found. False: it was lost.

    The poll schedules its successor in the queue; `wake_at` is when the maintenance loop repeats a lost wake-up.
    """
    wake_at = next_poll_at + GRACE_SECONDS
    changes |= {"next_poll_at": next_poll_at, "wake_at": wake_at, "lease_token": None, "lease_until": None}
    assigned = ", ".join(f"{name} = ?" for name in changes)
    # The token is new for every claim: a thread whose lease expired cannot overwrite the result of the next holder.
    sql = f"UPDATE watches SET {assigned} WHERE id = ? AND lease_token = ?"
    return bool(changed(sql, *changes.values(), watch.id, watch.lease_token))


def of_source(source: str, *, paused: bool = False) -> list[Watch]:
    """Active ones; with `paused`, paused ones, too."""
    states = ("active", "paused") if paused else ("active",)
    return list(Watch.select().where((Watch.source == source) & Watch.state.in_(states)).order_by(Watch.id))


def active_of(source: str, ref: str) -> Watch | None:
    found: Watch | None = Watch.get_or_none(source=source, ref=ref, state="active")
    return found


def make_due(watch_id: int, at: float) -> bool:
    """Due at this time, if it would be due later. False: it is due by then, not active, or being read."""
    sql = (
        "UPDATE watches SET next_poll_at = ?, wake_at = ? "
        "WHERE id = ? AND state = 'active' AND lease_token IS NULL AND next_poll_at > ?"
    )
    return bool(changed(sql, at, at, watch_id, at))


def active() -> list[Watch]:
    return list(Watch.select().where(Watch.state == "active").order_by(Watch.source, Watch.id))


def find(watch_id: int) -> Watch | None:
    found: Watch | None = Watch.get_or_none(id=watch_id)
    return found


def routing_of(watch_id: int) -> WatchRouting:
    """Also of a removed watch: its items in the inbox are still handled."""
    return fetch_all(WatchRouting, f"SELECT {columns(WatchRouting)} FROM watches WHERE id = ?", watch_id)[0]


def schedule() -> list[WatchTimes]:
    """Every active watch. Health checks, which come often, use csi.store.queries.watch_survey."""
    return fetch_all(WatchTimes, f"SELECT {TIMES} FROM watches WHERE state = 'active' ORDER BY id")


def times_of(ids: Sequence[int]) -> list[WatchTimes]:
    """Those that exist, in the order of their ids."""
    return fetch_all(WatchTimes, f"SELECT {TIMES} FROM watches WHERE id IN ({marks(ids)}) ORDER BY id", *ids)


def active_count() -> int:
    return number("SELECT COUNT(*) FROM watches WHERE state = 'active'")


def is_host_in_use(host: str) -> bool:
    """Whether an active watch is read from this host."""
    return bool(fetch("SELECT 1 FROM watches WHERE host = ? AND state = 'active' LIMIT 1", host))


def reads_of_hosts() -> list[tuple[str, int, float]]:
    """By host, its active watches, and how many reads a second their intervals want."""
    sql = """SELECT host, COUNT(*), SUM(1.0 / interval_seconds) FROM watches
        WHERE state = 'active' AND host IS NOT NULL GROUP BY host"""
    return [(host, count, float(rate)) for host, count, rate in fetch(sql)]


def untracked(source: str, limit: int) -> list[tuple[str, str | None]]:
    """Ref and name of active watches of channels that are not in the catalogue."""
    sql = """SELECT w.ref, w.name FROM watches w WHERE w.source = ? AND w.state = 'active' AND w.ref LIKE ?
        AND NOT EXISTS (SELECT 1 FROM channels c WHERE c.id = w.ref) ORDER BY w.id LIMIT ?"""
    return [(ref, name) for ref, name in fetch(sql, source, "UC%", limit)]


def find_id(source: str, ref: str) -> int | None:
    """Also of a removed watch: its items may still be handled."""
    return number("SELECT id FROM watches WHERE source = ? AND ref = ?", source, ref) or None
