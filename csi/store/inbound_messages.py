"""Messages that senders pushed to /hooks: stored before they are answered. `new` → `done`, or `failed`."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from csi.store import suspects
from csi.store.db import changed, column, columns, fetch, fetch_all, fetch_one, marks, new_token, number, run

LEASE_SECONDS = 30.0
GRACE_SECONDS = 15.0
"""How long the wake-up of a message may take before the maintenance loop repeats it."""
MAX_CLAIMS = 3
"""A message is failed after its handling ended the process this often."""
MAX_WAITING = 10_000
"""With so many messages that wait for the worker, senders are asked to come back later."""
RESULT_CHARS = 500

Stored = Literal["stored", "repeated", "conflict", "full"]


@dataclass(frozen=True)
class NewMessage:
    """A verified message. `sender` is the name in its address."""

    sender: str
    kind: str
    sender_id: int
    message_id: str
    body: bytes


@dataclass(frozen=True)
class InboundMessage:
    """A row without its body."""

    id: int
    sender: str
    kind: str
    sender_id: int
    message_id: str
    bytes: int
    received_at: float
    state: str
    result: str | None
    settled_at: float | None
    claims: int


@dataclass(frozen=True)
class ClaimedMessage:
    """A message that this thread has claimed."""

    id: int
    sender: str
    kind: str
    sender_id: int
    body: str
    received_at: float
    claims: int
    lease_token: str

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.body)


@dataclass(frozen=True)
class FailedMessages:
    """Messages of one sender that could not be handled."""

    sender: str
    messages: int
    since: float
    result: str | None


def add(new: NewMessage, now: float) -> Stored:
    """Store one message. `repeated`: the same bytes under this id are stored already; `conflict`: other bytes are."""
    if number("SELECT COUNT(*) FROM inbound_messages WHERE state = 'new'") >= MAX_WAITING:
        return "full"
    digest = hashlib.sha256(new.body).hexdigest()
    sql = (
        "INSERT INTO inbound_messages (sender, kind, sender_id, message_id, digest, body, bytes, received_at, wake_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sender, message_id) DO NOTHING RETURNING id"
    )
    body = base64.b64encode(new.body).decode()
    values = (new.sender, new.kind, new.sender_id, new.message_id, digest, body, len(new.body), now, now)
    if column(sql, *values):
        return "stored"
    sql = "SELECT digest FROM inbound_messages WHERE sender = ? AND message_id = ?"
    return "repeated" if column(sql, new.sender, new.message_id) == [digest] else "conflict"


def overdue(now: float, limit: int = 200) -> list[int]:
    """Messages to handle, oldest first. Moves their wake time: each is returned once until then."""
    sql = "SELECT id FROM inbound_messages WHERE state = 'new' AND wake_at <= ? ORDER BY id LIMIT ?"
    ids = column(sql, now, limit)
    if ids:
        sql = f"UPDATE inbound_messages SET wake_at = ? WHERE id IN ({marks(ids)}) AND state = 'new' AND wake_at <= ?"
        run(sql, now + GRACE_SECONDS, *ids, now)
    return ids


def claim(message_id: int, now: float) -> ClaimedMessage | None:
    """None: handled already, another thread does, or another suspect is first. A claim counts when the lease before it
    expired."""
    sql = (
        "UPDATE inbound_messages SET claims = claims + CASE WHEN lease_token IS NULL THEN 0 ELSE 1 END, "
        "lease_token = ?, lease_until = ?, wake_at = ? WHERE id = ? AND state = 'new' "
        f"AND (lease_until IS NULL OR lease_until < ?) RETURNING {columns(ClaimedMessage)}"
    )
    until = now + LEASE_SECONDS
    was_in_two = "SELECT 1 FROM inbound_messages WHERE id = ? AND lease_token IS NOT NULL AND claims > 0"
    if fetch(was_in_two, message_id) and suspects.message_must_wait(message_id, now):
        return None
    return fetch_one(ClaimedMessage, sql, new_token(), until, until, message_id, now)


def settle(message: ClaimedMessage, state: Literal["done", "failed"], result: str, now: float) -> bool:
    """False: the lease was lost, and the next holder settles the message."""
    sql = (
        "UPDATE inbound_messages SET state = ?, result = ?, settled_at = ?, lease_token = NULL, lease_until = NULL "
        "WHERE id = ? AND state = 'new' AND lease_token = ?"
    )
    return bool(changed(sql, state, result[:RESULT_CHARS], now, message.id, message.lease_token))


def replay(ids: Sequence[int], now: float) -> list[int]:
    """Handle these again. Returns those that were not waiting already."""
    if not ids:
        return []
    sql = (
        "UPDATE inbound_messages SET state = 'new', result = NULL, settled_at = NULL, claims = 0, wake_at = ? "
        f"WHERE id IN ({marks(ids)}) AND state IN ('done', 'failed') RETURNING id"
    )
    return sorted(column(sql, now, *ids))


def newest(limit: int, *, sender: str | None = None, state: str | None = None) -> list[InboundMessage]:
    wanted = {"sender": sender, "state": state}
    given = {name: value for name, value in wanted.items() if value is not None}
    where = " AND ".join(f"{name} = ?" for name in given) or "1 = 1"
    sql = f"SELECT {columns(InboundMessage)} FROM inbound_messages WHERE {where} ORDER BY id DESC LIMIT ?"
    return fetch_all(InboundMessage, sql, *given.values(), limit)


def body_of(message_id: int) -> bytes | None:
    found = column("SELECT body FROM inbound_messages WHERE id = ?", message_id)
    return base64.b64decode(found[0]) if found else None


def waiting() -> int:
    return number("SELECT COUNT(*) FROM inbound_messages WHERE state = 'new'")


def failed() -> list[FailedMessages]:
    """By sender, what could not be handled and was not replayed."""
    sql = (
        "SELECT sender, COUNT(*), MIN(received_at), MAX(result) FROM inbound_messages WHERE state = 'failed' "
        "GROUP BY sender ORDER BY sender"
    )
    return [FailedMessages(*row) for row in fetch(sql)]


def delete_old(before: float, limit: int = 500) -> int:
    """Handled messages only."""
    sql = (
        "DELETE FROM inbound_messages WHERE id IN (SELECT id FROM inbound_messages "
        "WHERE state IN ('done', 'failed') AND received_at < ? ORDER BY id LIMIT ?)"
    )
    return changed(sql, before, limit)
