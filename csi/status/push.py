"""Push as operators see it: subscriptions with their watches, senders, messages that failed, and their problems."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from csi.runtime import Runtime
from csi.scheduling.watch_health import watch_name
from csi.status.problems import Problem
from csi.store import inbound_endpoints, inbound_messages, subscriptions, watches
from csi.store.inbound_endpoints import Endpoint
from csi.store.inbound_messages import FailedMessages
from csi.store.subscriptions import Subscription

LAPSED_SECONDS = 3600.0
"""A subscription may fail for so long before it is a problem: hubs fail for minutes, and polling continues."""
REFUSED = 5
"""Fewer messages with a wrong signature in a row may be strangers' attempts."""
NAMES = 5


@dataclass(frozen=True)
class WatchSubscription:
    """A subscription and the watch that it belongs to."""

    row: Subscription
    source: str
    watch: str


@dataclass(frozen=True)
class PushFacts:
    """What the rules need, and what `csi inbound list` shows."""

    subscriptions: tuple[WatchSubscription, ...] = ()
    senders: tuple[Endpoint, ...] = ()
    failed: tuple[FailedMessages, ...] = ()


def push_facts(rt: Runtime) -> PushFacts:
    rows = [(row, watches.find(row.watch_id)) for row in subscriptions.every() if row.state != "ended"]
    return PushFacts(
        tuple(
            WatchSubscription(row, watch.source, watch_name(watch.name, watch.ref))
            if watch
            else WatchSubscription(row, "", "")
            for row, watch in rows
        ),
        tuple(inbound_endpoints.every()),
        tuple(inbound_messages.failed()),
    )


def problems(facts: PushFacts, now: float) -> Iterator[Problem]:
    yield from _not_subscribed(facts.subscriptions, now)
    for one in facts.senders:
        if one.refused >= REFUSED:
            yield Problem(
                *("inbound_refused", one.name, "degraded"),
                f"{one.refused:,} messages of {one.name} in a row were refused",
                "nothing of this sender is taken over",
                f"compare its secret and both clocks; `csi inbound test {one.name}` prints a request that is accepted",
                since=one.refused_since,
                fails=("alert",),
                cause=(one.last_refusal or "").replace("_", " ") or None,
            )
    for group in facts.failed:
        yield Problem(
            *("inbound_failed", group.sender, "degraded"),
            f"{group.messages:,} messages of {group.sender} could not be handled",
            "their items are not delivered",
            f"`csi inbound messages --sender {group.sender} --state failed` says why; after the cause is removed, "
            f"`csi inbound replay --failed --sender {group.sender}`",
            since=group.since,
            fails=("alert",),
        )


def _not_subscribed(found: Sequence[WatchSubscription], now: float) -> Iterator[Problem]:
    """A notice: polling continues, so that items come later and are not lost."""
    failing = [
        one
        for one in found
        if one.row.kind == "websub" and one.row.failures and now - (one.row.failing_since or now) >= LAPSED_SECONDS
    ]
    if not failing:
        return
    names = ", ".join(one.watch for one in failing[:NAMES]) + (" and more" if len(failing) > NAMES else "")
    number = "1 watch is" if len(failing) == 1 else f"{len(failing):,} watches are"
    yield Problem(
        *("push_failing", "hub", "notice", f"{number} not subscribed at the hub: {names}"),
        "their new items are found by polling, which continues at its interval",
        "none, if the hub has an outage: CSI asks again every hour; otherwise check that the hub reaches "
        "`callback_url`: `csi inbound list`",
        since=min(one.row.failing_since or now for one in failing),
        cause=failing[0].row.last_error,
    )
