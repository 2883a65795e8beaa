"""What pushes announced against what reads listed: confirming reads, misses, and polling that is rarer or not.

A push never makes an event of a feed's item: it makes the watch due, and the read does. The rows of `pushed_items`
remember what is to be confirmed; the maintenance loop finds them.
"""

from collections.abc import Iterable, Mapping

from csi.logs import log
from csi.pipeline import quota_schedule
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.scheduling import push_rules
from csi.store import counters, dedupe, subscriptions, watches
from csi.store.db import writing
from csi.store.models import Watch
from csi.store.subscriptions import Subscription


def note_push(rt: Runtime, subscription: Subscription, keys: Iterable[str], now: float) -> list[str]:
    """Record what a push announced. Returns the keys that no read has listed yet. Part of the caller's transaction."""
    keys = list(keys)
    known, tracked = dedupe.known(keys), subscriptions.items_of(subscription.id, keys)
    found = [item for item in tracked.values() if item.state == "found"]
    subscriptions.drop_items([item.id for item in found])
    # A known item without a row was found long before, or an edit was announced.
    new = [key for key in keys if key not in known and key not in tracked]
    if subscription.kind == "websub":
        subscriptions.note_items(subscription.id, "pushed", dict.fromkeys(new, now), now)
    subscriptions.count(subscription.id, pushes=1, near_misses=len(found))
    subscriptions.change(subscription.id, last_push_at=now)
    _count(rt, subscription, push=1, near_miss=len(found))
    return new


def confirm(rt: Runtime, subscription: Subscription, number: int) -> None:
    """So many announced items were listed by a read, or came complete with the push."""
    if number:
        subscriptions.count(subscription.id, confirmed=number, unbroken=number)
        _count(rt, subscription, confirmed=number)
        if subscription.unbroken + number >= push_rules.UNBROKEN and not subscription.stretched:
            subscriptions.change(subscription.id, stretched=True)


def after_read(rt: Runtime, watch: Watch, listed: Iterable[str], stored: Mapping[str, float], now: float) -> None:
    """`listed`: all keys of the read; `stored`: those that are new, with their times. Part of the poll's
    transaction."""
    subscription = subscriptions.of_watch(watch.id)
    if subscription is None:
        return
    tracked = subscriptions.items_of(subscription.id, list(listed))
    confirmed = [item for item in tracked.values() if item.state == "pushed"]
    subscriptions.drop_items([item.id for item in confirmed])
    confirm(rt, subscription, len(confirmed))
    since = subscription.verified_at
    if since is None or watch.first_read_at is None or not _is_pushed(subscription, now):
        return
    # Published before the subscription: no push can be expected.
    wait = push_rules.MISS_SECONDS[subscription.kind]
    unannounced = {
        key: max(at, now) + wait for key, at in stored.items() if key not in tracked and since <= at <= now + wait
    }
    subscriptions.note_items(subscription.id, "found", unannounced, now)


def next_poll(rt: Runtime, watch: Watch, at: float, now: float) -> float:
    """Later than `at` while the pushes of this watch are complete."""
    push = rt.settings.sources[watch.source].websub
    if push is None or not push.stretch:
        return at
    subscription = subscriptions.of_watch(watch.id)
    is_complete = subscription is not None and subscription.stretched and _is_pushed(subscription, now)
    if not is_complete:
        return at
    # Health checks and lists show the interval in force.
    planned = watch.planned_interval or watch.interval_seconds
    quota_schedule.set_planned_interval(watch, push_rules.stretched(0.0, planned))
    return push_rules.stretched(now, at)


def due_checks(rt: Runtime) -> list[Wake]:
    """Reads that confirm pushes, and items that no push announced in time."""
    now = rt.now()
    items = subscriptions.due_items(now)
    if not items:
        return []
    wakes = []
    with writing():
        for item in items:
            subscription = subscriptions.find(item.subscription_id)
            if subscription is None or item.state == "found":
                subscriptions.drop_items([item.id])
                if subscription is not None:
                    _miss(rt, subscription, now)
                continue
            if item.checks >= len(push_rules.CHECKS):
                # No check confirmed the item: it is not listed, or a filter of the source hides it.
                subscriptions.drop_items([item.id])
                continue
            later = push_rules.next_check(item.since, item.checks + 1)
            # The last check has a minute to list the item.
            subscriptions.postpone_item(item.id, item.checks + 1, item.due_at + 60.0 if later is None else later)
            if watches.make_due(subscription.watch_id, now):
                wakes.append(Wake("poll", subscription.watch_id))
    return wakes


def _miss(rt: Runtime, subscription: Subscription, now: float) -> None:
    subscriptions.count(subscription.id, misses=1)
    subscriptions.change(subscription.id, unbroken=0, stretched=False)
    _count(rt, subscription, miss=1)
    watch = watches.find(subscription.watch_id)
    if watch is not None and subscription.stretched:
        log.warning("a push was missed; polling is back at its interval", source=watch.source, watch=watch.ref)
        watches.make_due(watch.id, now + watch.interval_seconds)


def _is_pushed(subscription: Subscription, now: float) -> bool:
    """The lease holds; Composio has none."""
    return subscription.verified_at is not None and (subscription.expires_at is None or subscription.expires_at > now)


def _count(rt: Runtime, subscription: Subscription, **results: int) -> None:
    watch = watches.find(subscription.watch_id)
    source = watch.source if watch is not None else ""
    counters.add_all(counters.Count("pushes", amount, source, result) for result, amount in results.items())
