"""What is waiting, and the one reason for it: for the status page, the tasks, the timeline and the dashboard."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from csi import clock
from csi.config.delivery_settings import TierSettings
from csi.emitter.destination import LANES
from csi.emitter.verdict import RETRY_DELAYS
from csi.logs import redact
from csi.runtime import Runtime
from csi.status.destinations import DestinationState, all_destinations, destination_state_of, throttled_text
from csi.status.worker import WorkerStatus, worker_status
from csi.store import hosts, outbox
from csi.store.queries import backlog_rows
from csi.store.queries.backlog_rows import UnsettledBatch
from csi.store.queries.timeline_rows import BatchRow

ATTEMPTS = len(RETRY_DELAYS) + 1


@dataclass(frozen=True)
class Reason:
    """Why something waits. `until` None: for nothing that has a time."""

    text: str
    until: float | None = None
    is_problem: bool = False
    """It does not pass on its own schedule: a failure, or a pause by the operator."""

    def timed(self, now: float) -> str:
        """With the time at which the wait ends, where there is one."""
        if self.until is None or self.until <= now:
            return self.text
        return f"{self.text} (until {clock.iso(self.until)})"


@dataclass(frozen=True)
class BacklogGroup:
    """A number of rows of one kind that wait for one reason."""

    step: str
    what: str
    count: int
    reason: Reason
    since: float | None = None

    def words(self, now: float) -> str:
        """`urgent events to default: 12; the circuit breaker is open: connection refused (until 2026-…)`."""
        return f"{self.what}: {self.count:,}; {self.reason.timed(now)}"


@dataclass(frozen=True)
class PendingPlace:
    """Where pending events wait: in one lane of one destination."""

    lane: str
    due_at: float | None
    tier: TierSettings | None = None
    earlier: str | None = None
    """The item or event that has to be sent first, to keep the order of the watch."""


def backlog(rt: Runtime) -> list[BacklogGroup]:
    """Everything that is due or will be, in the order of the pipeline."""
    worker = worker_status(rt)
    found = [*_watches(rt), *_items(), *_events(rt)]
    return [replace(entry, reason=with_worker(entry.reason, worker)) for entry in found]


def queued(entries: Sequence[BacklogGroup]) -> int:
    """Items and events that are not settled."""
    return sum(entry.count for entry in entries if entry.step != "poll")


def backlog_age(oldest_pending: float | None, now: float) -> float:
    """How long the oldest event that is not settled has waited; 0: none waits, or the clock was set back."""
    return 0.0 if oldest_pending is None else max(now - oldest_pending, 0.0)


def pending_by_lane() -> dict[str, int]:
    """Pending events of each lane, over all destinations. Cheaper than the lanes of `all_destinations`: metrics ask
    this at every scrape, also when a receiver was away for days."""
    return {lane: outbox.pending_count(lane) for lane in LANES}


# ── the reason ──────────────────────────────────────────────────────────────────────────────────────────


def with_worker(reason: Reason, worker: WorkerStatus) -> Reason:
    """Nothing moves without a worker: that comes first, before any other reason."""
    if worker.problem is None:
        return reason
    if reason.text.startswith("due; waiting for a free"):  # no thread is free, because there is none
        return Reason(worker.problem, is_problem=True)
    return Reason(f"{worker.problem}; {reason.text}", reason.until, is_problem=True)


def why_blocked(destination: DestinationState, now: float, *, delivery_is_on: bool) -> Reason | None:
    """Why nothing is sent to this destination now; None: events are sent."""
    row, cause = destination.row, redact(destination.cause or "")
    if not delivery_is_on:
        return Reason("delivery is switched off (features.delivery)", is_problem=True)
    if not destination.is_configured:
        return Reason(f"destination {destination.name} is no longer configured", is_problem=True)
    if destination.quiet_until is not None and destination.state != "paused":
        return Reason("quiet hours of this destination", destination.quiet_until)
    match destination.state:
        case "paused":
            return Reason(f"delivery is paused by the operator{_since(row.paused_at)}: {cause}", is_problem=True)
        case "throttled":
            return Reason(throttled_text(cause), row.throttled_until)
        case "circuit_open":
            text = f"the circuit breaker is open{_since(row.opened_at)}: {cause}"
            if (canary := destination.canary) is not None and canary.state == "sending":
                return Reason(f"{text}; {canary.batch_id} is being sent", is_problem=True)
            return Reason(text, row.next_probe_at, is_problem=True)
        case "half_open":
            text = f"the circuit breaker is half-open{_since(row.opened_at)}: {cause}; the next batch is a probe"
            return Reason(text, is_problem=True)
    return None


def why_not_soon(rt: Runtime, destinations: Collection[str]) -> list[str]:
    """Reasons why events that are queued for these destinations now are not sent soon."""
    if not destinations:
        return []
    worker, is_on = worker_status(rt), rt.settings.features.delivery
    reasons = {
        name: why_blocked(destination_state_of(rt, name), rt.now(), delivery_is_on=is_on) for name in destinations
    }
    blocked = [f"{name}: {reason.text}" for name, reason in reasons.items() if reason is not None]
    return [*([worker.problem] if worker.problem else []), *blocked]


def why_pending(destination: DestinationState, place: PendingPlace, now: float, *, delivery_is_on: bool) -> Reason:
    """Why events of a lane are in no batch yet."""
    if blocked := why_blocked(destination, now, delivery_is_on=delivery_is_on):
        return blocked
    if place.earlier is not None:
        return Reason(f"an earlier item of the same watch is sent first: {place.earlier}")
    if place.due_at is not None and place.due_at > now:
        size = place.tier.batch_size if place.tier else 1
        return Reason(f"the batch of lane {place.lane} is filling (up to {size})", place.due_at)
    return Reason(f"due; waiting for a free request slot in lane {place.lane}")


def why_batch_waits(
    destination: DestinationState, batch: UnsettledBatch | BatchRow, now: float, *, delivery_is_on: bool
) -> Reason:
    """Why a batch is not settled yet."""
    if batch.state == "sending":
        return Reason(f"{batch.batch_id} is being sent")
    if blocked := why_blocked(destination, now, delivery_is_on=delivery_is_on):
        return blocked
    if batch.attempts and batch.next_attempt_at > now:
        text = f"attempt {batch.attempts} of {ATTEMPTS} failed; {batch.batch_id} is retried"
        return Reason(text, batch.next_attempt_at)
    if batch.next_attempt_at > now:
        return Reason("another part of a refused batch is sent first", batch.next_attempt_at)
    return Reason(f"{batch.batch_id} is due; waiting for a free request slot")


def _since(moment: float | None) -> str:
    return "" if moment is None else f" since {clock.iso(moment)}"


# ── what waits ──────────────────────────────────────────────────────────────────────────────────────────


def _watches(rt: Runtime) -> Iterator[BacklogGroup]:
    now = rt.now()
    due, oldest = backlog_rows.due_watches(now)
    if due:
        polling = rt.settings.features.polling
        reason = Reason("due; waiting for a free thread") if polling else Reason("polling is switched off", None, True)
        yield BacklogGroup("poll", "watches", due, reason, oldest)
    for host in hosts.rate_limited_or_down(now):
        what = f"watches of {host.host}"
        until = hosts.paused_until(host, now)
        if until is not None:
            text = f"the host rate-limited us; polling is paused: {redact(host.pause_reason or '')}"
            yield BacklogGroup("poll", what, hosts.count(host.host, [], now)[0], Reason(text, until))
        if host.outage_since is not None:
            reason = Reason(f"upstream outage: {redact(host.outage_reason or '')}", is_problem=True)
            yield BacklogGroup("poll", what, host.outage_watches, reason, host.outage_since)


def _items() -> Iterator[BacklogGroup]:
    found = backlog_rows.inbox()
    if found.waiting:
        reason = Reason("due; waiting for a free thread")
        yield BacklogGroup("ingest", "items", found.waiting, reason, found.oldest_at)
    if found.quarantined:
        reason = Reason("processing them ended the worker three times; see their dead letters", is_problem=True)
        yield BacklogGroup("ingest", "quarantined items", found.quarantined, reason)


def _events(rt: Runtime) -> Iterator[BacklogGroup]:
    now, delivery_is_on = rt.now(), rt.settings.features.delivery
    batches = backlog_rows.unsettled_batches()
    for one in all_destinations(rt):
        destination = rt.destinations.get(one.name)
        for lane in one.lanes:
            if lane.pending:
                place = PendingPlace(
                    lane.name, lane.next_due_at, destination.tiers.of(lane.name) if destination else None
                )
                reason = why_pending(one, place, now, delivery_is_on=delivery_is_on)
                what = f"{lane.name} events to {one.name}"
                yield BacklogGroup("flush", what, lane.pending, reason, lane.oldest_seen_at)
        for batch in batches:
            if batch.destination == one.name:
                reason = why_batch_waits(one, batch, now, delivery_is_on=delivery_is_on)
                what = f"events in {batch.batch_id} to {one.name}"
                yield BacklogGroup("deliver", what, batch.size, reason, batch.created_at)
