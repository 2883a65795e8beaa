"""What waits at this moment, and for what: in words, from the rows."""

from collections.abc import Iterator
from dataclasses import dataclass

from csi import clock
from csi.config.settings import TierSettings
from csi.logs import redact
from csi.runtime import Runtime
from csi.status import destinations
from csi.status.destinations import Standing
from csi.store import heartbeats, hosts
from csi.store.queries import backlog
from csi.store.queries.timeline import Lane

WORKER = "worker"
FRESH_SECONDS = 30.0


@dataclass(frozen=True)
class Waiting:
    """A number of rows of one kind, and why they wait. `until` None: for nothing that has a time."""

    step: str
    what: str
    count: int
    why: str
    since: float | None = None
    until: float | None = None


def waiting(rt: Runtime) -> list[Waiting]:
    """Everything that has to happen and has not, in the order of the walk."""
    found = [*_watches(rt), *_items(rt), *_events(rt), *_batches(rt)]
    gone = worker_gone(rt)
    return [_with_reason(one, gone) for one in found] if gone else found


def worker_gone(rt: Runtime) -> str | None:
    """Why nothing moves at all; None: the worker gives signs of life."""
    last = heartbeats.last_beat(WORKER)
    if last is None:
        return "no worker has ever run here"
    age = rt.now() - last
    return None if abs(age) < FRESH_SECONDS else f"the worker gave its last sign of life {age:.0f} s ago"


def _with_reason(one: Waiting, reason: str) -> Waiting:
    return Waiting(one.step, one.what, one.count, f"{reason}; {one.why}", one.since, one.until)


def _watches(rt: Runtime) -> Iterator[Waiting]:
    now = rt.now()
    due, oldest = backlog.due_watches(now)
    if due:
        why = "they are due and wait for a free thread" if rt.settings.features.polling else "polling is switched off"
        yield Waiting("poll", "watches", due, why, since=oldest)
    for host in hosts.troubled(now):
        until = hosts.paused_until(host, now)
        if until is not None:
            why = f"the host asked for patience: {redact(host.pause_reason or '')}"
            yield Waiting("poll", f"watches of {host.host}", hosts.count(host.host, [], now)[0], why, until=until)
        if host.outage_since is not None:
            why = f"the host is in trouble: {redact(host.outage_reason or '')}"
            yield Waiting("poll", f"watches of {host.host}", host.outage_watches, why, since=host.outage_since)


def _items(rt: Runtime) -> Iterator[Waiting]:
    count, oldest = backlog.waiting_items()
    if count:
        yield Waiting("ingest", "items", count, "they were seen and become events in their turn", since=oldest)


def _events(rt: Runtime) -> Iterator[Waiting]:
    for one in destinations.standings(rt):
        for lane in one.lanes:
            if lane.pending:
                yield _lane(rt, one, lane)


def _lane(rt: Runtime, one: Standing, lane: Lane) -> Waiting:
    destination, endpoint = rt.destinations.get(one.name), one.endpoint
    tier = destination.tiers.of(lane.name) if destination else None
    why, until = {
        "held": (f"delivery is paused by command: {redact(endpoint.held or '')}", None),
        "paused": ("the receiver asked for a pause", endpoint.paused_until),
        "away": (f"the receiver is away: {redact(endpoint.reason or '')}", endpoint.next_probe_at),
        "probe": ("the receiver is away; the next event asks whether it is back", None),
    }.get(one.gate) or _turn(rt, lane, tier)
    if not one.is_configured:
        why, until = "this destination is not configured any more", None
    elif not rt.settings.features.delivery:
        why, until = "delivery is switched off (features.delivery)", None
    return Waiting("flush", f"{lane.name} events to {one.name}", lane.pending, why, lane.oldest_seen_at, until)


def _turn(rt: Runtime, lane: Lane, tier: TierSettings | None) -> tuple[str, float | None]:
    due = lane.next_due_at
    if tier is not None and due is not None and due > rt.now() and lane.pending < tier.batch_size:
        return f"for company: a batch leaves with {tier.batch_size} events, or when its time has come", due
    return "in turn: requests before them are under way, or an earlier item of their watch is", None


def _batches(rt: Runtime) -> Iterator[Waiting]:
    now = rt.now()
    for batch in backlog.waiting_batches():
        if batch.attempts:
            why = f"attempt {batch.attempts} failed; the next comes in its time"
        else:
            why = "it is to be sent" if batch.next_attempt_at <= now else "its turn comes after another part's answer"
        what = f"events in {batch.batch_id} to {batch.destination}"
        yield Waiting("deliver", what, batch.size, why, until=batch.next_attempt_at)


def words(one: Waiting, now: float) -> str:
    """`urgent events to default: 12; the receiver is away (until 2026-…)`."""
    until = f" (until {clock.iso(one.until)})" if one.until is not None and one.until > now else ""
    return f"{one.what}: {one.count:,}; {one.why}{until}"
