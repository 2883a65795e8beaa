"""The YouTube API budget: a row per Pacific day and bucket, booked before each call, exact with several workers."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from csi import clock
from csi.store import counters
from csi.store.db import changed, number, run, writing

PACIFIC = ZoneInfo("America/Los_Angeles")
"""Google's quota day ends at midnight Pacific time, 07:00 or 08:00 UTC."""

Bucket = Literal["main", "stats"]
"""What a call counts against: `videos:batchGetStats` has a daily quota of its own, `stats`."""

HOUR = 3600.0
HOURLY = "api_units"
"""One counter per hour shows how fast units are used now. Kept for two days."""

CORRECTED = "api_units_corrected"
"""One counter per hour: units that no call booked, because the API reported the quota as used up; negative when the
budget opened again. Not part of the rate. Kept for two days."""

REFUSED_AT = "api_refused_at"
USED_BEFORE = "api_units_before_refusal"
"""Two counters of the day in which the API reported its quota as used up: when, and how many units were booked then."""
METHOD_REFUSED_AT = "api_method_refused_at"
"""A counter of the day: when the API refused the method of a bucket, which is not called again until the next day."""
PROBE_SECONDS = 3600.0

_UPDATE_DAY = "UPDATE api_budget SET quota_limit = ?, last_updated_at = ?,"


@dataclass(frozen=True)
class QuotaDay:
    """One Pacific day, 23 to 25 hours long, and the units used in it."""

    id: str
    used: int
    starts: float
    ends: float
    per_second: float | None
    """The rate of the last hour; None while less than ten minutes of it were measured."""


def day_of(now: float) -> str:
    return datetime.fromtimestamp(now, PACIFIC).strftime("%Y-%m-%d")


def day_starts(now: float) -> float:
    return datetime.fromtimestamp(now, PACIFIC).replace(hour=0, minute=0, second=0, microsecond=0, fold=0).timestamp()


def day_ends(now: float) -> float:
    """The next Pacific midnight; days are 23 or 25 hours long when the clocks change."""
    tomorrow = datetime.fromtimestamp(now, PACIFIC).date() + timedelta(days=1)
    return datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=PACIFIC).timestamp()


def row_id(now: float, bucket: Bucket = "main") -> str:
    """The key of a day and bucket. That of the main bucket is the day alone, as before there were buckets."""
    return day_of(now) if bucket == "main" else f"{day_of(now)}:{bucket}"


def book(units: int, limit: int, now: float, bucket: Bucket = "main") -> bool:
    """Take units from today's budget. False: fewer are left, and nothing was booked. Booked units are never returned:
    the API also counts calls that failed."""
    # Committed before the call: a crash in between loses units, but the quota is never exceeded.
    with writing():
        _open_day(limit, now, bucket)
        sql = f"{_UPDATE_DAY} quota_used = quota_used + ? WHERE id = ? AND quota_used + ? <= ?"
        values = (sql, limit, clock.iso(now), units, row_id(now, bucket), units, limit)
        booked = changed(*values) or (_reopened(now, bucket) and changed(*values))
        if booked and bucket == "main":
            hour = int(now // HOUR)
            counters.add(HOURLY, units, label=str(hour))
            # One row is added an hour, so old ones are deleted only now and then. Labels (hours since 1970) compare as
            # text: all have six digits.
            if int(now) % 60 == 0:
                run("DELETE FROM counters WHERE name = ? AND label < ?", HOURLY, str(hour - 48))
        return bool(booked)


class _ShareSpent(Exception):
    """Rolls the booking back."""


def book_share(units: int, limit: int, name: str, share: int, now: float) -> bool:
    """Like `book`, for one kind of work that may use only a share of the day. False: nothing was booked."""
    try:
        with writing():
            if not book(units, limit, now):
                return False
            counters.add(name, units, label=day_of(now))
            if share_used(name, now) > share:  # exact: `book` holds the lock on the day's row
                raise _ShareSpent
    except _ShareSpent:
        return False
    return True


def share_used(name: str, now: float) -> int:
    return int(counters.all_of(name).get(("", day_of(now)), 0))


def exhaust(limit: int, now: float, bucket: Bucket = "main") -> None:
    """Mark today's budget as used up: the API reported so, and other programs may use the same key. After
    PROBE_SECONDS the next booking opens it again with the units that were booked before: if the report was wrong, or
    the quota was raised, reads go on; else the next call is refused and closes it for another hour."""
    with writing():
        _open_day(limit, now, bucket)
        booked = used(now, bucket)
        if booked < limit:
            _remember(USED_BEFORE, booked, now, bucket)
            if bucket == "main":
                _correct(limit - booked, now)
        _remember(REFUSED_AT, now, now, bucket)
        sql = f"{_UPDATE_DAY} quota_used = ? WHERE id = ? AND quota_used < ?"
        run(sql, limit, clock.iso(now), limit, row_id(now, bucket), limit)


def note_method_refused(bucket: Bucket, now: float) -> None:
    _remember(METHOD_REFUSED_AT, now, now, bucket)


def is_method_refused(bucket: Bucket, now: float) -> bool:
    """Whether the API refused the method of this bucket today."""
    return ("", row_id(now, bucket)) in counters.all_of(METHOD_REFUSED_AT)


def _reopened(now: float, bucket: Bucket) -> bool:
    """Whether the API's report that the quota is used up was an hour ago: then the budget is open again."""
    key = row_id(now, bucket)
    at = counters.all_of(REFUSED_AT).get(("", key))
    if at is None or 0 <= now - at < PROBE_SECONDS:
        return False
    # One of several workers deletes the row.
    if not changed("DELETE FROM counters WHERE name = ? AND label = ?", REFUSED_AT, key):
        return False
    before = int(counters.all_of(USED_BEFORE).get(("", key), 0))
    if bucket == "main":
        _correct(before - used(now), now)
    return bool(changed("UPDATE api_budget SET quota_used = ? WHERE id = ?", before, key))


def _correct(units: int, now: float) -> None:
    hour = int(now // HOUR)
    counters.add(CORRECTED, units, label=str(hour))
    run("DELETE FROM counters WHERE name = ? AND label < ?", CORRECTED, str(hour - 48))


def used_by_hour() -> dict[int, int]:
    """Units by hour since 1970: what calls booked, and corrections in the hour in which they were made."""
    found: dict[int, int] = {}
    for name in (HOURLY, CORRECTED):
        for (_, label), value in counters.all_of(name).items():
            found[int(label)] = found.get(int(label), 0) + int(value)
    return found


def _remember(name: str, value: float, now: float, bucket: Bucket) -> None:
    """One value per bucket and day; those of earlier days are deleted."""
    key = row_id(now, bucket)
    run("DELETE FROM counters WHERE name = ? AND (label = ? OR label < ?)", name, key, day_of(now))
    counters.add(name, value, label=key)


def used(now: float, bucket: Bucket = "main") -> int:
    return number("SELECT quota_used FROM api_budget WHERE id = ?", row_id(now, bucket))


def today(now: float) -> QuotaDay:
    hour, into = int(now // HOUR), now % HOUR
    by_hour = {label: value for (_, label), value in counters.all_of(HOURLY).items()}
    before, ours = by_hour.get(str(hour - 1)), by_hour.get(str(hour), 0.0)
    # This hour's units, plus the part of the previous hour that lies within 60 minutes.
    per_second: float | None
    if before is not None:
        per_second = (ours + before * (1 - into / HOUR)) / HOUR
    else:
        per_second = ours / into if into >= 600 and ours else None
    return QuotaDay(day_of(now), used(now), day_starts(now), day_ends(now), per_second)


def _open_day(limit: int, now: float, bucket: Bucket) -> None:
    sql = (
        "INSERT INTO api_budget (id, bucket, quota_used, quota_limit, period_start, period_end, last_updated_at) "
        "VALUES (?, ?, 0, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
    )
    times = (clock.iso(moment) for moment in (day_starts(now), day_ends(now), now))
    run(sql, row_id(now, bucket), bucket, limit, *times)
