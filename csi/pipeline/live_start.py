"""Announced streams: look at them when they are due, and emit `live_started` when one has begun.

The row in `awaited_streams` remembers the work: ingest stores it with the first event, and it is deleted in the
transaction that puts the second one into the inbox. The maintenance loop finds it; a lease of a dead process expires.
"""

import json

from csi import clock
from csi.adapters.base import SourceAdapter, StreamState
from csi.errors import SourceError
from csi.ingester.event import CreatorSignalEvent
from csi.logs import log
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.scheduling import stream_checks
from csi.store import awaited_streams, dedupe, inbox, watches
from csi.store.awaited_streams import AwaitedStream
from csi.store.db import writing
from csi.store.models import Watch

FIRST_CHECK = 60.0
"""After the first event: that check learns for when the stream is announced."""
LATER = 900.0
"""Without units to spare, or after an error of the API."""


def remember(adapter: SourceAdapter, watch_id: int, event: CreatorSignalEvent, now: float) -> None:
    """Wait for the start of a stream that this event announces. Part of the transaction that stores the event."""
    if (video := adapter.awaited_stream(event)) is not None:
        subject = json.dumps(event.subject)
        awaited_streams.add(watch_id, event.source, video, subject, now + FIRST_CHECK, now)


def due_checks(rt: Runtime) -> list[Wake]:
    return [Wake("streams", source) for source in awaited_streams.due_sources(rt.now())]


def check(rt: Runtime, source: str) -> list[Wake]:
    """Look at the streams of this source that are due, at most as many as one call of the API allows."""
    with writing():
        rows = awaited_streams.claim(source, rt.now())
    if not rows:
        return []
    states = None
    if source in rt.enabled_sources() and rt.has_spare(1):
        try:
            states = rt.adapter(source).stream_states(list(dict.fromkeys(row.video_id for row in rows)))
        except SourceError as error:
            log.info("announced streams are not looked up", source=source, error=str(error), kind=error.kind)
    now = rt.now()
    with writing():
        if states is None:
            awaited_streams.postpone_all(rows, now + LATER)
            return []
        stored = [item for row in rows for item in _settle(rt, row, states.get(row.video_id), now)]
    return [Wake("ingest", item_id) for item_id in stored]


def _settle(rt: Runtime, row: AwaitedStream, state: StreamState | None, now: float) -> list[int]:
    """The ids of the items that were stored."""
    watch = watches.find(row.watch_id)
    if watch is None or watch.state == "removed":
        awaited_streams.remove(row)
    elif state is None and row.misses + 1 < stream_checks.MISSES:
        awaited_streams.postpone(row, now + LATER, scheduled_at=row.scheduled_at, misses=row.misses + 1)
    elif state is None or (state.started_at is None and not state.is_announced):
        log.info("announced stream is gone", source=row.source, watch=watch.ref, video=row.video_id)
        awaited_streams.remove(row)
    elif state.started_at is not None:
        return _store(rt, watch, row, min(state.started_at, now), now) if awaited_streams.remove(row) else []
    else:
        due_at = stream_checks.next_check(now, state.scheduled_at or row.since)
        if due_at is None:
            awaited_streams.remove(row)
        else:
            awaited_streams.postpone(row, due_at, scheduled_at=state.scheduled_at, misses=0)
    return []


def _store(rt: Runtime, watch: Watch, row: AwaitedStream, started_at: float, now: float) -> list[int]:
    """Filters decided about the stream when it was announced."""
    adapter = rt.adapter(row.source)
    raw = adapter.started_item(json.loads(row.subject_json), started_at)
    key = adapter.item_key(raw)
    if dedupe.known([key]):
        return []
    log.info("stream has begun", source=row.source, watch=watch.ref, video=row.video_id, at=clock.iso(started_at))
    return inbox.put(watch, [inbox.NewItem(key, raw.event_type, raw.occurred_at, raw.payload)], now)
