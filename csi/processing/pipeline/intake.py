"""Take over what the receiver stored: each signal once, routed by its pipeline."""

import re
from typing import Any

from csi import clock
from csi.logs import log
from csi.processing.documents import VideoDocument
from csi.processing.pipeline.route_outputs import catch_up
from csi.processing.receiver_database import Received, read_after
from csi.processing.runtime import Processing
from csi.processing.sanitize import plain_line, plain_text, safe_link
from csi.processing.settings import Route
from csi.processing.store import audit, notices, signals, videos
from csi.processing.store.db import writing
from csi.processing.store.signals import Place, Signal
from csi.processing.store.videos import Video
from csi.processing.wake import Wake

AGENT = "intake"
CHUNK = 200
_VIDEO = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PRIORITIES = {"urgent": 9, "high": 8, "standard": 5, "normal": 5, "high_volume": 3, "low": 2}
_SOURCES = {"youtube_playlist": "manual"}
_LONGEST = 366 * 86_400
_MOST = 2**63 - 1


def intake(rt: Processing) -> list[Wake]:
    """One chunk in one transaction, the cursor with it: a crash repeats the chunk, and repeating it changes nothing."""
    after = signals.cursor()
    found = read_after(rt.settings.receiver_db, after, CHUNK)
    if not found:
        return []
    with writing():
        if not signals.move_cursor(after, Place(found[-1].seq, found[-1].event_id)):
            return []
        fresh = [_take(rt, received) for received in found]
    rt.failpoint("intake.committed")
    if found[0].seq <= after.seq:
        log.warning("the receiver's database is another one: it is read from its beginning", last_seen=after.seq)
    log.info("signals taken over", signals=len(found), videos=sum(fresh))
    again = [Wake("intake")] if len(found) == CHUNK else []
    return [*again, *([Wake("admit")] if any(fresh) else [])]


def reroute(rt: Processing) -> list[Wake]:
    """Signals that waited for somebody who knows their pipeline, when the configuration does now."""
    waiting = signals.unrouted(tuple(rt.settings.routes), CHUNK)
    with writing():
        for signal in waiting:
            route = rt.settings.routes[signal.pipeline]
            if signals.reroute(signal.event_id, route.action):
                _act(rt, signal, route)
    return [Wake("admit")] if waiting else []


def _take(rt: Processing, received: Received) -> bool:
    """True when a new video begins its way."""
    pipeline = received.pipeline or "default"
    route = rt.route(pipeline)
    signal = _signal(received, pipeline, route)
    if not signals.save_new(signal, rt.now()):
        return False
    if signal.action in ("unrouted", "unusable"):
        _report(rt, signal)
        return False
    return route is not None and _act(rt, signal, route)


def _signal(received: Received, pipeline: str, route: Route | None) -> Signal:
    subject = _part(received.event, "subject")
    video, title = subject.get("video_id"), plain_line(subject.get("title")) or plain_line(received.event_id)
    usable = isinstance(video, str) and _VIDEO.fullmatch(video) is not None
    action: Any = "unrouted" if route is None else route.action
    reason = "no route for this pipeline" if route is None else None
    if action == "process" and not usable:
        action, reason = "unusable", "it names no video that could be processed"
    shown = str(video) if usable else None
    return Signal(
        received.event_id, received.seq, pipeline, action, shown, title, received.event, received.received_at, reason
    )


def _report(rt: Processing, signal: Signal) -> None:
    log.warning(
        "signal is stored but not processed", event_id=signal.event_id, pipeline=signal.pipeline, error=signal.reason
    )
    audit.write(_scope(rt, signal), "route", "skipped", rt.now(), error_code=signal.action, error_message=signal.reason)


def _act(rt: Processing, signal: Signal, route: Route) -> bool:
    now, fresh = rt.now(), False
    if route.action == "process" and signal.video_id:
        fresh = videos.add(read_video(signal, now), now)
    if route.action == "notify":
        link = safe_link(_part(signal.event, "subject").get("url"))
        notices.add(
            f"signal:{signal.event_id}", signal.title, link, due_at=now + rt.settings.notifications.window, now=now
        )
    known = route.action == "process" and not fresh
    if known and signal.video_id:
        catch_up(rt, videos.get(signal.video_id), now)
    audit.write(
        _scope(rt, signal),
        f"route:{route.action}",
        "skipped" if known else "success",
        now,
        data_summary="known video" if known else signal.pipeline,
    )
    return fresh


def _scope(rt: Processing, signal: Signal) -> audit.Scope:
    kind, name = ("video", signal.video_id) if signal.video_id else ("signal", signal.event_id)
    return audit.Scope(AGENT, signal.event_id, kind, name, rt.settings.retention.audit_days)


def read_video(signal: Signal, now: float) -> Video:
    """Whatever a subject holds becomes a video, without what cannot be read: one bad signal must not stop the rest."""
    event, subject, routing = signal.event, _part(signal.event, "subject"), _part(signal.event, "routing")
    source = str(event.get("source", ""))
    backfill = "backfill" in str(event.get("event_type", ""))
    doc = VideoDocument(
        video_id=str(signal.video_id),
        title=signal.title,
        description=plain_text(subject.get("description"), 20_000) or None,
        published_at=_moment(subject.get("published_at"), event),
        channel_id=plain_line(subject.get("channel_id"), 200),
        channel_title=plain_line(subject.get("channel_title")) or plain_line(subject.get("channel_id"), 200),
        duration_sec=float(_amount(subject.get("duration_seconds"), _LONGEST) or 0),
        view_count=_whole(_amount(subject.get("view_count"), _MOST)),
        status="discovered",
        processing_stage="scraping",
        discovered_at=clock.iso(now),
        updated_at=clock.iso(now),
        source="sheet_backfill" if backfill else _SOURCES.get(source, "channel_scrape"),
        tags=_tags(routing.get("tags")),
        priority=_PRIORITIES.get(str(routing.get("priority")), 5),
    )
    link = safe_link(subject.get("url")) or f"https://www.youtube.com/watch?v={doc.video_id}"
    kind = plain_line(subject.get("kind"), 40) or "video"
    return Video(doc, signal.pipeline, kind, link, signal.event_id, now)


def _amount(value: Any, most: int) -> int | float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= most else None


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)


def _tags(value: Any) -> list[str] | None:
    words = [plain_line(tag, 200) for tag in value[:50]] if isinstance(value, list) else []
    return [word for word in words if word] or None


def _moment(text: Any, event: dict[str, Any]) -> str:
    try:
        return clock.normalize(str(text))
    except ValueError:
        return clock.normalize(str(event.get("occurred_at")))


def _part(event: dict[str, Any], name: str) -> dict[str, Any]:
    found = event.get(name)
    return found if isinstance(found, dict) else {}
