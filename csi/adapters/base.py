"""What a source adapter is (PRD FR-1.2), and the few values that cross its border."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from csi.config.settings import FirstPoll, SourceSettings, WatchSettings
from csi.ingester.event import CreatorSignalEvent
from csi.net import Net

Via = Literal["feed", "api", "both"]
"""How a channel is read. Sources with one way only ignore it."""

Existence = Literal["exists", "missing", "unknown"]
"""What the API says of a channel or playlist; `unknown`: it could not be asked."""

# SourceError.kind, as every adapter uses it:
#   transient  network, 5xx: try again            throttled  429, 503, rate limits: `retry_after` where told
#   quota      the API says the day is used up     budget     our own ledger does not allow the call
#   auth       key or OAuth is refused             denied     this thing may not be read with what we have
#   missing    404 and the like. From a feed it proves nothing: ask `confirm`
#   malformed  an answer that is not what it should be         paused  the host is left alone for now
#   bug        our own fault


@dataclass
class RawEvent:
    """One item as the source gave it."""

    source: str
    event_type: str
    payload: dict[str, Any]
    occurred_at: str


@dataclass(frozen=True)
class WatchSpec:
    """A watch as the configuration wants it."""

    ref: str
    name: str | None = None
    route_profile: str | None = None
    tags: tuple[str, ...] = ()
    interval: float = 300.0
    first_poll: FirstPoll = "mark_seen"
    via: Via = "feed"


@dataclass(frozen=True)
class ReadResult:
    """One complete, successful read of a watch. A read that fails raises SourceError instead."""

    items: tuple[RawEvent, ...] = ()
    etag: str | None = None
    last_modified: str | None = None
    unchanged: bool = False
    """The source said so (304): no items is not an empty source."""
    unreadable: int = 0
    """Items that exist but cannot be read yet (private, deleted): neither emitted nor remembered."""
    fresh_until: float | None = None
    """The source's caches serve the same answer until then (Expires, max-age). None: not told."""
    pages: int = 1
    """API calls that this read took; for a playlist, what a full walk costs."""
    window_full: bool = False
    """The source shows its newest N only, and all N places are used: there may be more behind them."""
    host: str | None = None
    """Who answered, where it was not the watch's own host: it proves nothing about that one."""


@dataclass(frozen=True)
class Probe:
    """What one cheap call tells of a playlist without reading it."""

    item_count: int
    etag: str


@dataclass(frozen=True)
class Position:
    """Where the last read of this watch left off, and what the walk knows of it."""

    ref: str
    etag: str | None = None
    last_modified: str | None = None
    via: str = "feed"
    last_success_at: float | None = None
    """None: never read before."""
    known: Callable[[Sequence[str]], set[str]] = lambda keys: set()
    """Which of these dedupe keys were seen before."""
    emits: int | None = None
    """How many of the newest unknown items this read can emit (a first poll that only marks: 0). None: all.
    Nothing is spent on the others."""


@dataclass(frozen=True)
class Tools:
    """What an adapter may use of the outside. Tests give their own."""

    net: Net
    charge: Callable[[int], None] = lambda units: None
    """Book API units before a call; raises SourceError when the budget does not allow it."""
    exhaust: Callable[[], None] = lambda: None
    """The API says that today's budget is used up."""
    spare: Callable[[int], bool] = lambda units: True
    """Whether the budget has room, above its buffer, for work that can be left out."""
    secret: Callable[[str], str | None] = lambda name: None
    now: Callable[[], float] = field(default=lambda: 0.0)
    progress: Callable[[], None] = lambda: None
    """Called in the reading thread after each page of a walk, so that its holder can lengthen the lease.
    May raise SourceError to end the read."""


class SourceAdapter(ABC):
    """One kind of source.

    FR-1.2's three methods are the interface. The pipeline itself reads watch by watch, from a Huey thread, through
    the synchronous `read`; an adapter that only has `fetch_events` is read as a single watch (ops/decisions/0003).
    """

    Settings: ClassVar[type[SourceSettings]] = SourceSettings
    name: ClassVar[str]
    key_stems: ClassVar[tuple[str, ...]] = ()
    """What may stand before an item's own id in its dedupe key, so that it is found by that. Empty: nothing does."""
    newest_first: ClassVar[bool] = False
    """The source lists its newest item first: of items of the same second the upper one is the younger."""

    def __init__(self, config: Mapping[str, Any] | SourceSettings, tools: Tools | None = None) -> None:
        self.settings = config if isinstance(config, SourceSettings) else self.Settings.model_validate(dict(config))
        self.tools = tools or Tools(net=Net())

    @abstractmethod
    async def fetch_events(self) -> list[RawEvent]:
        """Fetch new events from the source."""

    @abstractmethod
    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        """Transform raw payload to CreatorSignalEvent v1. MalformedItem when it cannot be one."""

    @abstractmethod
    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        """Generate dedupe key for the event."""

    def watches(self) -> list[WatchSpec]:
        """What to poll. A source without watches of its own is one watch, named like the source."""
        settings = self.settings
        return [
            WatchSpec(
                ref=watch.ref,
                name=watch.label,
                route_profile=watch.route_profile,
                tags=watch.tags,
                interval=watch.poll_interval_seconds or settings.poll_interval_seconds,
                first_poll=settings.first_poll if watch.first_poll is None else watch.first_poll,
                via=self.via_of(watch),
            )
            for watch in settings.watches
        ] or ([] if settings.watch_key else [self._whole_source()])

    def via_of(self, watch: WatchSettings) -> Via:
        """How this watch of the configuration is to be read."""
        return "feed"

    def read(self, position: Position) -> ReadResult:
        """Read one watch completely. Raises SourceError, and then nothing has happened."""
        return ReadResult(items=tuple(asyncio.run(self.fetch_events())))

    def item_key(self, raw: RawEvent) -> str:
        """The dedupe key of an item that was not normalized yet. MalformedItem when it has none."""
        return self.get_dedupe_key(self.normalize(raw))

    def known_key(self, ref: str, item_id: str) -> str | None:
        """The dedupe key of an item of this watch, where it follows from the item's id alone."""
        return None

    def host(self, ref: str, via: str = "feed") -> str:
        """Which host (`name` or `name:port`) this watch is read from. Empty: none in particular."""
        return ""

    def lacks(self) -> str | None:
        """What has to be set before reads that cost units can succeed. None: nothing."""
        return None

    def feed_url(self, ref: str) -> str | None:
        """The feed of this watch, where it has one."""
        return None

    def fill_gap(self, position: Position, since: float | None) -> ReadResult | None:
        """Items newer than `since` (the last successful read) that the window could not show, newest first.

        None: not possible (no key, no budget, not this kind of source); items may have been missed.
        `window_full` in the answer: it stopped at its cap, and more may be missing.
        Raises SourceError for a failure that may pass.
        """
        return None

    def confirm(self, ref: str) -> Existence:
        """Ask the API whether this thing is really gone. Costs a unit; never raises SourceError."""
        return "unknown"

    def probe(self, refs: Sequence[str]) -> dict[str, Probe]:
        """Size and version of many watches for a unit per 50. A ref that is not in the answer proves nothing."""
        return {}

    def _whole_source(self) -> WatchSpec:
        settings = self.settings
        return WatchSpec(ref=self.name, interval=settings.poll_interval_seconds, first_poll=settings.first_poll)


class WatchedSource(SourceAdapter):
    """A source that is read watch by watch; FR-1.2's `fetch_events` is then all watches, one after the other."""

    @abstractmethod
    def read(self, position: Position) -> ReadResult:
        """Read one watch completely."""

    async def fetch_events(self) -> list[RawEvent]:
        readings = [await asyncio.to_thread(self.read, Position(spec.ref)) for spec in self.watches()]
        return [item for reading in readings for item in reading.items]
