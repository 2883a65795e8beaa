"""The icons of watches whose reads do not tell them: looked up through the API, many for one unit.

`watches.icon_due_at` remembers the next lookup. Only the address is stored; nothing is downloaded.
"""

from csi.errors import SourceError
from csi.ingester.text import icon_address
from csi.logs import log
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import watch_admin
from csi.store.db import writing

AT_ONCE = 50
SOON, LATER = 3600.0, 30 * 86_400.0
"""The next lookup: after one that failed or whose process died, and after one that succeeded."""
ROUND_SECONDS = 30.0


def due_lookups(rt: Runtime) -> list[Wake]:
    """Optional work: a wake-up for each source, while the budget has room."""
    now = rt.now()
    if 0 <= now - rt.process.icons_looked_at < ROUND_SECONDS:
        return []
    rt.process.icons_looked_at = now
    able = [name for name in rt.enabled_sources() if rt.adapter(name).finds_icons]
    sources = watch_admin.without_icon(able, now)
    return [Wake("icons", source) for source in sources] if sources and rt.has_spare(1) else []


def find(rt: Runtime, source: str) -> None:
    now = rt.now()
    with writing():
        watches = watch_admin.claim_icons(source, now, until=now + SOON, limit=AT_ONCE)
    if not watches or source not in rt.enabled_sources() or not rt.has_spare(1):
        return
    try:
        found = rt.adapter(source).find_icons(list(watches))
    except SourceError as error:
        log.info("icons are not looked up", source=source, error=str(error), kind=error.kind)
        return
    with writing():
        for ref, watch_id in watches.items():
            watch_admin.set_icon(watch_id, icon_address(found.get(ref)), now + LATER)
