"""Warn about watches that need more units of the YouTube Data API than a day has."""

from collections import Counter
from collections.abc import Iterable, Iterator

from csi.config.settings import Settings

DAY = 86_400.0


def daily_units(seconds: float, pages: int = 1) -> int:
    """API units that one watch uses in a day when it is read every `seconds`."""
    return round(DAY / seconds * pages)


def too_much(reads: Iterable[tuple[float, int]], limit: int, buffer: int) -> str | None:
    """A sentence with the sum if these reads (interval, pages) need more units than a day has. None: they fit."""
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
    """Warnings for the configured watches; watches that were added by command are not counted."""
    for name, source in settings.sources.items():
        rule, limit = source.adaptive, source.budget_units
        if not source.enabled or rule is None or limit is None:
            continue
        if rule.min_quota_buffer >= limit:
            kept = f"min_quota_buffer {rule.min_quota_buffer:,} leaves nothing of quota_limit {limit:,}"
            yield f"sources.{name}.adaptive_polling: {kept}; all watches are always polled at the idle interval"
        else:
            intervals = [watch.poll_interval_seconds or source.poll_interval_seconds for watch in source.watches]
            idle = rule.idle_interval_seconds if rule.enabled else 0.0
            if warning := too_much([(max(fast, idle), 1) for fast in intervals], limit, rule.min_quota_buffer):
                yield f"sources.{name}: {warning}"
