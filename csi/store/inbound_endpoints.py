"""Senders of webhooks that were added by command. Tokens and secrets are derived; a row holds their generation."""

from dataclasses import dataclass

from csi.store.db import changed, columns, fetch_all, fetch_one, run


@dataclass(frozen=True)
class Endpoint:
    """One sender. `generation` numbers its secret, `address` its token."""

    id: int
    name: str
    kind: str
    source: str | None
    ref: str | None
    tier: str
    secret_env: str | None
    generation: int
    previous_until: float | None
    address: int
    accepted: int
    last_accepted_at: float | None
    refused: int
    refused_since: float | None
    last_refusal: str | None
    created_at: float


_SELECT = f"SELECT {columns(Endpoint)} FROM inbound_endpoints"


def find(name: str) -> Endpoint | None:
    return fetch_one(Endpoint, f"{_SELECT} WHERE name = ? AND state = 'active'", name)


def every() -> list[Endpoint]:
    return fetch_all(Endpoint, f"{_SELECT} WHERE state = 'active' ORDER BY name")


def add(
    name: str, kind: str, *, source: str | None, ref: str | None, tier: str, secret_env: str | None, now: float
) -> Endpoint | None:
    """None: there is one of this name. One that was removed gets another address and another secret."""
    sql = (
        "INSERT INTO inbound_endpoints (name, kind, source, ref, tier, secret_env, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET state = 'active', kind = excluded.kind, "
        "source = excluded.source, ref = excluded.ref, tier = excluded.tier, secret_env = excluded.secret_env, "
        "created_at = excluded.created_at, generation = inbound_endpoints.generation + 1, previous_until = NULL, "
        "address = inbound_endpoints.address + 1, refused = 0, refused_since = NULL, last_refusal = NULL "
        "WHERE inbound_endpoints.state = 'removed'"
    )
    return find(name) if changed(sql, name, kind, source, ref, tier, secret_env, now) else None


def rotate(name: str, *, previous_until: float | None, new_address: bool) -> Endpoint | None:
    """A new secret; the one before stays valid until then. None: there is no such sender."""
    sql = (
        "UPDATE inbound_endpoints SET generation = generation + 1, previous_until = ?, address = address + ? "
        "WHERE name = ? AND state = 'active'"
    )
    return find(name) if changed(sql, previous_until, int(new_address), name) else None


def remove(name: str) -> bool:
    return bool(changed("UPDATE inbound_endpoints SET state = 'removed' WHERE name = ? AND state = 'active'", name))


def note_accepted(endpoint_id: int, now: float) -> None:
    sql = (
        "UPDATE inbound_endpoints SET accepted = accepted + 1, last_accepted_at = ?, refused = 0, "
        "refused_since = NULL, last_refusal = NULL WHERE id = ?"
    )
    run(sql, now, endpoint_id)


def note_refused(endpoint_id: int, reason: str, now: float) -> None:
    """Counted since the last message that was accepted."""
    sql = (
        "UPDATE inbound_endpoints SET refused = refused + 1, refused_since = COALESCE(refused_since, ?), "
        "last_refusal = ? WHERE id = ?"
    )
    run(sql, now, reason, endpoint_id)
