"""The JSON that your own scripts push: ready events, or raw items for a source."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from csi import clock
from csi.adapters import composio
from csi.adapters.base import RawEvent
from csi.errors import MalformedItem
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.text import clean, clean_tree

MAX_EVENTS = 100
KEY_CHARS = 512


@dataclass(frozen=True)
class PushedItems:
    """Raw items of one watch. `ref` None: the one that the endpoint names."""

    ref: str | None
    items: tuple[RawEvent, ...]


def check(kind: str, body: bytes) -> None:
    """MalformedItem with the place of the first fault, so that the sender can correct it."""
    match kind:
        case "events":
            read_events(body)
        case "items":
            read_items(body, "")
        case "composio":
            composio.read(body)


def read_events(body: bytes) -> list[CreatorSignalEvent]:
    """One event, a list of them, or an object with the list `events`."""
    document = _json(body)
    rows = document.get("events", [document]) if isinstance(document, dict) else document
    return [_event(row, place) for place, row in enumerate(_rows(rows, "events"))]


def _event(row: Any, place: int) -> CreatorSignalEvent:
    if not isinstance(row, dict):
        raise MalformedItem(f"events[{place}] is not an object")
    moment = clock.iso(clock.now())
    try:
        event = CreatorSignalEvent.model_validate({"received_at": moment, "routing": {}} | row)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise MalformedItem(f"events[{place}].{where}: {first['msg']}") from error
    for name in ("event_id", "dedupe_key", "source", "event_type"):
        text = getattr(event, name)
        if not text or len(text) > KEY_CHARS or clean(text) != text:
            raise MalformedItem(f"events[{place}].{name}: expected 1 to {KEY_CHARS} printable characters")
    try:
        json.dumps([event.subject, event.metadata, event.routing], allow_nan=False)
    except ValueError as error:
        raise MalformedItem(f"events[{place}]: NaN and infinity are not JSON") from error
    return event.model_copy(update={"subject": clean_tree(event.subject), "metadata": clean_tree(event.metadata)})


def read_items(body: bytes, source: str) -> PushedItems:
    """`{"watch": …, "items": [{"event_type", "occurred_at", "payload"}]}`."""
    document = _json(body)
    if not isinstance(document, dict):
        raise MalformedItem("expected an object with the list items")
    ref = document.get("watch")
    if ref is not None and not isinstance(ref, str):
        raise MalformedItem("watch is not a text")
    items = []
    for place, row in enumerate(_rows(document.get("items"), "items")):
        payload = row.get("payload") if isinstance(row, dict) else None
        if not isinstance(payload, dict):
            raise MalformedItem(f"items[{place}].payload is not an object")
        event_type, occurred_at = (row.get(name) for name in ("event_type", "occurred_at"))
        if not all(isinstance(text, str) and text for text in (event_type, occurred_at)):
            raise MalformedItem(f"items[{place}]: event_type and occurred_at are texts")
        items.append(RawEvent(source, clean(event_type, 100), payload, clean(occurred_at, 100)))
    return PushedItems(ref, tuple(items))


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedItem("the body is not JSON") from error


def _rows(rows: Any, name: str) -> list[Any]:
    if not isinstance(rows, list) or not rows:
        raise MalformedItem(f"expected a list {name} that is not empty")
    if len(rows) > MAX_EVENTS:
        raise MalformedItem(f"{name} has {len(rows):,} entries; at most {MAX_EVENTS} in one message")
    return rows
