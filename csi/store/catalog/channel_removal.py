"""Delete a channel from the catalogue with everything that belongs to it, a few rows per transaction."""

from csi.store.db import changed, column, marks, number, run, writing

CHUNK = 500

# What refers to another table is deleted before it.
_KEYS = {
    "job_events": "SELECT e.id FROM job_events e JOIN jobs j ON j.id = e.job_id WHERE j.channel_id = ?",
    "jobs": "SELECT id FROM jobs WHERE channel_id = ?",
    "video_stats": "SELECT s.id FROM video_stats s JOIN videos v ON v.id = s.video_id WHERE v.channel_id = ?",
    "videos": "SELECT id FROM videos WHERE channel_id = ?",
    "channel_stats": "SELECT id FROM channel_stats WHERE channel_id = ?",
}


def counts(channel_id: str) -> dict[str, int]:
    """How many rows of each table belong to the channel."""
    return {table: number(f"SELECT COUNT(*) FROM ({sql}) AS found", channel_id) for table, sql in _KEYS.items()} | {
        "channels": number("SELECT COUNT(*) FROM channels WHERE id = ?", channel_id)
    }


def remove(channel_id: str, now: float) -> dict[str, int] | None:
    """Returns the deleted rows by table; None while a job of the channel runs."""
    with writing():
        if number("SELECT COUNT(*) FROM jobs WHERE channel_id = ? AND status = 'running'", channel_id):
            return None
        # No worker claims them any more while their rows go.
        sql = """UPDATE jobs SET status = 'completed', completed_at = ?, changed_at = ?
            WHERE channel_id = ? AND status IN ('pending', 'failed')"""
        run(sql, now, now, channel_id)
    removed = dict.fromkeys(_KEYS, 0)
    for table, keys in _KEYS.items():
        while ids := column(f"{keys} LIMIT ?", channel_id, CHUNK):
            with writing():
                removed[table] += changed(f"DELETE FROM {table} WHERE id IN ({marks(ids)})", *ids)
    with writing():
        removed["channels"] = changed("DELETE FROM channels WHERE id = ?", channel_id)
    return removed
