"""Length and live state of new items, by `videos.list`: where the budget has room, never in the way of delivery."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from csi.adapters.base import Position, RawEvent, Tools
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api import BATCH, DataApi, VideoDetails
from csi.errors import MalformedItem, SourceError
from csi.logs import log

MOST = 200
"""Videos asked for in one read: a list that dumps 5,000 must not use up the day's units."""

ASK_AGAIN = 900.0
"""What is not emitted yet (an upcoming stream that a filter waits for) is asked for again after this long."""

_REMEMBERED = 2_000

Named = Callable[[RawEvent], str]


class Enricher:
    """Asks once for each video, and remembers for a while what it was told."""

    def __init__(self, api: DataApi, tools: Tools) -> None:
        self._api = api
        self._tools = tools
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, VideoDetails]] = {}

    def enrich(self, items: Sequence[RawEvent], position: Position, key: Named, video: Named) -> tuple[RawEvent, ...]:
        """The same items; the new ones among them carry `facts` in their payload, where the API could be asked."""
        new = self._new(items, position, key, video)
        if not new:
            return tuple(items)
        facts = self._facts(list(dict.fromkeys(new.values())))
        return tuple(_with_facts(raw, facts.get(new.get(place, ""))) for place, raw in enumerate(items))

    def _new(self, items: Sequence[RawEvent], position: Position, key: Named, video: Named) -> dict[int, str]:
        """The newest items that nobody has seen, by their place: those that this read can emit, and not too many."""
        if not items or position.emits == 0 or not self._api.usable:
            return {}
        keys = {place: name for place, raw in enumerate(items) if (name := _named(raw, key)) is not None}
        known = position.known(list(keys.values()))
        places = sorted((p for p, name in keys.items() if name not in known), key=lambda p: items[p].occurred_at)
        newest = places[-min(position.emits or MOST, MOST) :]
        return {place: name for place in newest if (name := _named(items[place], video)) is not None}

    def _facts(self, videos: list[str]) -> dict[str, VideoDetails]:
        now, told = self._tools.now(), dict(self._told)
        unasked = [name for name in videos if name not in told or not 0 <= now - told[name][0] < ASK_AGAIN]
        for start in range(0, len(unasked), BATCH):
            asked = unasked[start : start + BATCH]
            self._tools.progress()
            answer = self._ask(asked)
            if answer is None:
                break
            told |= {name: (now, answer.get(name, VideoDetails())) for name in asked}
        self._remember({name: told[name] for name in videos if name in told})
        return {name: told[name][1] for name in videos if name in told}

    def _ask(self, videos: list[str]) -> dict[str, VideoDetails] | None:
        if not self._tools.spare(1):
            return None
        try:
            return self._api.videos(videos)
        except SourceError as error:
            log.info("videos are not enriched", error=str(error), kind=error.kind, items=len(videos))
            return None

    def _remember(self, told: dict[str, tuple[float, VideoDetails]]) -> None:
        with self._lock:
            self._told = {**dict(list(self._told.items())[-_REMEMBERED:]), **told}


def _named(raw: RawEvent, name: Named) -> str | None:
    try:
        return name(raw)
    except (MalformedItem, KeyError, TypeError, AttributeError):
        return None


def _with_facts(raw: RawEvent, facts: VideoDetails | None) -> RawEvent:
    if facts is None:
        return raw
    return replace(raw, payload={**raw.payload, "facts": {"duration_seconds": facts.duration, "live": facts.live}})


def facts_of(raw: RawEvent) -> VideoDetails | None:
    """What enrichment added to an item. None: it was not asked for."""
    facts = raw.payload.get("facts")
    if not isinstance(facts, dict):
        return None
    live, duration = facts.get("live"), facts.get("duration_seconds")
    return VideoDetails(
        duration=duration if isinstance(duration, int) else None, live=live if live in video_fields.STREAMS else None
    )
