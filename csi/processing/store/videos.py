"""Videos. Their status changes only along the specification's transitions, with the row count checked."""

import json
from dataclasses import dataclass, replace
from typing import Any

from csi import clock
from csi.processing.collection_models import VideoDocument
from csi.processing.states import FIRST, STAGE_OF, IllegalTransition, Stage, Status, check_transition
from csi.processing.store.db import changed, doc_field, dump, fetch, is_postgres, marks, number, one, run


@dataclass(frozen=True)
class ProcessingVideo:
    """A video's document and the columns beside it. `held` names the limit that defers the video."""

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


@dataclass(frozen=True)
class VideoFilter:
    """Which videos; None: any."""

    status: str | None = None
    pipeline: str | None = None
    channel: str | None = None
    """A channel id."""
    text: str | None = None
    """Part of the title, of the channel's name, or of the video id."""
    since: float | None = None
    """Discovered at this time or later."""
    until: float | None = None
    """Discovered before this time."""
    tag: str | None = None
    kind: str | None = None
    ids: tuple[str, ...] | None = None
    """Only these, as the full-text search found them."""


EVERY = VideoFilter()
_COLUMNS = "doc, pipeline, kind, url, correlation_id, discovered_at, held"


def add(video: ProcessingVideo, now: float) -> bool:
    """False when the video is stored already, perhaps from another playlist."""
    doc = video.doc
    columns = "video_id, status, stage, doc, pipeline, kind, url, correlation_id, discovered_at, updated_at, wake_at"
    sql = f"INSERT INTO videos ({columns}) VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (video_id) DO NOTHING"
    values = (video.pipeline, video.kind, video.url, video.correlation_id)
    return changed(sql, doc.video_id, doc.status, doc.processing_stage, dump(doc.shape()), *values, now, now, now) == 1


def get(video_id: str) -> ProcessingVideo:
    found = find(video_id)
    if found is None:
        raise IllegalTransition(f"there is no video {video_id}")
    return found


def find(video_id: str) -> ProcessingVideo | None:
    row = one(f"SELECT {_COLUMNS} FROM videos WHERE video_id = ?", video_id)
    return _video(row) if row else None


def move(
    video: ProcessingVideo, new: Status, now: float, *, stage: Stage | None = None, **fields: Any
) -> ProcessingVideo:
    """Change the status. IllegalTransition when it is not allowed, or when the row has another status by now."""
    old = video.status
    check_transition(old, new)
    done = clock.iso(now) if new in ("summarized", "skipped") else None
    stage = stage or STAGE_OF.get(new, video.doc.processing_stage)
    doc = video.doc.changed(status=new, processing_stage=stage, updated_at=clock.iso(now), completed_at=done, **fields)
    sql = """UPDATE videos SET status = ?, stage = ?, doc = ?, updated_at = ?, completed_at = ?, held = NULL
             WHERE video_id = ? AND status = ?"""
    if changed(sql, new, stage, dump(doc.shape()), now, now if done else None, video.id, old) != 1:
        raise IllegalTransition(f"video {video.id} is no longer {old}")
    return replace(video, doc=doc, held=None)


def fail(video: ProcessingVideo, error: str, now: float) -> ProcessingVideo:
    count = (video.doc.error_count or 0) + 1
    return move(video, "failed", now, last_error=error, error_count=count)


def skip(video: ProcessingVideo, why: str, now: float) -> ProcessingVideo:
    """The specification reaches `skipped` only through `failed`; both changes are one commit."""
    failed = video if video.status == "failed" else move(video, "failed", now, last_error=why)  # a rule is no error
    return move(failed, "skipped", now, last_error=why)


def amend(video: ProcessingVideo, now: float, **fields: Any) -> ProcessingVideo:
    """Change the document but not the status."""
    doc = video.doc.changed(updated_at=clock.iso(now), **fields)
    sql = "UPDATE videos SET doc = ?, updated_at = ? WHERE video_id = ? AND status = ?"
    if changed(sql, dump(doc.shape()), now, video.id, video.status) != 1:
        raise IllegalTransition(f"video {video.id} is no longer {video.status}")
    return replace(video, doc=doc)


def learn(video: ProcessingVideo, now: float, *, kind: str, **fields: Any) -> ProcessingVideo:
    """Add facts that were not known before, and change the kind: a premiere becomes a video."""
    amended = amend(video, now, **fields)
    changed("UPDATE videos SET kind = ? WHERE video_id = ?", kind, video.id)
    return replace(amended, kind=kind)


def rediscover(video: ProcessingVideo, now: float, why: str = "") -> ProcessingVideo:
    """A skipped video begins again by command.

    The specification has no way out of `skipped`: the document is deleted and the video is discovered anew, in one
    transaction. `steps` keeps its earlier life. `why` is stored as `held`.
    """
    if video.status != "skipped":
        raise IllegalTransition(f"video {video.id} is {video.status}; only a skipped one is discovered again")
    moment = clock.iso(now)
    fields = {"status": FIRST, "processing_stage": STAGE_OF[FIRST], "completed_at": None}
    doc = video.doc.changed(discovered_at=moment, updated_at=moment, **fields)
    run("SET CONSTRAINTS ALL DEFERRED" if is_postgres() else "PRAGMA defer_foreign_keys = ON")
    if changed("DELETE FROM videos WHERE video_id = ? AND status = 'skipped'", video.id) != 1:
        raise IllegalTransition(f"video {video.id} is no longer skipped")
    again = replace(video, doc=doc, discovered_at=now, held=why or None)
    add(again, now)
    changed("UPDATE videos SET held = ? WHERE video_id = ?", again.held, video.id)
    return again


def defer(video_id: str, until: float, why: str) -> None:
    """A daily limit is reached: admission checks the video again at `until`."""
    changed(
        "UPDATE videos SET wake_at = ?, held = ? WHERE video_id = ? AND status = 'discovered'", until, why, video_id
    )


def release_deferred(now: float) -> int:
    """Make deferred videos due now."""
    return changed("UPDATE videos SET wake_at = ? WHERE status = 'discovered' AND wake_at > ?", now, now)


def discovered(now: float, limit: int) -> list[ProcessingVideo]:
    """Videos that are due for admission, those with the highest priority first."""
    sql = f"""SELECT {_COLUMNS} FROM videos WHERE status = 'discovered' AND wake_at <= ?
              ORDER BY discovered_at LIMIT ?"""
    found = [_video(row) for row in fetch(sql, now, limit)]
    return sorted(found, key=lambda video: -(video.doc.priority or 5))


def page(limit: int, *, wanted: VideoFilter = EVERY, offset: int = 0) -> list[ProcessingVideo]:
    """The last updated first."""
    where, params = _where(wanted)
    sql = f"SELECT {_COLUMNS} FROM videos {where} ORDER BY updated_at DESC, video_id LIMIT ? OFFSET ?"
    return [_video(row) for row in fetch(sql, *params, limit, offset)]


def matching(wanted: VideoFilter) -> int:
    where, params = _where(wanted)
    return number(f"SELECT count(*) FROM videos {where}", *params)


def _where(wanted: VideoFilter) -> tuple[str, list[Any]]:
    columns = {"status = ?": wanted.status, "pipeline = ?": wanted.pipeline, "discovered_at >= ?": wanted.since}
    columns |= {"discovered_at < ?": wanted.until, "kind = ?": wanted.kind}
    if wanted.tag is not None:
        if is_postgres():
            rows = "jsonb_array_elements_text(COALESCE(doc::jsonb -> 'tags', '[]'::jsonb))"
            columns[f"EXISTS (SELECT 1 FROM {rows} AS t(value) WHERE t.value = ?)"] = wanted.tag
        else:
            columns["EXISTS (SELECT 1 FROM json_each(doc, '$.tags') t WHERE t.value = ?)"] = wanted.tag
    columns[f"{doc_field('channel_id')} = ?"] = wanted.channel
    if wanted.text:
        like = wanted.text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        searched = f"{doc_field('title')} || ' ' || {doc_field('channel_title')} || ' ' || video_id"
        columns[f"LOWER({searched}) LIKE LOWER(?) ESCAPE '!'"] = f"%{like}%"
    given = {sql: value for sql, value in columns.items() if value is not None}
    conditions, params = list(given), list(given.values())
    if wanted.ids is not None:
        conditions.append(f"video_id IN ({marks(wanted.ids)})" if wanted.ids else "1 = 0")
        params += wanted.ids
    return f"WHERE {' AND '.join(conditions)}" if conditions else "", params


def channels(limit: int) -> list[tuple[str, str]]:
    """Id and name of the channels with videos, by name."""
    ref, name = doc_field("channel_id"), doc_field("channel_title")
    sql = f"SELECT {ref}, MAX({name}) FROM videos GROUP BY {ref} ORDER BY LOWER(MAX({name})), {ref} LIMIT ?"
    return [(ref, name) for ref, name in fetch(sql, limit)]


def kinds() -> list[str]:
    return [row[0] for row in fetch("SELECT DISTINCT kind FROM videos ORDER BY kind")]


def tags(limit: int) -> list[str]:
    """Every tag of a video, by name."""
    if is_postgres():
        rows = "jsonb_array_elements_text(COALESCE(doc::jsonb -> 'tags', '[]'::jsonb)) AS t(value)"
        sql = f"SELECT DISTINCT t.value FROM videos, {rows} ORDER BY 1 LIMIT ?"
    else:
        sql = "SELECT DISTINCT t.value FROM videos, json_each(videos.doc, '$.tags') t ORDER BY 1 LIMIT ?"
    return [row[0] for row in fetch(sql, limit)]


def pipelines() -> list[str]:
    return [row[0] for row in fetch("SELECT DISTINCT pipeline FROM videos ORDER BY pipeline")]


def origins(start: float, end: float) -> set[str]:
    """Where the videos came from that were discovered in that time: `signal`, `manual` or `backfill`."""
    sql = f"""SELECT DISTINCT CASE WHEN {doc_field("source")} = 'sheet_backfill' THEN 'backfill'
                WHEN correlation_id LIKE ? THEN 'manual' ELSE 'signal' END
              FROM videos WHERE discovered_at >= ? AND discovered_at < ?"""
    return {row[0] for row in fetch(sql, "manual:%", start, end)}


def planned(start: float, end: float) -> int:
    """Videos that waited for admission in that time: discovered before its end, and not admitted before its start."""
    sql = """SELECT count(DISTINCT s.video_id) FROM steps s WHERE s.new = 'discovered' AND s.at < ?
             AND NOT EXISTS (SELECT 1 FROM steps later WHERE later.video_id = s.video_id AND later.id > s.id
                             AND later.at < ?)"""
    return number(sql, end, start)


def counts() -> dict[str, int]:
    return {name: int(count) for name, count in fetch("SELECT status, count(*) FROM videos GROUP BY status")}


def steps(video_id: str) -> list[tuple[str, float]]:
    return [(new, at) for new, at in fetch("SELECT new, at FROM steps WHERE video_id = ? ORDER BY id", video_id)]


def admitted_since(moment: float) -> int:
    """How many videos were queued since then; a retried video counts once."""
    sql = "SELECT count(DISTINCT video_id) FROM steps WHERE new = 'transcription_queued' AND at >= ?"
    return number(sql, moment)


def reached(status: str, start: float, end: float) -> list[str]:
    """Videos that got this status in that time; for `failed` only those that still had it at the end of that time."""
    last = """AND NOT EXISTS (SELECT 1 FROM steps later WHERE later.video_id = s.video_id AND later.id > s.id
                              AND later.at < ?)"""
    where = f"s.new = ? AND s.at >= ? AND s.at < ? {last if status == 'failed' else ''}"
    params = [status, start, end, *([end] if status == "failed" else [])]
    return [row[0] for row in fetch(f"SELECT DISTINCT s.video_id FROM steps s WHERE {where} ORDER BY 1", *params)]


def _video(row: tuple[Any, ...]) -> ProcessingVideo:
    text, *rest = row
    return ProcessingVideo(VideoDocument.model_validate(json.loads(text)), *rest)
