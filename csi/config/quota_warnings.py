"""What reading costs in units of the YouTube Data API, in numbers and in words."""

from collections import Counter
from collections.abc import Iterable, Iterator

from csi.config.settings import Settings, SourceSettings

DAY = 86_400.0


def daily_units(seconds: float, pages: int = 1) -> int:
    """Units for a day of reads that are so many seconds apart."""
    return round(DAY / seconds * pages)


def too_much(reads: Iterable[tuple[float, int]], limit: int, buffer: int) -> str | None:
    """One sentence with the sum when these reads (interval, pages) need more than a day has; None when they fit."""
    counted = Counter(reads)
    needed = sum(count * daily_units(seconds, pages) for (seconds, pages), count in counted.items())
    if needed <= limit - buffer:
        return None
    number = sum(counted.values())
    pace = {seconds for seconds, _ in counted}
    every = f"every {min(pace):g} s" if len(pace) == 1 else f"every {min(pace):g} to {max(pace):g} s"
    kept = f", of which {buffer:,} are kept back" if needed <= limit else ""
    lists = "1 playlist" if number == 1 else f"{number:,} playlists"
    return f"{lists} {every} need {needed:,} units of {limit:,}{kept}; intervals are stretched to make the day last"


def budget_warnings(settings: Settings) -> Iterator[str]:
    """What the configuration asks for and the API does not give, by the configured watches alone."""
    for name, source in settings.sources.items():
        rule, limit = source.adaptive, source.budget_units
        if not source.enabled or rule is None or limit is None:
            continue
        if rule.min_quota_buffer >= limit:
            kept = f"min_quota_buffer {rule.min_quota_buffer:,} leaves nothing of quota_limit {limit:,}"
            yield f"sources.{name}.adaptive_polling: {kept}; everything is always idle"
        elif said := too_much(_slowest(source), limit, rule.min_quota_buffer):
            yield f"sources.{name}: {said}"


def _slowest(source: SourceSettings) -> Iterator[tuple[float, int]]:
    for watch in source.watches:
        fast = watch.poll_interval_seconds or source.poll_interval_seconds
        rule = source.adaptive
        yield (max(fast, rule.idle_interval_seconds) if rule and rule.enabled else fast), 1
