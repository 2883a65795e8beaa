"""Retention of the catalogue: thin hourly captures to daily ones, archive old rows in files, delete older ones."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from csi.catalog import archive_files
from csi.catalog.archive_files import ArchiveError
from csi.catalog.data_api import UNITS
from csi.logs import log
from csi.pipeline import clock_check
from csi.runtime import Runtime
from csi.store import api_units, heartbeats
from csi.store.catalog import archives, partitions, stats
from csi.store.catalog.archives import ArchiveKind
from csi.store.catalog.partitions import month_after, month_of, month_starts
from csi.store.db import writing
from csi.worker.retention import trusted_moment

DAY = 86_400.0
STRICT_DAYS = 30
STRICT_TABLES = ("video_stats", "channel_stats")
NAME = "catalog_retention"
THINNED = "catalog_thinned"
"""A heartbeat row: captures before this time are thinned to one per day."""

CHUNKS_PER_RUN = 200
REST_SECONDS = 0.02

Chunk = tuple[str, int]
"""What was done with rows (`archived …`, `removed …`), and with how many."""

Span = tuple[str, float, float]
"""A month, and the start and end of the time range in it."""


@dataclass(frozen=True)
class CatalogRetentionResult:
    """Rows by what was done with them. Not `complete`: the next run continues."""

    rows: dict[str, int] = field(default_factory=dict)
    complete: bool = True

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def archive_old_rows_hourly(rt: Runtime) -> CatalogRetentionResult:
    """One bounded run. It stops when a file cannot be written; only rows that were written are deleted."""
    if clock_check.is_held(rt):
        return CatalogRetentionResult(complete=False)
    moment = trusted_moment(rt, NAME)
    if (limit := rt.settings.catalog.subpartition_rows) and (months := partitions.divide_next_month(moment, limit)):
        log.info("months of statistics divided", tables=months)
    try:
        done = archive_old_rows(rt, moment=moment, max_chunks=CHUNKS_PER_RUN)
    except ArchiveError as error:
        log.error("the archive cannot be written; old rows are kept", error=str(error))
        return CatalogRetentionResult(complete=False)
    heartbeats.write(NAME, moment, moment)
    if done.total:
        rows = {word.replace(" ", "_"): count for word, count in done.rows.items()}
        log.info("old catalogue rows archived or deleted", complete=done.complete, **rows)
    return done


def archive_old_rows(
    rt: Runtime,
    *,
    moment: float | None = None,
    max_chunks: int | None = None,
    rest: Callable[[float], None] = time.sleep,
) -> CatalogRetentionResult:
    """Process all rows that are past their retention at `moment`, one chunk at a time."""
    now, done = rt.now() if moment is None else moment, Counter[str]()
    for number, (word, count) in enumerate(_chunks(rt, now), start=1):
        done[word] += count
        if number == max_chunks:
            return CatalogRetentionResult(dict(done), False)
        rest(REST_SECONDS)
    return CatalogRetentionResult(dict(done))


def survey(rt: Runtime) -> CatalogRetentionResult:
    """What a run would do now; changes nothing."""
    now, days = rt.now(), rt.settings.catalog
    found = Counter[str]()
    if rt.settings.retention.youtube_policy == "strict":
        for table in STRICT_TABLES:
            found[f"removed {table}"] = archives.count_before(table, now - STRICT_DAYS * DAY)
        found["removed archive files"] = sum(book.kind == "video_stats" for book in archives.every())
    else:
        year, month = now - days.daily_stats_days * DAY, now - days.hourly_stats_days * DAY
        months = _old_months("video_stats", year, now)
        found["archived video_stats"] = sum(archives.count_rows("video_stats", low, high) for _, low, high in months)
        thinned = (day for day in _unthinned_days(month, now) if day[1] >= year)
        found["archived video_stats"] += sum(archives.count_surplus(low, high) for _, low, high in thinned)
    months = _old_months("jobs", now - days.jobs_days * DAY, now)
    found["archived jobs"] = sum(archives.count_rows("jobs", low, high) for _, low, high in months)
    found["removed job_events"] = archives.count_before("job_events", now - days.job_events_days * DAY)
    found["removed jobs"] = archives.count_before("jobs", now - days.job_metadata_days * DAY)
    return CatalogRetentionResult({word: count for word, count in found.items() if count})


def _chunks(rt: Runtime, now: float) -> Iterator[Chunk]:
    days = rt.settings.catalog
    if rt.settings.retention.youtube_policy == "strict":
        yield from _delete_stats(rt, now - STRICT_DAYS * DAY)
    else:
        yield from _archive_months(rt, "video_stats", now - days.daily_stats_days * DAY, now, archives.drop_stats)
        # Archive all but the last capture of a video on each past day
        before = now - days.hourly_stats_days * DAY
        for month, day, end in _unthinned_days(before, now):
            choose = partial(archives.surplus_stats, day, end)
            while moved := archive_files.move(rt, "video_stats", month, choose, archives.drop_stats):
                yield "archived video_stats", moved
            heartbeats.write(
                THINNED, end, end
            )  # after the day's last chunk: a crash repeats the day, which is harmless
        with writing():
            archives.end_keeping(now)
    strip = partial(archives.strip_jobs, now=rt.now())
    yield from _archive_months(rt, "jobs", now - days.jobs_days * DAY, now, strip)
    yield from _delete("job_events", now - days.job_events_days * DAY)
    yield from _delete("jobs", now - days.job_metadata_days * DAY)
    if gone := archives.drop_budget(api_units.day_of(now - days.api_budget_days * DAY), UNITS):
        yield "removed api_budget", gone
    for table in partitions.BY_TIME:
        partitions.drop_empty(table, now - DAY)


def _archive_months(
    rt: Runtime, kind: ArchiveKind, before: float, now: float, remove: Callable[[archive_files.Rows], int]
) -> Iterator[Chunk]:
    """Move rows older than `before` into the files of their months."""
    for month, low, high in _old_months(kind, before, now):
        while moved := archive_files.move(rt, kind, month, partial(archives.old_rows, kind, low, high), remove):
            yield f"archived {kind}", moved


def _old_months(kind: ArchiveKind, before: float, now: float) -> Iterator[Span]:
    """Months with rows older than `before`, except restored months that are still kept."""
    kept, at = archives.kept_months(kind, now), archives.first_moment(kind, 0.0, before)
    while at is not None:
        month = month_of(at)
        end = month_starts(month_after(month))
        if month not in kept:
            yield month, month_starts(month), min(end, before)
        at = archives.first_moment(kind, end, before)


def _unthinned_days(before: float, now: float) -> Iterator[Span]:
    """Each day is thinned once. The days of a restored month are thinned again after the time it was kept."""
    kept, last = archives.kept_months("video_stats", now), heartbeats.last_beat(THINNED)
    again = [month_starts(month) for month in archives.released_months("video_stats", now)]
    at = archives.first_moment("video_stats", 0.0 if last is None else min([last, *again]), before)
    while at is not None and (day := at // DAY * DAY) + DAY <= before:
        if month_of(day) not in kept:
            yield month_of(day), day, day + DAY
        at = archives.first_moment("video_stats", day + DAY, before)


def _delete_stats(rt: Runtime, before: float) -> Iterator[Chunk]:
    """Delete statistics from tables and files after 30 days: YouTube's terms for API clients that were not audited."""
    while True:
        with writing():
            gone = {table: archives.drop_before(table, before) for table in STRICT_TABLES}
        if not any(gone.values()):
            break
        yield from ((f"removed {table}", count) for table, count in gone.items() if count)
    for book in archives.every():
        if book.kind == "video_stats":
            archive_files.delete(rt, book)
            yield "removed archive files", 1
    with writing():
        forgotten = stats.forget_counters(before)
    if forgotten:
        yield "forgotten counters", forgotten


def _delete(table: str, before: float) -> Iterator[Chunk]:
    """Delete chunk by chunk, one transaction each."""
    while True:
        with writing():
            count = archives.drop_before(table, before)
        if not count:
            return
        yield f"removed {table}", count
