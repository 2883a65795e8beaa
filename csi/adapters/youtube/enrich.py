"""Add length and live state to new items by `videos.list`, if the budget has room. A failure never delays an item."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from csi.adapters.base import Position, RawEvent, Tools
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api import BATCH, DataApi, VideoDetails
from csi.errors import MalformedItem, SourceError
from csi.logs import log

MOST = 200
"""Videos looked up in one read: a playlist that grows by 5,000 at once must not use up the day's units."""

ASK_AGAIN = 900.0
"""An item that stays unemitted (an upcoming stream that a filter excludes) is looked up again after this long."""

_REMEMBERED = 2_000

ItemName = Callable[[RawEvent], str]


class Enricher:
    """Looks up each new video once and caches the result. Threads may share it."""

    def __init__(self, api: DataApi, tools: Tools) -> None:
        self._api = api
        self._tools = tools
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, VideoDetails]] = {}

    def enrich(
        self, items: Sequence[RawEvent], position: Position, key: ItemName, video: ItemName
    ) -> tuple[RawEvent, ...]:
        """The same items; new ones that could be looked up carry `facts` in their payload."""
        if not items or position.emits == 0 or not self._api.usable:
            return tuple(items)
        keys = {index: name for index, raw in enumerate(items) if (name := _name_of(raw, key)) is not None}
        known = position.known(list(keys.values()))
        unknown = sorted((i for i, name in keys.items() if name not in known), key=lambda i: items[i].occurred_at)
        # The newest unknown items: those that this read can emit, at most MOST.
        newest = unknown[-min(position.emits or MOST, MOST) :]
        new = {index: name for index in newest if (name := _name_of(items[index], video)) is not None}
        details = self._look_up(list(dict.fromkeys(new.values())), position) if new else {}
        enriched = list(items)
        for index, name in new.items():
            if found := details.get(name):
                facts = {"duration_seconds": found.duration, "live": found.live}
                enriched[index] = replace(items[index], payload={**items[index].payload, "facts": facts})
        return tuple(enriched)

    def _look_up(self, videos: list[str], position: Position) -> dict[str, VideoDetails]:
        now, known = self._tools.now(), dict(self._cache)
        due = [name for name in videos if name not in known or not 0 <= now - known[name][0] < ASK_AGAIN]
        for start in range(0, len(due), BATCH):
            batch = due[start : start + BATCH]
            position.progress()
            if not self._tools.spare(1):
                break
            try:
                answer = self._api.videos(batch)
            except SourceError as error:
                log.info("videos are not enriched", error=str(error), kind=error.kind, items=len(batch))
                break
            known |= {name: (now, answer.get(name, VideoDetails())) for name in batch}
        found = {name: known[name] for name in videos if name in known}
        with self._lock:
            self._cache = {**dict(list(self._cache.items())[-_REMEMBERED:]), **found}
        return {name: details for name, (_, details) in found.items()}


def _name_of(raw: RawEvent, name: ItemName) -> str | None:
    try:
        return name(raw)
    except (MalformedItem, KeyError, TypeError, AttributeError):
        return None


def details_of(raw: RawEvent) -> VideoDetails | None:
    """What enrichment added to an item. None: the item was not looked up."""
    facts = raw.payload.get("facts")
    if not isinstance(facts, dict):
        return None
    live, duration = facts.get("live"), facts.get("duration_seconds")
    return VideoDetails(
        duration=duration if isinstance(duration, int) else None, live=live if live in video_fields.STREAMS else None
    )
