"""Rows of first reads: their watches, and how many items they only remembered."""

from csi import clock
from csi.store.db import number
from csi.store.models import Watch

DAY = 86_400.0


def marked_as_seen(moment: float, days: float) -> int:
    """How many items the first read that ended at this moment only remembered."""
    # The expiry of its keys narrows the search to an index.
    sql = "SELECT COUNT(*) FROM dedupe_keys WHERE expires_at = ? AND first_seen_at = ? AND reason = 'first_poll'"
    return number(sql, clock.iso(moment + days * DAY), moment)


def watches_since(moment: float) -> list[Watch]:
    """Active watches whose first read was after this moment, or that were polled since then without success."""
    failed = Watch.first_read_at.is_null() & (Watch.last_poll_at >= moment)
    return list(Watch.select().where((Watch.state == "active") & ((Watch.first_read_at >= moment) | failed)))
