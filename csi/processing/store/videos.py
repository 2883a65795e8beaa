"""Videos and the one way to change their status: along the specification's transitions, row count checked."""

import json
from dataclasses import dataclass, replace
from typing import Any

from csi import clock
from csi.processing.documents import VideoDocument
from csi.processing.states import IllegalMove, Status, check_move, stage_after
from csi.processing.store.db import changed, dump, fetch, one


@dataclass(frozen=True)
class Video:
    """A document, and what the walk knows beside it."""

    doc: VideoDocument
    pipeline: str
    kind: str
    url: str
    correlation_id: str
    discovered_at: float
    held: str | None = None

    @property
    def id(self) -> str:
        return self.doc.video_id

    @property
    def status(self) -> Status:
        return self.doc.status


_COLUMNS = "doc, pipeline, kind, url, correlation_id, discovered_at, held"


def add(video: Video, now: float) -> bool:
    """False when this video is known: it was delivered before, perhaps by another playlist."""
    doc = video.doc
    columns = "video_id, status, stage, doc, pipeline, kind, url, correlation_id, discovered_at, updated_at, wake_at"
    sql = f"INSERT INTO videos ({columns}) VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (video_id) DO NOTHING"
    place = (video.pipeline, video.kind, video.url, video.correlation_id)
    return changed(sql, doc.video_id, doc.status, doc.processing_stage, _text(doc), *place, now, now, now) == 1


def get(video_id: str) -> Video:
    found = find(video_id)
    if found is None:
        raise IllegalMove(f"there is no video {video_id}")
    return found


def find(video_id: str) -> Video | None:
    row = one(f"SELECT {_COLUMNS} FROM videos WHERE video_id = ?", video_id)
    return _video(row) if row else None


def move(video: Video, new: Status, now: float, **fields: Any) -> Video:
    """The same video one status on. IllegalMove when it may not go there, or is not where we think it is."""
    old = video.status
    check_move(old, new)
    done = clock.iso(now) if new in ("summarized", "skipped") else None
    stage = stage_after(video.doc.processing_stage, new)
    doc = video.doc.changed(status=new, processing_stage=stage, updated_at=clock.iso(now), completed_at=done, **fields)
    sql = """UPDATE videos SET status = ?, stage = ?, doc = ?, updated_at = ?, completed_at = ?, held = NULL
             WHERE video_id = ? AND status = ?"""
    if changed(sql, new, stage, _text(doc), now, now if done else None, video.id, old) != 1:
        raise IllegalMove(f"video {video.id} is no longer {old}")
    return replace(video, doc=doc, held=None)


def fail(video: Video, error: str, now: float) -> Video:
    count = (video.doc.error_count or 0) + 1
    return move(video, "failed", now, last_error=error, error_count=count)


def skip(video: Video, why: str, now: float) -> Video:
    """Given up for good. The specification's way there leads through `failed`; both steps are one commit."""
    failed = video if video.status == "failed" else fail(video, why, now)
    return move(failed, "skipped", now, last_error=why)


def amend(video: Video, now: float, **fields: Any) -> Video:
    """The document changes, the status stays."""
    doc = video.doc.changed(updated_at=clock.iso(now), **fields)
    sql = "UPDATE videos SET doc = ?, updated_at = ? WHERE video_id = ? AND status = ?"
    if changed(sql, _text(doc), now, video.id, video.status) != 1:
        raise IllegalMove(f"video {video.id} is no longer {video.status}")
    return replace(video, doc=doc)


def hold(video_id: str, until: float, why: str) -> None:
    """Not now: a limit of the day is reached. Looked at again at `until`."""
    changed(
        "UPDATE videos SET wake_at = ?, held = ? WHERE video_id = ? AND status = 'discovered'", until, why, video_id
    )


def release_held(now: float) -> int:
    """After a change of the configuration, or by command: what waits for tomorrow is looked at now."""
    return changed("UPDATE videos SET wake_at = ? WHERE status = 'discovered' AND wake_at > ?", now, now)


def discovered(now: float, limit: int) -> list[Video]:
    """Videos that wait for admission, the most important first."""
    sql = f"""SELECT {_COLUMNS} FROM videos WHERE status = 'discovered' AND wake_at <= ?
              ORDER BY discovered_at LIMIT ?"""
    found = [_video(row) for row in fetch(sql, now, limit)]
    return sorted(found, key=lambda video: -(video.doc.priority or 5))


def page(limit: int, *, status: str | None = None) -> list[Video]:
    where, params = ("WHERE status = ?", [status]) if status else ("", [])
    sql = f"SELECT {_COLUMNS} FROM videos {where} ORDER BY updated_at DESC, video_id LIMIT ?"
    return [_video(row) for row in fetch(sql, *params, limit)]


def counts() -> dict[str, int]:
    return {name: int(count) for name, count in fetch("SELECT status, count(*) FROM videos GROUP BY status")}


def steps(video_id: str) -> list[tuple[str, float]]:
    return [(new, at) for new, at in fetch("SELECT new, at FROM steps WHERE video_id = ? ORDER BY id", video_id)]


def admitted_since(moment: float) -> int:
    """How many were queued since then; one that was tried again counts once."""
    sql = "SELECT count(DISTINCT video_id) FROM steps WHERE new = 'transcription_queued' AND at >= ?"
    return int(fetch(sql, moment)[0][0])


def reached(status: str, start: float, end: float) -> list[str]:
    """Videos whose way led to this status in that time; for `failed` those that were still there at its end."""
    last = """AND NOT EXISTS (SELECT 1 FROM steps later WHERE later.video_id = s.video_id AND later.id > s.id
                              AND later.at < ?)"""
    where = f"s.new = ? AND s.at >= ? AND s.at < ? {last if status == 'failed' else ''}"
    params = [status, start, end, *([end] if status == "failed" else [])]
    return [row[0] for row in fetch(f"SELECT DISTINCT s.video_id FROM steps s WHERE {where} ORDER BY 1", *params)]


def _text(doc: VideoDocument) -> str:
    return dump(doc.shape())


def _video(row: tuple[Any, ...]) -> Video:
    text, *rest = row
    return Video(VideoDocument.model_validate(json.loads(text)), *rest)
