"""Keeping the catalogue small: hourly captures become daily ones, old rows become files, older ones go."""

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
from csi.store.catalog.partitions import month_after, month_of, month_starts
from csi.store.db import writing
from csi.worker.retention import trusted_moment

DAY = 86_400.0
STRICT_DAYS = 30
NAME = "catalog_retention"
THINNED = "catalog_thinned"
"""A heartbeat: captures of days before this time are thinned to one a day."""

CHUNKS_PER_RUN = 200
REST_SECONDS = 0.02

Chunk = tuple[str, int]
"""What became of rows (`archived …`, `removed …`), and how many they were."""


Span = tuple[str, float, float]
"""A month, and the times in it that are meant."""


@dataclass(frozen=True)
class CatalogRetentionResult:
    """What was done, by word. `complete` False: there is more, and the next run goes on."""

    rows: dict[str, int] = field(default_factory=dict)
    complete: bool = True

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def archive_old_rows_hourly(rt: Runtime) -> CatalogRetentionResult:
    """One bounded run. A file that cannot be written stops it; nothing is removed that was not written."""
    if clock_check.is_held(rt):
        return CatalogRetentionResult(complete=False)
    moment = trusted_moment(rt, NAME)
    try:
        done = archive_old_rows(rt, moment=moment, max_chunks=CHUNKS_PER_RUN)
    except ArchiveError as error:
        log.error("the archive cannot be written; old rows stay", error=str(error))
        return CatalogRetentionResult(complete=False)
    heartbeats.beat(NAME, moment, moment)
    if done.total:
        log.info("old rows of the catalogue were put away", complete=done.complete, **_keys(done.rows))
    return done


def archive_old_rows(
    rt: Runtime,
    *,
    moment: float | None = None,
    max_chunks: int | None = None,
    rest: Callable[[float], None] = time.sleep,
) -> CatalogRetentionResult:
    """Everything that is older than its time by the clock `moment`, a chunk at a time."""
    now, done = rt.now() if moment is None else moment, Counter[str]()
    for number, (word, count) in enumerate(_chunks(rt, now), start=1):
        done[word] += count
        if number == max_chunks:
            return CatalogRetentionResult(dict(done), False)
        rest(REST_SECONDS)
    return CatalogRetentionResult(dict(done))


def survey(rt: Runtime) -> CatalogRetentionResult:
    """What a run would do now. Nothing is changed."""
    now, days = rt.now(), rt.settings.catalog
    found = Counter(_surveyed_stats(rt, now))
    found["archived jobs"] = sum(
        archives.count_jobs(low, high) for _, low, high in _old_job_months(now - days.jobs_days * DAY, now)
    )
    found["removed job_events"] = archives.count_events(now - days.job_events_days * DAY)
    found["removed jobs"] = archives.count_archived_jobs(now - days.job_metadata_days * DAY)
    return CatalogRetentionResult({word: count for word, count in found.items() if count})


def _surveyed_stats(rt: Runtime, now: float) -> dict[str, int]:
    days = rt.settings.catalog
    if rt.settings.retention.youtube_policy == "strict":
        old = archives.count_stats_before(now - STRICT_DAYS * DAY)
        files = sum(book.kind == "video_stats" for book in archives.every())
        return {f"removed {table}": count for table, count in old.items()} | {"removed archive files": files}
    year, month = now - days.daily_stats_days * DAY, now - days.hourly_stats_days * DAY
    old_rows = sum(archives.count_stats(low, high) for _, low, high in _old_months(year, now))
    surplus = sum(archives.count_surplus(low, high) for _, low, high in _unthinned_days(month, now) if low >= year)
    return {"archived video_stats": old_rows + surplus}


def _chunks(rt: Runtime, now: float) -> Iterator[Chunk]:
    days = rt.settings.catalog
    if rt.settings.retention.youtube_policy == "strict":
        yield from _forget_stats(rt, now - STRICT_DAYS * DAY)
    else:
        yield from _archive_stats(rt, now - days.daily_stats_days * DAY, now)
        yield from _thin(rt, now - days.hourly_stats_days * DAY, now)
    yield from _archive_jobs(rt, now - days.jobs_days * DAY, now)
    yield from _until_empty("removed job_events", partial(archives.drop_events, now - days.job_events_days * DAY))
    yield from _until_empty("removed jobs", partial(archives.drop_jobs, now - days.job_metadata_days * DAY))
    if gone := archives.drop_budget(api_units.day_of(now - days.api_budget_days * DAY), UNITS):
        yield "removed api_budget", gone
    for table in partitions.BY_TIME:
        partitions.drop_empty(table, now - DAY)


def _archive_stats(rt: Runtime, before: float, now: float) -> Iterator[Chunk]:
    """Captures older than a year, month by month."""
    for month, low, high in _old_months(before, now):
        choose = partial(archives.old_stats, low, high)
        while moved := archive_files.move(rt, "video_stats", month, choose, archives.drop_stats):
            yield "archived video_stats", moved


def _old_months(before: float, now: float) -> Iterator[Span]:
    kept, at = archives.kept_months("video_stats", now), archives.oldest_stats(before)
    while at is not None:
        month = month_of(at)
        end = month_starts(month_after(month))
        if month not in kept:
            yield month, month_starts(month), min(end, before)
        at = archives.next_stats(end, before)


def _thin(rt: Runtime, before: float, now: float) -> Iterator[Chunk]:
    """Of each day that is over, a video keeps its last capture."""
    for month, day, end in _unthinned_days(before, now):
        choose = partial(archives.surplus_stats, day, end)
        while moved := archive_files.move(rt, "video_stats", month, choose, archives.drop_stats):
            yield "archived video_stats", moved
        heartbeats.beat(THINNED, end, end)
    with writing():
        archives.end_keeping(now)


def _unthinned_days(before: float, now: float) -> Iterator[Span]:
    """A day is gone through once; one of a month that was put back once more, when its time is over."""
    kept, last = archives.kept_months("video_stats", now), heartbeats.last_beat(THINNED)
    again = [month_starts(month) for month in archives.released_months("video_stats", now)]
    at = archives.oldest_stats(before) if last is None else archives.next_stats(min([last, *again]), before)
    while at is not None and (day := at // DAY * DAY) + DAY <= before:
        if month_of(day) not in kept:
            yield month_of(day), day, day + DAY
        at = archives.next_stats(day + DAY, before)


def _archive_jobs(rt: Runtime, before: float, now: float) -> Iterator[Chunk]:
    strip = partial(archives.strip_jobs, now=rt.now())
    for month, low, high in _old_job_months(before, now):
        while moved := archive_files.move(rt, "jobs", month, partial(archives.old_jobs, low, high), strip):
            yield "archived jobs", moved


def _old_job_months(before: float, now: float) -> Iterator[Span]:
    kept, at = archives.kept_months("jobs", now), archives.oldest_job(before)
    while at is not None:
        month = month_of(at)
        end = month_starts(month_after(month))
        if month not in kept:
            yield month, month_starts(month), min(end, before)
        at = archives.next_job(end, before)


def _forget_stats(rt: Runtime, before: float) -> Iterator[Chunk]:
    """YouTube's terms for clients that were not audited: nothing that the API counted is older than 30 days, neither
    in the tables nor in files."""
    while any((gone := _in_transaction(archives.drop_stats_before, before)).values()):
        yield from ((f"removed {table}", count) for table, count in gone.items() if count)
    for book in archives.every():
        if book.kind == "video_stats":
            archive_files.delete(rt, book)
            yield "removed archive files", 1
    with writing():
        forgotten = stats.forget_counters(before)
    if forgotten:
        yield "forgotten counters", forgotten


def _until_empty(word: str, drop: Callable[[], int]) -> Iterator[Chunk]:
    while True:
        with writing():
            count = drop()
        if not count:
            return
        yield word, count


def _in_transaction(drop: Callable[[float], dict[str, int]], before: float) -> dict[str, int]:
    with writing():
        return drop(before)


def _keys(rows: dict[str, int]) -> dict[str, int]:
    return {word.replace(" ", "_"): count for word, count in rows.items()}
