"""Signals read from the receiver: each one once, with its action."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from csi.processing.store.db import changed, fetch, marks, one, run

Action = Literal["process", "notify", "digest", "ignore", "unrouted", "unusable"]
CURSOR = "receiver"


@dataclass(frozen=True)
class Signal:
    """One received event and its action. `reason` says why it is unrouted or unusable."""

    event_id: str
    seq: int
    pipeline: str
    action: Action
    video_id: str | None
    title: str
    event: dict[str, Any]
    received_at: float
    reason: str | None = None


@dataclass(frozen=True)
class IntakeCursor:
    """The last signal that was read. `event_id` tells whether the receiver's file is still the same one."""

    seq: int = 0
    event_id: str | None = None


_COLUMNS = "event_id, seq, pipeline, action, video_id, title, event_json, received_at, reason"


def cursor() -> IntakeCursor:
    found = one("SELECT seq, event_id FROM intake WHERE name = ?", CURSOR)
    return IntakeCursor(int(found[0]), found[1]) if found else IntakeCursor()


def move_cursor(old: IntakeCursor, new: IntakeCursor) -> bool:
    """False when another worker moved it since: the caller must not store what it read."""
    if old == IntakeCursor():
        run("INSERT INTO intake (name, seq) VALUES (?, 0) ON CONFLICT (name) DO NOTHING", CURSOR)
    sql = "UPDATE intake SET seq = ?, event_id = ? WHERE name = ? AND seq = ? AND COALESCE(event_id, '') = ?"
    return changed(sql, new.seq, new.event_id, CURSOR, old.seq, old.event_id or "") == 1


def save_new(signal: Signal, now: float) -> bool:
    """False for a signal that is stored already."""
    sql = f"INSERT INTO signals ({_COLUMNS}, taken_at) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (event_id) DO NOTHING"
    values = (signal.event_id, signal.seq, signal.pipeline, signal.action, signal.video_id, signal.title)
    return changed(sql, *values, json.dumps(signal.event), signal.received_at, signal.reason, now) == 1


def reroute(event_id: str, action: Action) -> bool:
    sql = "UPDATE signals SET action = ?, reason = NULL WHERE event_id = ? AND action = 'unrouted'"
    return changed(sql, action, event_id) == 1


def unrouted(pipelines: tuple[str, ...], limit: int) -> list[Signal]:
    """Signals that had no route when they arrived, and whose pipeline is one of these."""
    if not pipelines:
        return []
    where = f"WHERE action = 'unrouted' AND pipeline IN ({marks(pipelines)}) ORDER BY seq LIMIT ?"
    return [_signal(row) for row in fetch(f"SELECT {_COLUMNS} FROM signals {where}", *pipelines, limit)]


def unknown_pipelines() -> dict[str, int]:
    sql = "SELECT pipeline, count(*) FROM signals WHERE action = 'unrouted' GROUP BY pipeline ORDER BY pipeline"
    return {name: int(count) for name, count in fetch(sql)}


def recent(limit: int, *, action: str | None = None) -> list[Signal]:
    where, params = ("WHERE action = ?", [action]) if action else ("", [])
    sql = f"SELECT {_COLUMNS} FROM signals {where} ORDER BY seq DESC LIMIT ?"
    return [_signal(row) for row in fetch(sql, *params, limit)]


def between(start: float, end: float, action: str) -> list[Signal]:
    sql = f"SELECT {_COLUMNS} FROM signals WHERE taken_at >= ? AND taken_at < ? AND action = ? ORDER BY seq"
    return [_signal(row) for row in fetch(sql, start, end, action)]


def pipelines_of(video_id: str) -> list[str]:
    """The pipelines that requested processing of this video, in order of arrival."""
    sql = """SELECT pipeline FROM signals WHERE video_id = ? AND action = 'process'
             GROUP BY pipeline ORDER BY MIN(taken_at), pipeline"""
    return [row[0] for row in fetch(sql, video_id)]


def counts() -> dict[str, int]:
    return {name: int(count) for name, count in fetch("SELECT action, count(*) FROM signals GROUP BY action")}


def _signal(row: tuple[Any, ...]) -> Signal:
    event_id, seq, pipeline, action, video_id, title, event, received_at, reason = row
    return Signal(event_id, seq, pipeline, action, video_id, title, json.loads(event), received_at, reason)
