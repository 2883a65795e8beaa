"""Push subscriptions of watches, and the items that a push announced or should have announced.

`pending` → `requested` (the hub accepted) → `verified` → `requested` …; `failing` between two attempts; `ending` →
`ended` when the watch is not pushed any more. A watch that Composio pushes to is `verified` from its first message.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from csi.store.db import changed, column, columns, fetch, fetch_all, fetch_one, marks, new_token, run

LEASE_SECONDS = 45.0
MAX_WAITING = 50
"""Announced items of one subscription that wait for a read at once: the same reads confirm further ones."""


@dataclass(frozen=True)
class Subscription:
    """One row."""

    id: int
    watch_id: int
    kind: str
    hub_url: str | None
    topic: str | None
    callback_digest: str | None
    state: str
    lease_seconds: float | None
    requested_at: float | None
    verified_at: float | None
    expires_at: float | None
    due_at: float | None
    failures: int
    failing_since: float | None
    last_error: str | None
    last_push_at: float | None
    pushes: int
    confirmed: int
    misses: int
    near_misses: int
    unbroken: int
    stretched: bool
    created_at: float
    lease_token: str | None


@dataclass(frozen=True)
class PushedItem:
    """An item that a push announced and no read listed yet (`pushed`), or that a read found before any push
    (`found`)."""

    id: int
    subscription_id: int
    item_key: str
    state: str
    since: float
    checks: int
    due_at: float


_SELECT = f"SELECT {columns(Subscription)} FROM subscriptions"


def find(subscription_id: int) -> Subscription | None:
    return fetch_one(Subscription, f"{_SELECT} WHERE id = ?", subscription_id)


def of_watch(watch_id: int) -> Subscription | None:
    return fetch_one(Subscription, f"{_SELECT} WHERE watch_id = ?", watch_id)


def every() -> list[Subscription]:
    return fetch_all(Subscription, f"{_SELECT} ORDER BY id")


def add(watch_id: int, kind: str, now: float, **values: Any) -> None:
    """Nothing happens where the watch has a subscription."""
    row = {"watch_id": watch_id, "kind": kind, "created_at": now, **values}
    sql = f"INSERT INTO subscriptions ({', '.join(row)}) VALUES ({marks(list(row))}) ON CONFLICT (watch_id) DO NOTHING"
    run(sql, *row.values())


def change(subscription_id: int, **values: Any) -> None:
    assigned = ", ".join(f"{name} = ?" for name in values)
    run(f"UPDATE subscriptions SET {assigned} WHERE id = ?", *values.values(), subscription_id)


def due(now: float) -> list[int]:
    """The longest waiting subscription of each hub whose next request is due: bursts are dropped by hubs."""
    sql = (
        "SELECT id, hub_url FROM subscriptions WHERE due_at <= ? AND (lease_until IS NULL OR lease_until < ?) "
        "ORDER BY due_at, id LIMIT 500"
    )
    first: dict[str, int] = {}
    for number, hub in fetch(sql, now, now):
        first.setdefault(hub or "", number)
    return list(first.values())


def claim(subscription_id: int, now: float) -> Subscription | None:
    """None: not due, or another thread has it. Committed before the request: a crash leaves a lease that expires."""
    sql = (
        "UPDATE subscriptions SET lease_token = ?, lease_until = ? WHERE id = ? AND due_at <= ? "
        f"AND (lease_until IS NULL OR lease_until < ?) RETURNING {columns(Subscription)}"
    )
    return fetch_one(Subscription, sql, new_token(), now + LEASE_SECONDS, subscription_id, now, now)


def settle(claimed: Subscription, *, was: Collection[str], **values: Any) -> None:
    """Release the lease with the result of the request, unless the state is another one by now: the hub may have
    verified the subscription before it answered. Then only the lease is released."""
    assigned = ", ".join(f"{name} = ?" for name in values)
    sql = f"UPDATE subscriptions SET {assigned} WHERE id = ? AND lease_token = ? AND state IN ({marks(list(was))})"
    run(sql, *values.values(), claimed.id, claimed.lease_token, *was)
    release(claimed)


def release(claimed: Subscription) -> None:
    sql = "UPDATE subscriptions SET lease_token = NULL, lease_until = NULL WHERE id = ? AND lease_token = ?"
    run(sql, claimed.id, claimed.lease_token)


def verify(subscription_id: int, *, lease: float, renew_at: float, now: float) -> bool:
    """The hub granted a lease. `verified_at` is since when there was no gap between two leases.

    False: the subscription is not wanted."""
    sql = (
        "UPDATE subscriptions SET state = 'verified', lease_seconds = ?, "
        "verified_at = CASE WHEN expires_at > ? THEN COALESCE(verified_at, ?) ELSE ? END, expires_at = ?, due_at = ?, "
        "failures = 0, failing_since = NULL, last_error = NULL "
        "WHERE id = ? AND state IN ('requested', 'verified', 'failing')"
    )
    return bool(changed(sql, lease, now, now, now, now + lease, renew_at, subscription_id))


def note_error(subscription_id: int, error: str, now: float) -> None:
    sql = "UPDATE subscriptions SET last_error = ?, failing_since = COALESCE(failing_since, ?) WHERE id = ?"
    run(sql, error[:300], now, subscription_id)


# ── items ───────────────────────────────────────────────────────────────────────────────────────────────


def items_of(subscription_id: int, keys: Sequence[str]) -> dict[str, PushedItem]:
    if not keys:
        return {}
    sql = f"SELECT {columns(PushedItem)} FROM pushed_items WHERE subscription_id = ? AND item_key IN ({marks(keys)})"
    return {item.item_key: item for item in fetch_all(PushedItem, sql, subscription_id, *keys)}


def note_items(subscription_id: int, state: str, due: Mapping[str, float], now: float) -> None:
    """Remember these keys, each with the time of its next check."""
    sql = "SELECT COUNT(*) FROM pushed_items WHERE subscription_id = ?"
    room = MAX_WAITING - column(sql, subscription_id)[0]
    sql = (
        "INSERT INTO pushed_items (subscription_id, item_key, state, since, due_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (subscription_id, item_key) DO NOTHING"
    )
    for key, due_at in list(due.items())[: max(room, 0)]:
        run(sql, subscription_id, key, state, now, due_at)


def drop_items(ids: Sequence[int]) -> None:
    if ids:
        run(f"DELETE FROM pushed_items WHERE id IN ({marks(ids)})", *ids)


def due_items(now: float, limit: int = 200) -> list[PushedItem]:
    sql = f"SELECT {columns(PushedItem)} FROM pushed_items WHERE due_at <= ? ORDER BY due_at LIMIT ?"
    return fetch_all(PushedItem, sql, now, limit)


def postpone_item(item_id: int, checks: int, due_at: float) -> None:
    run("UPDATE pushed_items SET checks = ?, due_at = ? WHERE id = ?", checks, due_at, item_id)


def is_awaited(watch_id: int) -> bool:
    """A push announced an item of this watch that no read has listed yet."""
    sql = (
        "SELECT 1 FROM pushed_items p JOIN subscriptions s ON s.id = p.subscription_id "
        "WHERE s.watch_id = ? AND p.state = 'pushed' LIMIT 1"
    )
    return bool(fetch(sql, watch_id))


def count(subscription_id: int, **more: int) -> None:
    """Add to the counters of a subscription."""
    assigned = ", ".join(f"{name} = {name} + ?" for name in more)
    run(f"UPDATE subscriptions SET {assigned} WHERE id = ?", *more.values(), subscription_id)
