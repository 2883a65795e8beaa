"""What is known of many items at once, for the comparison with another poller."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import chunks, fetch, marks


@dataclass(frozen=True)
class Known:
    """Why a key is known, and since when."""

    key: str
    reason: str
    first_seen_at: float | None


@dataclass(frozen=True)
class Emitted:
    """An event, as far as a comparison needs it."""

    key: str
    source: str
    state: str
    first_seen_at: float


def known(keys: Sequence[str]) -> dict[str, Known]:
    return {
        row[0]: Known(*row)
        for chunk in chunks(keys)
        for row in fetch(f"SELECT key, reason, first_seen_at FROM dedupe_keys WHERE key IN ({marks(chunk)})", *chunk)
    }


def waiting(keys: Sequence[str]) -> set[str]:
    """The keys of those items that wait in the inbox."""
    return {
        row[0]
        for chunk in chunks(keys)
        for row in fetch(f"SELECT item_key FROM inbox WHERE item_key IN ({marks(chunk)})", *chunk)
    }


def emitted(sources: Sequence[str], since: float) -> dict[str, Emitted]:
    """Events of these sources that were first seen since then, by their key."""
    sql = f"SELECT dedupe_key, source, state, first_seen_at FROM events WHERE source IN ({marks(sources)})"
    return {row[0]: Emitted(*row) for row in fetch(f"{sql} AND first_seen_at >= ? ORDER BY id", *sources, since)}
