"""Webhooks of Composio, versions 1 to 3: which trigger, which item, and what happened to the connection."""

import json
from dataclasses import dataclass, field
from typing import Any

from csi.errors import MalformedItem

ACCOUNT_EXPIRED = "composio.connected_account.expired"
TRIGGER_DISABLED = "composio.trigger.disabled"


@dataclass(frozen=True)
class ComposioMessage:
    """One webhook. `kind`: `trigger`, or one of the two types that end the pushes."""

    kind: str
    trigger: str
    item: dict[str, Any] | None = None
    """A raw playlist item."""
    mentions: tuple[str, ...] = field(default=())
    """Ids of playlists and channels in it: their watches are read."""


def read(body: bytes) -> ComposioMessage:
    """MalformedItem: not a webhook of Composio."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedItem("the body is not JSON") from error
    if not isinstance(document, dict):
        raise MalformedItem("the body is not a JSON object")
    if "trigger_name" in document:  # V1
        name, data = document["trigger_name"], document.get("payload")
    elif isinstance(document.get("metadata"), dict) or str(document.get("type", "")).startswith("composio."):  # V3
        metadata = document.get("metadata")
        name = metadata.get("trigger_slug", "") if isinstance(metadata, dict) else ""
        data = document.get("data")
    elif "type" in document:  # V2
        name, data = document["type"], document.get("data")
    else:
        raise MalformedItem("the body names neither a trigger nor a type")
    trigger, data = str(name).upper()[:100], data if isinstance(data, dict) else {}
    kind = str(document.get("type", ""))
    if kind in (ACCOUNT_EXPIRED, TRIGGER_DISABLED):
        return ComposioMessage(kind, trigger)
    item = data.get("item")
    return ComposioMessage(
        "trigger", trigger, item if isinstance(item, dict) else None, tuple(dict.fromkeys(_mentions(data)))
    )


def _mentions(value: Any, depth: int = 0) -> list[str]:
    """The values of `playlistId`, `playlist_id`, `channelId` and `channel_id`, wherever they are."""
    if depth > 8:
        return []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = value.items() if isinstance(value, dict) else ()
    names = ("playlistId", "playlist_id", "channelId", "channel_id")
    found = [one for name, one in own if name in names and isinstance(one, str)]
    return (found + [one for child in list(inner)[:100] for one in _mentions(child, depth + 1)])[:20]
