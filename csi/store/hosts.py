"""Hosts that watches are polled from: pauses after rate limiting, and outages. Kept across restarts."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from peewee import Case, fn

from csi.store import watches
from csi.store.models import Host, Watch, database

LONGEST_PAUSE = 3600.0
NOTE_SECONDS = 5.0
"""Successes and failures are stored at most this often: a poll should be mostly reads."""


@dataclass(frozen=True)
class Outage:
    """An outage that is over."""

    seconds: float
    watches: int


def find(host: str) -> Host | None:
    """None: no watch was polled from this host yet."""
    sql = "SELECT * FROM hosts WHERE host = ?".replace("?", database.param)
    return next(iter(list(Host.raw(sql, host))), None)


def get(host: str) -> Host:
    found = find(host)
    if found is None:
        Host.insert(host=host).on_conflict_ignore().execute()
        found = Host.get_by_id(host)
    return found


def rate_limited_or_down(now: float) -> list[Host]:
    """Hosts that are paused or in an outage at this moment."""
    paused = (Host.paused_until > now) & (Host.paused_until <= now + LONGEST_PAUSE)
    return list(Host.select().where(paused | Host.outage_since.is_null(False)).order_by(Host.host))


def paused_until(host: Host | None, now: float) -> float | None:
    """None: the host may be polled. A pause longer than LONGEST_PAUSE was written with a wrong clock and is ignored."""
    until = host.paused_until if host is not None else None
    return until if until is not None and now < until <= now + LONGEST_PAUSE else None


def pause(host: Host, now: float, until: float, reason: str) -> bool:
    """Pause polling of this host until then. Responses that arrive during a pause extend it to the latest end.
    False: it was paused for as long already."""
    again = paused_until(host, now) is not None
    longer = Host.paused_until.is_null() | (Host.paused_until < until) | (Host.paused_until > now + LONGEST_PAUSE)
    changes = {"paused_until": until, "pause_reason": reason[: watches.ERROR_TEXT]}
    if not again:
        changes["pauses"] = host.pauses + 1
    return bool(Host.update(**changes).where((Host.host == host.host) & longer).execute())


def note_ok(host: Host, now: float) -> None:
    """A poll of this host succeeded. A pause that has ended is cleared."""
    changes: dict[str, Any] = {}
    if _is_old(host.last_ok_at, now):
        changes["last_ok_at"] = now
    if host.pauses and paused_until(host, now) is None:
        changes |= {"pauses": 0, "paused_until": None, "pause_reason": None}
    if changes:
        _change(host, **changes)


def note_error(host: Host, now: float) -> None:
    if _is_old(host.last_error_at, now):
        _change(host, last_error_at=now)


def count(host: str, kinds: Sequence[str], since: float, *, but: int = 0) -> tuple[int, int]:
    """Active watches of this host except `but`, and how many of them failed since then with one of these error kinds.
    Watches that fail alone (suspect, dead) are in neither number."""
    failed = (Watch.errors > 0) & Watch.error_kind.in_(kinds) & ((Watch.last_poll_at >= since) | _in_outage())
    ours = (Watch.host == host) & (Watch.state == "active") & Watch.health.not_in(("suspect", "dead"))
    ours &= Watch.id != but
    counted: Any = Watch.select(fn.COUNT(Watch.id), fn.SUM(Case(None, [(failed, 1)], 0))).where(ours).tuples().get()
    return int(counted[0]), int(counted[1] or 0)


def begin_outage(host: Host, now: float, reason: str, failing: int) -> bool:
    """False: another thread has begun it already."""
    first = Host.update(
        outage_since=now, outage_reason=reason[: watches.ERROR_TEXT], outage_watches=failing, recovering_at=None
    ).where((Host.host == host.host) & Host.outage_since.is_null())
    return bool(first.execute())


def widen_outage(host: Host, failing: int) -> None:
    """Record the largest number of watches that failed at once."""
    if failing <= host.outage_watches:
        return
    Host.update(outage_watches=failing).where((Host.host == host.host) & (Host.outage_watches < failing)).execute()


def end_outage(host: Host, now: float) -> Outage | None:
    """None: another thread has ended it already."""
    ended = Host.update(outage_since=None, outage_reason=None, outage_watches=0, recovering_at=None).where(
        (Host.host == host.host) & (Host.outage_since == host.outage_since)
    )
    if host.outage_since is None or not ended.execute():
        return None
    return Outage(max(now - host.outage_since, 0.0), host.outage_watches)


def note_recovery(host: Host, now: float, every: float) -> bool:
    """Whether to poll all its watches again: at the first success, then at most once in `every` seconds."""
    rested = Host.recovering_at.is_null() | (Host.recovering_at <= now - every) | (Host.recovering_at > now)
    return bool(Host.update(recovering_at=now).where((Host.host == host.host) & rested).execute())


def recall(host: str, now: float, times: Callable[[int, float], list[float]], rng: random.Random) -> int:
    """Poll the watches that waited for this host at these times, in random order, earlier than they were due."""
    waiting = (Watch.host == host) & (Watch.state == "active") & _in_outage() & Watch.lease_token.is_null()
    ids = [row.id for row in Watch.select(Watch.id).where(waiting).order_by(Watch.id)]
    rng.shuffle(ids)
    recalled = 0
    for watch_id, at in zip(ids, times(len(ids), now), strict=True):
        later = (Watch.id == watch_id) & (Watch.next_poll_at > at) & Watch.lease_token.is_null()
        recalled += Watch.update(next_poll_at=at, wake_at=at).where(later).execute()
    return recalled


def _is_old(moment: float | None, now: float) -> bool:
    return moment is None or not 0 <= now - moment < NOTE_SECONDS


def _in_outage() -> Any:
    return Watch.health == "outage"


def _change(host: Host, **changes: Any) -> None:
    Host.update(**changes).where(Host.host == host.host).execute()
