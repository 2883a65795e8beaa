"""What retention removes from processing's tables, in chunks; each function is part of the caller's transaction."""

from csi.processing.store.db import changed, fetch, marks, run

FINISHED = "('summarized', 'skipped')"


def clear_signals(before: float, limit: int) -> int:
    """Remove the content of signals whose video is finished. Their ids stay: a signal is never processed twice."""
    sql = f"""UPDATE signals SET event_json = '{{}}' WHERE event_id IN (
        SELECT s.event_id FROM signals s LEFT JOIN videos v ON v.video_id = s.video_id
        WHERE s.taken_at < ? AND s.event_json <> '{{}}' AND s.action <> 'unrouted'
            AND (v.video_id IS NULL OR v.status IN {FINISHED}) LIMIT ?)"""
    return changed(sql, before, limit)


def drop_notices(before: float, limit: int) -> int:
    sql = """DELETE FROM notices WHERE id IN (
        SELECT id FROM notices WHERE state IN ('sent', 'dead') AND created_at < ? LIMIT ?)"""
    return changed(sql, before, limit)


def drop_calls(before: float, limit: int) -> int:
    """Of completed jobs: the answers of others may still be needed, so that nothing is paid for twice."""
    sql = """DELETE FROM calls WHERE call_key IN (
        SELECT c.call_key FROM calls c JOIN jobs j ON j.job_id = c.job_id
        WHERE c.finished_at < ? AND c.state <> 'started' AND j.status = 'completed' LIMIT ?)"""
    return changed(sql, before, limit)


def drop_dead_letters(before: float, limit: int) -> int:
    sql = """DELETE FROM dead_jobs WHERE job_id IN (
        SELECT job_id FROM dead_jobs WHERE status IN ('resolved', 'abandoned') AND moved_at < ? LIMIT ?)"""
    return changed(sql, before, limit)


def old_videos(before: float, limit: int) -> list[str]:
    """Finished videos that were not changed since then."""
    sql = f"SELECT video_id FROM videos WHERE status IN {FINISHED} AND updated_at < ? ORDER BY updated_at LIMIT ?"
    return [row[0] for row in fetch(sql, before, limit)]


def drop_videos(ids: list[str]) -> int:
    """With their jobs, calls, texts and artifacts; signals and the audit log have a retention of their own."""
    if not ids:
        return 0
    of_jobs = f"job_id IN (SELECT job_id FROM jobs WHERE video_id IN ({marks(ids)}))"
    for table in ("calls", "dead_jobs"):
        run(f"DELETE FROM {table} WHERE {of_jobs}", *ids)
    for table in ("jobs", "steps", "texts", "indexed_videos", "artifacts"):
        run(f"DELETE FROM {table} WHERE video_id IN ({marks(ids)})", *ids)
    return changed(f"DELETE FROM videos WHERE video_id IN ({marks(ids)})", *ids)
