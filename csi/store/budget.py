"""The API budget: one row per Pacific day, booked before each call, exact under several workers."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from csi import clock
from csi.store.db import writing
from csi.store.models import ApiBudget

PACIFIC = ZoneInfo("America/Los_Angeles")
"""Google's quota day ends at midnight Pacific time, 07:00 or 08:00 UTC."""


def day_of(now: float) -> str:
    return datetime.fromtimestamp(now, PACIFIC).strftime("%Y-%m-%d")


def day_ends(now: float) -> float:
    """The next Pacific midnight; days are 23 or 25 hours long when the clocks change."""
    return _midnight_after(datetime.fromtimestamp(now, PACIFIC)).timestamp()


def book(units: int, limit: int, now: float) -> bool:
    """Take units from today's budget. False: they are not there, and nothing was booked."""
    with writing():
        _open_day(limit, now)
        fits = ApiBudget.quota_used + units <= limit
        return bool(
            ApiBudget.update(quota_used=ApiBudget.quota_used + units, quota_limit=limit, last_updated_at=clock.iso(now))
            .where((ApiBudget.id == day_of(now)) & fits)
            .execute()
        )


def exhaust(limit: int, now: float) -> None:
    """The API says that nothing is left: believe it over our own count."""
    with writing():
        _open_day(limit, now)
        full = ApiBudget.update(quota_used=limit, quota_limit=limit, last_updated_at=clock.iso(now))
        full.where((ApiBudget.id == day_of(now)) & (ApiBudget.quota_used < limit)).execute()


def used(now: float) -> int:
    row = ApiBudget.get_or_none(id=day_of(now))
    return int(row.quota_used) if row else 0


def _open_day(limit: int, now: float) -> None:
    local = datetime.fromtimestamp(now, PACIFIC)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0)
    ApiBudget.insert(
        id=day_of(now),
        quota_used=0,
        quota_limit=limit,
        period_start=clock.iso(start.timestamp()),
        period_end=clock.iso(_midnight_after(local).timestamp()),
        last_updated_at=clock.iso(now),
    ).on_conflict_ignore().execute()


def _midnight_after(local: datetime) -> datetime:
    tomorrow = local.date() + timedelta(days=1)
    return datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=PACIFIC)
