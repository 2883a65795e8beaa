"""Read new signals from the receiver's database: each signal once, routed by its pipeline."""

import re
from typing import Any

from csi import clock
from csi.logs import log
from csi.processing.collection_models import VideoDocument
from csi.processing.pipeline.later import STREAM_END, learn_facts
from csi.processing.pipeline.summarise import complete_outputs
from csi.processing.providers.video_facts import VideoFacts
from csi.processing.receiver_database import ReceiverSignal, read_after
from csi.processing.runtime import Processing, StepWake
from csi.processing.sanitize import plain_line, plain_text, safe_link
from csi.processing.settings import STREAMS, SignalRoute
from csi.processing.store import audit, jobs, notices, received_events, videos
from csi.processing.store.audit import AuditScope
from csi.processing.store.db import writing
from csi.processing.store.received_events import IntakeCursor, Signal
from csi.processing.store.videos import ProcessingVideo

AGENT = "intake"
CHUNK = 200
_VIDEO_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PRIORITIES = {"urgent": 9, "high": 8, "standard": 5, "normal": 5, "high_volume": 3, "low": 2}
_SOURCES = {"youtube_playlist": "manual"}
_MAX_SECONDS = 366 * 86_400
_MAX_COUNT = 2**63 - 1


def intake(rt: Processing) -> list[StepWake]:
    """Read one chunk. A crash repeats the chunk, which changes nothing: signals are stored by event id."""
    cursor = received_events.cursor()
    chunk = read_after(rt.settings.receiver_db, cursor, CHUNK)
    if not chunk:
        return []
    # Signals and cursor commit together: a signal is neither lost between them nor read by two workers.
    with writing():
        if not received_events.move_cursor(cursor, IntakeCursor(chunk[-1].seq, chunk[-1].event_id)):
            return []
        new_videos = sum(_store_signal(rt, received) for received in chunk)
    rt.failpoint("intake.committed")
    if chunk[0].seq <= cursor.seq:
        log.warning("receiver database was replaced; reading it from its beginning", last_seq=cursor.seq)
    log.info("signals read", signals=len(chunk), videos=new_videos)
    more = [StepWake("intake")] if len(chunk) == CHUNK else []
    return [*more, *([StepWake("admit")] if new_videos else [])]


def reroute(rt: Processing) -> list[StepWake]:
    """Route stored signals whose pipeline got a route since they arrived."""
    unrouted = received_events.unrouted(tuple(rt.settings.routes), CHUNK)
    with writing():
        for signal in unrouted:
            route = rt.settings.routes[signal.pipeline]
            if received_events.reroute(signal.event_id, route.action):
                _apply_route(rt, signal, route)
    return [StepWake("admit")] if unrouted else []


def _store_signal(rt: Processing, received: ReceiverSignal) -> bool:
    """Store and route one signal. True when it adds a new video."""
    pipeline = received.pipeline or "default"
    route = rt.settings.routes.get(pipeline)
    subject = _mapping(received.event, "subject")
    video, title = subject.get("video_id"), plain_line(subject.get("title")) or plain_line(received.event_id)
    usable = isinstance(video, str) and _VIDEO_ID.fullmatch(video) is not None
    action: Any = "unrouted" if route is None else route.action
    reason = "no route for this pipeline" if route is None else None
    if action == "process" and not usable:
        action, reason = "unusable", "the event names no video that can be processed"
    video_id = str(video) if usable else None
    signal = Signal(
        received.event_id, received.seq, pipeline, action, video_id, title, received.event, received.received_at, reason
    )
    if not received_events.save_new(signal, rt.now()):
        return False
    if route is not None and action != "unusable":
        return _apply_route(rt, signal, route)
    log.warning("signal stored but not processed", event_id=signal.event_id, pipeline=pipeline, error=reason)
    audit.write(_scope(rt, signal), "route", "skipped", rt.now(), error_code=action, error_message=reason)
    return False


def _apply_route(rt: Processing, signal: Signal, route: SignalRoute) -> bool:
    """True when the signal adds a new video. A known video gets what this route adds."""
    now, is_new, is_known = rt.now(), False, False
    due_at = now + rt.settings.notifications.window
    if route.action == "process":
        is_new = signal.video_id is not None and videos.add(read_video(signal, now), now)
        is_known = not is_new
        if is_known and signal.video_id:
            complete_outputs(rt, _learn(videos.get(signal.video_id), read_video(signal, now), now), now)
        if route.notify and signal.video_id and videos.get(signal.video_id).status != "summarized":
            # Once for a video: who published what, and where. A summary that is ready in time takes its place.
            video = videos.get(signal.video_id)
            body = "\n".join(filter(None, (video.doc.channel_title, video.url)))
            notices.add(f"found:{video.id}", video.doc.title, body, due_at=due_at, now=now)
    if route.action == "notify":
        link = safe_link(_mapping(signal.event, "subject").get("url"))
        notices.add(f"signal:{signal.event_id}", signal.title, link, due_at=due_at, now=now)
    outcome, summary = ("skipped", "known video") if is_known else ("success", signal.pipeline)
    audit.write(_scope(rt, signal), f"route:{route.action}", outcome, now, data_summary=summary)
    return is_new


def _learn(video: ProcessingVideo, heard: ProcessingVideo, now: float) -> ProcessingVideo:
    """A later signal may know more: the length, or that a premiere became a video, whose job is due then."""
    kind = heard.kind if video.kind in STREAMS else video.kind
    known = VideoFacts(heard.doc.duration_sec or None, heard.doc.view_count, channel_title=heard.doc.channel_title)
    learnt = learn_facts(video, known, now, kind=kind)
    wait = jobs.wait_of(video.id)
    if wait is not None and wait[0] == STREAM_END and kind not in STREAMS:
        jobs.make_due(jobs.job_id(jobs.TRANSCRIPTION, video.id), now)
    return learnt


def _scope(rt: Processing, signal: Signal) -> AuditScope:
    kind, name = ("video", signal.video_id) if signal.video_id else ("signal", signal.event_id)
    return rt.audit_scope(AGENT, kind, name, signal.event_id)


def read_video(signal: Signal, now: float) -> ProcessingVideo:
    """Any subject becomes a video; invalid fields are left out, so that one bad signal does not stop the others."""
    event, subject, routing = signal.event, _mapping(signal.event, "subject"), _mapping(signal.event, "routing")
    backfill = "backfill" in str(event.get("event_type", ""))
    views = _number(subject.get("view_count"), _MAX_COUNT)
    tags = routing.get("tags")
    names = [plain_line(tag, 200) for tag in tags[:50]] if isinstance(tags, list) else []
    try:
        published_at = clock.normalize(str(subject.get("published_at")))
    except ValueError:
        published_at = clock.normalize(str(event.get("occurred_at")))  # the contract checked this one
    doc = VideoDocument(
        video_id=str(signal.video_id),
        title=signal.title,
        description=plain_text(subject.get("description"), 20_000) or None,
        published_at=published_at,
        channel_id=plain_line(subject.get("channel_id"), 200),
        channel_title=plain_line(subject.get("channel_title")) or plain_line(subject.get("channel_id"), 200),
        duration_sec=float(_number(subject.get("duration_seconds"), _MAX_SECONDS) or 0),
        view_count=None if views is None else int(views),
        status="discovered",
        processing_stage="scraping",
        discovered_at=clock.iso(now),
        updated_at=clock.iso(now),
        source="sheet_backfill" if backfill else _SOURCES.get(str(event.get("source", "")), "channel_scrape"),
        tags=[name for name in names if name] or None,
        priority=_PRIORITIES.get(str(routing.get("priority")), 5),
    )
    url = safe_link(subject.get("url")) or f"https://www.youtube.com/watch?v={doc.video_id}"
    kind = plain_line(subject.get("kind"), 40) or "video"
    return ProcessingVideo(doc, signal.pipeline, kind, url, signal.event_id, now)


def _number(value: Any, most: int) -> int | float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= most else None


def _mapping(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}
