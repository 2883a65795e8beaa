"""Problems of delivery: receivers that fail, pauses, certificates, and a backlog that grows. Pure rules over facts."""

from collections.abc import Iterator, Mapping, Sequence

from csi import clock
from csi.emitter.failure_cause import failure_cause
from csi.status.destinations import DestinationState
from csi.status.facts import SystemFacts
from csi.status.problems import Problem
from csi.store.backlog_samples import BacklogSample

FAILING_SECONDS = 60.0
"""Failures in a row for this long are a problem, also while the circuit breaker is closed."""

DAY = 86_400.0
CERTIFICATE_DAYS, CERTIFICATE_LAST_DAYS = 14, 2
"""Below the first number of days left the operator is notified; below the second it is a fault."""

BACKLOG_SECONDS = 1800.0
"""PRD §6.1: a standard event is delivered within half an hour."""
GROWING_SECONDS = 600.0
RATE_SECONDS = 120.0
"""The rate of delivery is not judged from less time than this."""
FEW_EVENTS = 20
"""A backlog below this number is not judged: a single event that waits is reported by its age."""


def problems(facts: SystemFacts) -> Iterator[Problem]:
    if facts.delivery_is_on:
        for one in facts.destinations:
            if one.row.paused_reason is not None:
                yield _paused(one, facts)
            elif is_failing(one, facts.now):
                yield _away(one, facts)
            elif one.state != "throttled":
                yield from _growing(one, facts)
            if one.row.certificate_expires_at is not None:
                yield from _certificate(one, one.row.certificate_expires_at, facts.now)
    elif facts.oldest_pending is not None:
        yield Problem(
            *("delivery_off", "delivery", "degraded", "delivery is switched off (features.delivery), and events wait"),
            effect="no event is sent",
            remedy="set `features.delivery: true` and reload the worker: `systemctl reload csi-worker`",
            since=max(facts.oldest_pending, facts.delivery_off_since or 0.0),
            fails=("alert",),
            events=facts.waiting(),
        )
    if facts.delivery_is_on and facts.oldest_pending is not None and facts.now - facts.oldest_pending > BACKLOG_SECONDS:
        minutes = (facts.now - facts.oldest_pending) / 60
        what = f"the oldest undelivered event was first seen {minutes:,.0f} minutes ago"
        effect = "receivers get events late"
        yield Problem(
            *("backlog_old", "events", "degraded", what, effect, "`csi status` shows the reason"),
            facts.oldest_pending,
            fails=("alert",),
        )


def _paused(one: DestinationState, facts: SystemFacts) -> Problem:
    """A notification only while events wait: then the pause may have been forgotten."""
    waiting, paused_at = facts.waiting(one.name), one.row.paused_at
    since = max(paused_at or 0.0, facts.oldest_pending or 0.0) if waiting else paused_at
    return Problem(
        *("destination_paused", one.name, "degraded", f"delivery to {one.name} is paused by the operator"),
        effect="its events stay pending",
        remedy=f"`csi delivery resume --destination {one.name}`",
        since=since,
        fails=("ready", "alert") if waiting else ("ready",),
        events=waiting,
    )


def is_failing(one: DestinationState, now: float) -> bool:
    """The circuit is open, or nothing has succeeded for a while after the first failure."""
    since = one.row.failing_since
    return one.row.circuit != "closed" or (since is not None and now - since >= FAILING_SECONDS)


def _away(one: DestinationState, facts: SystemFacts) -> Problem:
    row, is_open = one.row, one.row.circuit != "closed"
    reason = row.reason if is_open else row.last_error
    cause = failure_cause(reason)
    is_throttled = one.state == "throttled" and not is_open
    if is_open:
        what = f"the circuit breaker of destination {one.name} is open"
        effect = "its events wait; those that became dead letters "
        if facts.auto_redrive:
            effect += "are sent again by themselves when it accepts one"
        else:
            effect += "wait for a replay (dlq.auto_redrive is off)"
    elif is_throttled:
        what = f"the receiver of destination {one.name} asks us to wait"
        effect = "its events wait"
    else:
        what = f"the receiver of destination {one.name} fails"
        effect = "its events are tried again and wait"
    return Problem(
        *("receiver_away", one.name, "degraded", what),
        effect=effect,
        remedy=f"{cause.remedy}; then `csi delivery test --destination {one.name}`; {_next_request(one)}",
        since=row.failing_since or row.opened_at,
        fails=("alert",) if is_throttled else ("ready", "alert"),
        cause=cause.words if reason else None,
        is_proven=cause.is_proven and is_open,
        events=facts.affected(one.name),
        section=cause.runbook,
    )


def of_failing_receivers(facts: SystemFacts, by_destination: Mapping[str, int]) -> int:
    """Of these dead letters, whose cause is the receiver, those of receivers that fail now: part of their problem."""
    return sum(by_destination.get(one.name, 0) for one in facts.destinations if is_failing(one, facts.now))


def _next_request(one: DestinationState) -> str:
    """What is sent next."""
    if one.state == "throttled" and one.row.throttled_until is not None:
        at = clock.iso(one.row.throttled_until)
        return f"the next request is sent at {at}; `csi delivery resume --destination {one.name}` sends it at once"
    if one.canary is not None and one.canary.state == "sending":
        return f"{one.canary.batch_id} is being sent"
    return "a probe is sent at least every 20 s"


# ── certificates ────────────────────────────────────────────────────────────────────────────────────────


def certificate_text(expires_at: float, now: float) -> str:
    """`expires in 3 days, on 2026-08-01`."""
    left, date = expires_at - now, clock.iso(expires_at)[:10]
    if left <= 0:
        return f"expired on {date}"
    days = int(left // DAY)
    return f"expires in {f'{days} days' if days > 1 else '1 day' if days else 'less than a day'}, on {date}"


def _certificate(one: DestinationState, expires_at: float, now: float) -> Iterator[Problem]:
    left = expires_at - now
    if left >= CERTIFICATE_DAYS * DAY:
        return
    is_last = left < CERTIFICATE_LAST_DAYS * DAY
    yield Problem(
        "certificate_expiring",
        one.name,
        "degraded" if is_last else "notice",
        f"the certificate of destination {one.name} {certificate_text(expires_at, now)}",
        "after that no event can be delivered to it",
        f"renew the receiver's certificate; then `csi delivery test --destination {one.name}`",
        fails=("alert",),
        is_proven=True,
        revision=int(is_last),
    )


# ── backlog ─────────────────────────────────────────────────────────────────────────────────────────────


def _growing(one: DestinationState, facts: SystemFacts) -> Iterator[Problem]:
    run = waiting_run([sample for sample in facts.backlog_samples if sample.destination == one.name])
    if not run or run[-1].due < FEW_EVENTS:
        return
    now, lasts = run[-1].due, run[-1].taken_at - run[0].taken_at
    rate = sum(sample.delivered for sample in run[1:]) / lasts if lasts else 0.0
    if lasts >= GROWING_SECONDS and grows(run):
        what = f"the backlog of destination {one.name} has grown for {lasts / 60:.0f} minutes"
    elif lasts >= RATE_SECONDS and now > rate * BACKLOG_SECONDS:
        what = f"the backlog of destination {one.name} takes more than {BACKLOG_SECONDS / 60:.0f} minutes to drain"
    else:
        return
    yield Problem(
        *("backlog_growing", one.name, "degraded", what, "receivers get events late"),
        remedy="find out why the receiver is slow; more at once: `delivery.max_concurrent_requests`, larger batches: "
        "`delivery.max_events_per_request`; `csi status` shows the backlog",
        since=run[0].taken_at,
        fails=("alert",),
        cause=f"{now:,} events are due, and the receiver accepts {rate * 60:,.0f} a minute",
        events=run[-1].waiting,
    )


def waiting_run(samples: Sequence[BacklogSample]) -> list[BacklogSample]:
    """The newest samples in a row with events that are due."""
    run: list[BacklogSample] = []
    for sample in reversed(samples):
        if not sample.due:
            break
        run.append(sample)
    return run[::-1]


def grows(run: Sequence[BacklogSample]) -> bool:
    """More is due now than ten and than five minutes ago."""
    last = run[-1]
    earlier = [
        next(one for one in reversed(run) if one.taken_at <= last.taken_at - seconds)
        for seconds in (GROWING_SECONDS / 2, GROWING_SECONDS)
    ]
    return all(one.due < last.due for one in earlier)
