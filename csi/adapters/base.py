"""What a source adapter is (PRD FR-1.2), and the few values that cross its border."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from csi.ingester.config import FirstPoll, SourceSettings
from csi.ingester.event import CreatorSignalEvent
from csi.net import Net


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


@dataclass(frozen=True)
class Reading:
    """One complete, successful read of a watch. A read that fails raises SourceError instead."""

    items: tuple[RawEvent, ...] = ()
    etag: str | None = None
    last_modified: str | None = None
    unchanged: bool = False
    """The source said so (304): no items is not an empty source."""
    unreadable: int = 0
    """Items that exist but cannot be read yet (private, deleted): neither emitted nor remembered."""


@dataclass(frozen=True)
class Position:
    """Where the last read of this watch left off."""

    ref: str
    etag: str | None = None
    last_modified: str | None = None


@dataclass(frozen=True)
class Tools:
    """What an adapter may use of the outside. Tests give their own."""

    net: Net
    charge: Callable[[int], None] = lambda units: None
    """Book API units before a call; raises SourceError when the budget does not allow it."""
    exhaust: Callable[[], None] = lambda: None
    """The API says that today's budget is used up."""
    secret: Callable[[str], str | None] = lambda name: None
    now: Callable[[], float] = field(default=lambda: 0.0)


class SourceAdapter(ABC):
    """One kind of source.

    FR-1.2's three methods are the interface. The pipeline itself reads watch by watch, from a Huey thread, through
    the synchronous `read`; an adapter that only has `fetch_events` is read as a single watch (ops/decisions/0003).
    """

    Settings: ClassVar[type[SourceSettings]] = SourceSettings
    name: ClassVar[str]

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
                name=watch.name,
                route_profile=watch.route_profile,
                tags=watch.tags,
                interval=watch.poll_interval_seconds or settings.poll_interval_seconds,
                first_poll=settings.first_poll if watch.first_poll is None else watch.first_poll,
            )
            for watch in settings.watches
        ] or ([] if settings.watch_key else [self._whole_source()])

    def read(self, position: Position) -> Reading:
        """Read one watch completely. Raises SourceError, and then nothing has happened."""
        return Reading(items=tuple(asyncio.run(self.fetch_events())))

    def item_key(self, raw: RawEvent) -> str:
        """The dedupe key of an item that was not normalized yet. MalformedItem when it has none."""
        return self.get_dedupe_key(self.normalize(raw))

    def _whole_source(self) -> WatchSpec:
        settings = self.settings
        return WatchSpec(ref=self.name, interval=settings.poll_interval_seconds, first_poll=settings.first_poll)


class WatchedSource(SourceAdapter):
    """A source that is read watch by watch; FR-1.2's `fetch_events` is then all watches, one after the other."""

    @abstractmethod
    def read(self, position: Position) -> Reading:
        """Read one watch completely."""

    async def fetch_events(self) -> list[RawEvent]:
        readings = [await asyncio.to_thread(self.read, Position(spec.ref)) for spec in self.watches()]
        return [item for reading in readings for item in reading.items]
