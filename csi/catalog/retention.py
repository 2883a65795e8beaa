"""Keeping the catalogue small: hourly captures become daily ones, old rows become files, older ones go."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from csi.catalog import archive
from csi.catalog.archive import ArchiveFault
from csi.flow.retention import trusted_moment
from csi.logs import log
from csi.runtime import Runtime
from csi.store import archives, budget, heartbeats, partitions, stats
from csi.store.db import writing
from csi.store.partitions import month_after, month_of, month_starts

DAY = 86_400.0
STRICT_DAYS = 30
NAME = "catalog_retention"
THINNED = "catalog_thinned"
"""A heartbeat: captures of days before this time are thinned to one a day."""

CHUNKS_PER_RUN = 200
REST_SECONDS = 0.02

Chunk = tuple[str, int]
"""What became of rows (`archived …`, `removed …`), and how many they were."""


@dataclass(frozen=True)
class Tidied:
    """What was done, by word. `complete` False: there is more, and the next run goes on."""

    rows: dict[str, int] = field(default_factory=dict)
    complete: bool = True

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def tidy_hourly(rt: Runtime) -> Tidied:
    """One bounded run. A file that cannot be written stops it; nothing is removed that was not written."""
    moment = trusted_moment(rt, NAME)
    try:
        done = tidy(rt, moment=moment, max_chunks=CHUNKS_PER_RUN)
    except ArchiveFault as error:
        log.error("the archive cannot be written; old rows stay", error=str(error))
        return Tidied(complete=False)
    heartbeats.beat(NAME, moment, moment)
    if done.total:
        log.info("old rows of the catalogue were put away", complete=done.complete, **_keys(done.rows))
    return done


def tidy(
    rt: Runtime,
    *,
    moment: float | None = None,
    max_chunks: int | None = None,
    rest: Callable[[float], None] = time.sleep,
) -> Tidied:
    """Everything that is older than its time by the clock `moment`, a chunk at a time."""
    now, done = rt.now() if moment is None else moment, Counter[str]()
    for number, (word, count) in enumerate(_chunks(rt, now), start=1):
        done[word] += count
        if number == max_chunks:
            return Tidied(dict(done), False)
        rest(REST_SECONDS)
    return Tidied(dict(done))


def _chunks(rt: Runtime, now: float) -> Iterator[Chunk]:
    days = rt.settings.catalog
    _end_keeping(now)
    if rt.settings.retention.youtube_policy == "strict":
        yield from _forget_stats(rt, now - STRICT_DAYS * DAY)
    else:
        yield from _archive_stats(rt, now - days.daily_stats_days * DAY, now)
        yield from _thin(rt, now - days.hourly_stats_days * DAY, now)
    yield from _archive_jobs(rt, now - days.jobs_days * DAY, now)
    yield from _until_empty("removed job_events", partial(archives.drop_events, now - days.job_events_days * DAY))
    yield from _until_empty("removed jobs", partial(archives.drop_jobs, now - days.job_metadata_days * DAY))
    if gone := archives.drop_budget(budget.day_of(now - days.api_budget_days * DAY)):
        yield "removed api_budget", gone
    for table in partitions.BY_TIME:
        partitions.drop_empty(table, now - DAY)


def _end_keeping(now: float) -> None:
    """Rows that were put back and stayed long enough are thinned once more."""
    for book in archives.every():
        if book.kept_until is not None and book.kept_until <= now:
            begin, last = month_starts(book.month), heartbeats.last_beat(THINNED)
            with writing():
                archives.keep(book.name, None)
                if book.kind == "video_stats" and last is not None and last > begin:
                    heartbeats.beat(THINNED, begin, begin)


def _archive_stats(rt: Runtime, before: float, now: float) -> Iterator[Chunk]:
    """Captures older than a year, month by month."""
    kept, at = archives.kept_months("video_stats", now), archives.oldest_stats(before)
    while at is not None:
        month = month_of(at)
        end = month_starts(month_after(month))
        choose = partial(archives.old_stats, month_starts(month), min(end, before))
        while month not in kept and (moved := archive.move(rt, "video_stats", month, choose, archives.drop_stats)):
            yield "archived video_stats", moved
        at = archives.next_stats(end, before)


def _thin(rt: Runtime, before: float, now: float) -> Iterator[Chunk]:
    """Of each day that is over, a video keeps its last capture. A day is gone through once; one of a month that was put
    back waits until that is over."""
    kept = archives.kept_months("video_stats", now)
    last = heartbeats.last_beat(THINNED)
    at = archives.oldest_stats(before) if last is None else archives.next_stats(last, before)
    while at is not None:
        day = at // DAY * DAY
        if day + DAY > before:
            return
        choose, month = partial(archives.surplus_stats, day, day + DAY), month_of(day)
        while month not in kept and (moved := archive.move(rt, "video_stats", month, choose, archives.drop_stats)):
            yield "archived video_stats", moved
        heartbeats.beat(THINNED, day + DAY, day + DAY)
        at = archives.next_stats(day + DAY, before)


def _archive_jobs(rt: Runtime, before: float, now: float) -> Iterator[Chunk]:
    kept, at = archives.kept_months("jobs", now), archives.oldest_job(before)
    while at is not None:
        month = month_of(at)
        end = month_starts(month_after(month))
        choose = partial(archives.old_jobs, month_starts(month), min(end, before))
        strip = partial(archives.strip_jobs, now=rt.now())
        while month not in kept and (moved := archive.move(rt, "jobs", month, choose, strip)):
            yield "archived jobs", moved
        at = archives.next_job(end, before)


def _forget_stats(rt: Runtime, before: float) -> Iterator[Chunk]:
    """YouTube's terms for clients that were not audited: nothing that the API counted is older than 30 days, neither
    in the tables nor in files."""
    while any((gone := _in_transaction(archives.drop_stats_before, before)).values()):
        yield from ((f"removed {table}", count) for table, count in gone.items() if count)
    for book in archives.every():
        if book.kind == "video_stats":
            archive.delete(rt, book)
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
