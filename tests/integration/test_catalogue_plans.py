"""The data access patterns of the specification: each uses its index, on SQLite and on PostgreSQL."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from csi.store import api_units, db
from csi.store.catalog import archives, channels, jobs, stats, videos
from csi.store.queries import job_figures
from ops.bench import catalogue

NOW = 1_771_761_600.0
UC = "UC" + "a" * 22

LAST = videos.CatalogVideo("v9", UC, "T", None, NOW - 9 * 3_600)

# name: (what is called, the index that must be used; in PostgreSQL's partitions indexes have names of their own)
PATTERNS: dict[str, tuple[Callable[[], Any], str]] = {
    "queue": (lambda: jobs.due(NOW, 10), "idx_jobs_ready|idx_jobs_queue"),
    "claim": (lambda: jobs.claim(NOW), "idx_jobs_ready|idx_jobs_queue"),
    "channel status": (lambda: channels.find(UC), "channels_pkey|autoindex_channels"),
    "recent video stats": (lambda: stats.recent("v1", 24), "video_id_captured_at|autoindex_video_stats"),
    "channel dashboard": (lambda: channels.dashboard("2026-02-22"), "channel_id_captured_|autoindex_channel_stats"),
    "hot videos": (lambda: videos.of_channel(UC, since=NOW - 7 * 86_400), "idx_videos_channel"),
    "failed jobs": (lambda: jobs.release_failed(NOW), "idx_jobs_queue"),
    "trend": (lambda: stats.trend(UC, NOW - 90 * 86_400), "idx_channel_stats_trend|channel_id_captured_at"),
    "quota used": (lambda: api_units.used(NOW), "api_budget_pkey|autoindex_api_budget"),
    "due videos": (lambda: videos.due("hot", NOW), "idx_videos_due"),
    "due channels": (lambda: channels.due(NOW), "idx_channels_due"),
    "baselines": (lambda: stats.view_baselines(["v1"], NOW - 8e4, NOW), "video_id_captured_at|autoindex_video_stats"),
    "unfinished jobs": (lambda: job_figures.unfinished(), "idx_jobs_"),
    "dead jobs": (lambda: job_figures.dead_count(), "idx_jobs_"),
    "completed jobs": (lambda: jobs.page(status="completed"), "autoindex_jobs|jobs_pkey"),
    "jobs of a channel": (lambda: jobs.page(channel_id=UC), "idx_jobs_channel|autoindex_jobs|jobs_pkey"),
    "oldest due job": (lambda: job_figures.waiting_since(NOW), "idx_jobs_"),
    "videos page by page": (lambda: videos.of_channel(UC, before=LAST), "idx_videos_channel"),
    "stuck jobs": (lambda: jobs.requeue_stuck(NOW), "idx_jobs_"),
    "jobs to archive": (lambda: archives.old_rows("jobs", 0.0, NOW), "idx_jobs_settled"),
    "surplus captures": (lambda: archives.surplus_stats(NOW - 86_400, NOW), "captured_at|idx_video_stats_time"),
    "a job's history": (lambda: jobs.history("x"), "idx_job_events_job|job_id_occurred_at"),
}  # fmt: skip
WHOLE = {"channel dashboard": {"c", "channels"}}
"""What is read as a whole, because it is asked for as a whole."""


@pytest.fixture
def filled(store: str) -> str:
    channels.add(UC, "Somebody", 5, NOW)
    facts = [videos.VideoFacts(f"v{number}", UC, "T", None, NOW - number * 3_600) for number in range(300)]
    videos.save([(one, videos.RefreshPlan("hot", NOW)) for one in facts], NOW)
    for hour in range(10):
        captures = [stats.VideoStats(f"{one.id}-{hour}", one.id, NOW - hour * 3_600, 1, 1, 1, 1, 1) for one in facts]
        stats.save_videos(captures)
    for number in range(400):
        job = jobs.enqueue(jobs.NewCatalogJob("REFRESH_HOT_VIDEOS", f"k{number}"), NOW).job
        if number > 20:
            db.run("UPDATE jobs SET status = 'completed', completed_at = ? WHERE id = ?", NOW - 1, job.id)
    stats.save_channel(stats.make_channel_stats(UC, NOW, **dict.fromkeys(stats._CHANNEL[4:])))
    jobs.complete(jobs.claim(NOW), {}, NOW)
    if store == "postgres":
        db.run("VACUUM ANALYZE jobs")  # what an update left behind is no row
        db.run("SET enable_seqscan = off")  # these tables are small: the question is whether an index can be used
    return store


@pytest.mark.parametrize("name", PATTERNS)
def test_the_pattern_uses_its_index(filled, name):
    call, index = PATTERNS[name]
    statement, values = asked(call)
    plan = plan_of(statement, values, filled)
    assert re.search(index, plan), plan
    scanned = set(re.findall(r"(?:SCAN|Seq Scan on) (\w+)\b(?! USING)", plan)) - WHOLE.get(name, set())
    scanned = {table for table in scanned if not re.search(rf"SCAN {table} USING (COVERING )?INDEX", plan)}
    assert scanned == set(), plan


def asked(call: Callable[[], Any]) -> tuple[str, tuple[Any, ...]]:
    """The first SELECT that it makes."""
    seen: list[tuple[str, tuple[Any, ...]]] = []
    hooks = db.database.obj.query_hooks
    hooks.append(lambda query: seen.append((query.sql, tuple(query.params or ()))))
    try:
        call()
    finally:
        hooks.pop()
    return next((sql, values) for sql, values in seen if sql.strip().startswith("SELECT") and "pg_" not in sql)


def plan_of(statement: str, values: tuple[Any, ...], store: str) -> str:
    if store == "sqlite":
        cursor = db.database.execute_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        return "\n".join(row[3] for row in cursor.fetchall())
    cursor = db.database.execute_sql(f"EXPLAIN {statement}", values)
    return "\n".join(row[0] for row in cursor.fetchall())


def test_finished_jobs_are_not_read_to_find_the_next(filled):
    """As rows read: there are 20 that wait, and 380 that do not."""
    if filled == "sqlite":
        assert catalogue.rows_read(lambda: jobs.due(NOW, 10)) == 10
        return
    plan = db.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {jobs.due_sql(10)}", NOW)[0][0]
    tree = plan if isinstance(plan, list) else json.loads(plan)
    assert rows_read(tree[0]["Plan"]) <= 2 * 20, "each once in the index, once in the table"


def rows_read(node: dict[str, Any]) -> int:
    own = int(node["Actual Rows"] * node["Actual Loops"]) if "Scan" in node["Node Type"] else 0
    return own + sum(rows_read(child) for child in node.get("Plans", []))
