"""Handle one stored message of /hooks: confirm a push, map a webhook of Composio, store what your scripts sent.

The row in `inbound_messages` remembers the work. It is settled in the transaction that stores what follows from it; the
maintenance loop finds it when a task was lost or a process died.
"""

import json

from csi import clock
from csi.adapters import composio
from csi.adapters.base import PushContent, RawEvent
from csi.adapters.composio import ComposioMessage
from csi.adapters.youtube import push_document
from csi.adapters.youtube.api import is_readable
from csi.config.setting_types import TIERS
from csi.errors import MalformedItem, SourceError
from csi.logs import log
from csi.pipeline import inbound_content, ingest, new_items, push_tracking
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import counters, db, events, inbound_endpoints, inbound_messages, incidents, subscriptions, watches
from csi.store.db import writing
from csi.store.inbound_messages import MAX_CLAIMS, ClaimedMessage
from csi.store.models import Watch

PLAYLISTS, CHANNELS = "youtube_playlist", "youtube_channel_rss"
PUSH_ENDED = "push_ended"


class NotHandled(MalformedItem):
    """The message stays, as failed, and can be replayed when its reason is gone."""


def process(rt: Runtime, message_id: int) -> list[Wake]:
    """Handle this message if it waits; the wake-ups of what it stored."""
    with writing():
        message = inbound_messages.claim(message_id, rt.now())
    if message is None:
        return []
    if message.claims >= MAX_CLAIMS:
        return _fail(rt, message, f"handling it ended the process {MAX_CLAIMS} times")
    try:
        match message.kind:
            case "websub":
                return _handle_push(rt, message)
            case "composio":
                return _handle_composio(rt, message)
            case "events":
                return _handle_events(rt, message)
        return _handle_items(rt, message)
    except MalformedItem as error:
        return _fail(rt, message, str(error))
    except db.DatabaseError:
        raise  # the lease expires, and the message is handled again
    except Exception as error:  # noqa: BLE001 one message must not stop the others
        log.exception("message could not be handled", sender=message.sender, message=message.id)
        return _fail(rt, message, f"{type(error).__name__} while handling it")


def _fail(rt: Runtime, message: ClaimedMessage, reason: str) -> list[Wake]:
    with writing():
        inbound_messages.settle(message, "failed", reason, rt.now())
        counters.add("inbound", label="failed")
    log.warning("message failed", sender=message.sender, message=message.id, reason=reason)
    return []


def _settle(message: ClaimedMessage, result: str, now: float) -> None:
    """The message is handled. Part of the transaction that stores what follows from it: nothing without the lease."""
    if not inbound_messages.settle(message, "done", result, now):
        raise NotHandled("its lease was lost")
    counters.add("inbound", label="done")


# ── WebSub ──────────────────────────────────────────────────────────────────────────────────────────────


def _handle_push(rt: Runtime, message: ClaimedMessage) -> list[Wake]:
    now, row = rt.now(), subscriptions.find(message.sender_id)
    watch = watches.find(row.watch_id) if row is not None else None
    if row is None or watch is None or watch.source not in rt.settings.sources:
        raise NotHandled("its subscription or its source does not exist any more")
    # A push that cannot be read says that something changed: the watch is read
    try:
        content = rt.adapter(watch.source).read_push(watch.ref, message.content, now)
    except SourceError as error:
        log.warning("push is not readable; its watch is read", source=watch.source, watch=watch.ref, error=str(error))
        content = PushContent()
    with writing():
        new = push_tracking.note_push(rt, row, content.keys, now)
        items: list[int] = []
        push = rt.settings.sources[watch.source].websub
        for key, at in content.removed.items():
            found = events.mark_removed(key, at)
            if found is not None and push is not None and push.removed_events:
                raw = push_document.removed_item(json.loads(found.subject_json), watch.source, at)
                items += new_items.put_pushed(rt, watch, [raw], now)[0]
        is_due = not content.keys and not content.removed and watches.make_due(watch.id, now)
        result = f"{len(new)} new, {len(content.keys) - len(new)} known, {len(content.removed)} removed"
        _settle(message, result, now)
    wakes = [Wake("poll", watch.id)] if is_due else []
    return [*wakes, *push_tracking.due_checks(rt), *(Wake("ingest", item_id) for item_id in items)]


# ── Composio ────────────────────────────────────────────────────────────────────────────────────────────


def _handle_composio(rt: Runtime, message: ClaimedMessage) -> list[Wake]:
    now, found = rt.now(), composio.read(message.content)
    with writing():
        if found.kind != "trigger":
            result, wakes = _report_end(message.sender, found, now), list[Wake]()
        else:
            incidents.close(PUSH_ENDED, message.sender, "a message of this sender", now)
            result, wakes = _store_item(rt, found, now)
        _settle(message, result, now)
    return wakes


def _report_end(sender: str, found: ComposioMessage, now: float) -> str:
    """Composio pushes nothing any more: only polling is left, and a problem says so."""
    is_account = found.kind == composio.ACCOUNT_EXPIRED
    what = (
        "the connected account has expired" if is_account else f"the trigger {found.trigger or ''} is disabled".strip()
    )
    incidents.report(
        PUSH_ENDED,
        sender,
        what=f"Composio ({sender}): {what}",
        effect="Composio pushes no new items; they are found by polling",
        remedy="connect the account again in Composio" if is_account else "enable the trigger again in Composio",
        now=now,
    )
    log.error("Composio pushes nothing any more", sender=sender, what=what)
    return what


def _store_item(rt: Runtime, found: ComposioMessage, now: float) -> tuple[str, list[Wake]]:
    """The item as a poll of its playlist would have found it; without a complete item, the watches are polled."""
    watch, raw = _playlist_item(rt, found)
    if watch is None or raw is None:
        named = [watches.active_of(source, ref) for ref in found.mentions for source in (PLAYLISTS, CHANNELS)]
        due = [watch.id for watch in named if watch is not None]
        for watch_id in due:
            watches.make_due(watch_id, now)
        if not due:
            return "no watch has this item: add its playlist with `csi sources add`", []
        return f"polls {len(due)} watch{'' if len(due) == 1 else 'es'}", [Wake("poll", watch_id) for watch_id in due]
    key = rt.adapter(PLAYLISTS).item_key(raw)
    subscriptions.add(watch.id, "composio", now, state="verified", verified_at=now)
    row = subscriptions.of_watch(watch.id)
    if row is not None:
        new = push_tracking.note_push(rt, row, [key], now)
        push_tracking.confirm(rt, row, len(new))
    ids, known = new_items.put_pushed(rt, watch, [raw], now)
    result = "stored" if ids else "known already" if known else "filtered"
    return result, [Wake("ingest", item_id, urgent=watch.tier == "urgent") for item_id in ids]


def _playlist_item(rt: Runtime, found: ComposioMessage) -> tuple[Watch | None, RawEvent | None]:
    """None, None: the item lacks what its key and id are made of, or is not readable."""
    if found.item is None or PLAYLISTS not in rt.settings.sources or not is_readable(found.item):
        return None, None
    snippet = found.item.get("snippet")
    added_at = str(snippet.get("publishedAt", "")) if isinstance(snippet, dict) else ""
    raw = RawEvent(PLAYLISTS, "video_added_to_playlist", found.item, added_at)
    try:
        event = rt.adapter(PLAYLISTS).normalize(raw)
    except MalformedItem:
        return None, None
    return watches.active_of(PLAYLISTS, str(event.subject.get("playlist_id", ""))), raw


# ── your own ────────────────────────────────────────────────────────────────────────────────────────────


def _handle_events(rt: Runtime, message: ClaimedMessage) -> list[Wake]:
    now, found = rt.now(), inbound_content.read_events(message.content)
    endpoint = inbound_endpoints.find(message.sender)
    own = {"received_at": clock.iso(message.received_at), "emitted_at": None, "raw_ref": f"inbound:{message.id}"}
    ready = []
    for event in found:
        routing = {"pipeline": "default", "tags": []} | event.routing
        if routing.get("priority") not in TIERS:
            routing["priority"] = endpoint.tier if endpoint else "standard"
        routing["tags"] = routing["tags"] if isinstance(routing["tags"], list) else []
        metadata = {"source_adapter": f"inbound:{message.sender}"} | event.metadata
        ready.append(event.model_copy(update=own | {"routing": routing, "metadata": metadata}))
    with writing():
        wakes, stored = ingest.store_ready(rt, ready, -message.sender_id, message.id, message.received_at)
        result = f"{stored} stored, {len(found) - stored} known"
        _settle(message, result, now)
    return wakes


def _handle_items(rt: Runtime, message: ClaimedMessage) -> list[Wake]:
    now, endpoint = rt.now(), inbound_endpoints.find(message.sender)
    if endpoint is None or not endpoint.source or endpoint.source not in rt.settings.sources:
        raise NotHandled("its sender was removed, or its source is not configured any more")
    found = inbound_content.read_items(message.content, endpoint.source)
    ref = found.ref or endpoint.ref or ""
    watch = watches.active_of(endpoint.source, ref)
    if watch is None:
        raise NotHandled(f"{endpoint.source} has no active watch of this name; add it with `csi sources add`")
    with writing():
        ids, known = new_items.put_pushed(rt, watch, found.items, now)
        _settle(message, f"{len(ids)} stored, {len(known)} known", now)
    return [Wake("ingest", item_id, urgent=watch.tier == "urgent") for item_id in ids]
