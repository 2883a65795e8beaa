"""The interface of a source adapter (PRD FR-1.2) and the values that it takes and returns."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from csi.config.source_settings import SourceSettings, WatchSettings
from csi.errors import SourceError
from csi.ingester.event import CreatorSignalEvent
from csi.net import AddressGuard, Net

Via = Literal["feed", "api", "both"]
"""How a channel is read. Sources with one way only ignore it."""

Existence = Literal["exists", "missing", "unknown"]
"""Whether the API lists a channel or playlist; `unknown`: the API could not be called."""

# SourceError.kind, as every adapter uses it:
#   transient  network error, 5xx: try again       throttled  429, 503, rate limit; `retry_after` if the host sent one
#   quota      the API reports the day's quota used budget     our own quota ledger does not allow the call
#   auth       API key or OAuth token rejected      denied     not readable with the configured credentials
#   gone       410: the source says that it will not come back
#   missing    404. A feed answers 404 for channels that exist, too: call `confirm`
#   malformed  the response is not what it should be           paused  polling of this host is paused
#   empty      no items three times in a row, although the watch listed some before (set by the pipeline)
#   bug        an error in CSI


@dataclass
class RawEvent:
    """One item as the source listed it, before normalization."""

    source: str
    event_type: str
    payload: dict[str, Any]
    occurred_at: str


@dataclass(frozen=True)
class ReadResult:
    """One complete, successful read of a watch. A read that fails raises SourceError instead."""

    items: tuple[RawEvent, ...] = ()
    etag: str | None = None
    last_modified: str | None = None
    unchanged: bool = False
    """The source reported no change (304): `items` is empty although the source is not."""
    unreadable: int = 0
    """Items without readable content (private, deleted): neither emitted nor remembered as seen."""
    fresh_until: float | None = None
    """Until then the source's caches serve the same response (Expires, max-age). None: unknown."""
    pages: int = 1
    """API calls that this read took; for a playlist, what a full walk costs."""
    window_full: bool = False
    """The source lists only its newest N items and listed N: older new items may be missing."""
    state: Mapping[str, Any] | None = None
    """What the adapter wants to remember of this watch, as plain JSON. None: what it remembered before."""
    title: str | None = None
    """The watch's name according to the source: of a channel, a list, a feed. None: this read did not tell it."""
    icon: str | None = None
    """The address of the watch's icon according to the source. None: this read did not tell it."""
    again_after: float | None = None
    """Read again after so many seconds, and not at the watch's interval."""
    missed_since: float | None = None
    """Items published since then are missing: the source does not list them any more."""
    host: str | None = None
    """The host that was read instead of the watch's own; the result says nothing about the health of the latter."""


@dataclass(frozen=True)
class Position:
    """The state of a watch before a read: validators, last success, known keys."""

    ref: str
    etag: str | None = None
    last_modified: str | None = None
    via: str = "feed"
    last_success_at: float | None = None
    """None: never read before."""
    known: Callable[[Sequence[str]], set[str]] = lambda keys: set()
    """Returns those of the given dedupe keys that were seen before."""
    emits: int | None = None
    """How many of the newest unknown items this read can emit (0 for a first poll with mark_seen). None: all.
    The adapter spends no API units on the others."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the adapter remembered of this watch with its last successful read (`ReadResult.state`)."""
    wants_title: bool = False
    """The watch has no name yet: the adapter may spend a unit to look it up."""
    is_announced: bool = False
    """A push announced an item that no read has listed yet: a cached response may be too old."""
    progress: Callable[[], None] = lambda: None
    """Called between two pages of a long read: extends the lease. Raises SourceError when it was lost."""


@dataclass(frozen=True)
class PushTopic:
    """Where the changes of a watch are announced: a hub of WebSub, and the name that it has there."""

    hub_url: str
    topic: str
    is_foreign: bool = False
    """The source names the hub, not the configuration: it is reached like any address that others choose."""


@dataclass(frozen=True)
class PushContent:
    """What one push says, by dedupe key. Only a read makes events of it."""

    keys: tuple[str, ...] = ()
    removed: Mapping[str, float] = field(default_factory=dict)
    """Items that are deleted or private since then."""


@dataclass(frozen=True)
class Member:
    """A watch of a source that reads several watches in one request."""

    ref: str
    interval: float
    state: Mapping[str, Any] = field(default_factory=dict)
    error_kind: str | None = None
    """The kind of its last failure. None: its last read succeeded."""


@dataclass(frozen=True)
class StreamState:
    """What a source says of a stream that was announced."""

    is_announced: bool = False
    """It has not begun."""
    scheduled_at: float | None = None
    started_at: float | None = None
    """When it began, also if it is over."""


@dataclass(frozen=True)
class Tools:
    """What an adapter may use: HTTP, quota, secrets, time. An adapter knows neither database nor queue."""

    net: Net
    web: Net = field(default_factory=lambda: Net(guard=AddressGuard()))
    """For URLs that users or feeds choose: reaches public addresses only, and hosts that the configuration allows."""
    charge: Callable[[int], None] = lambda units: None
    """Book API units before the call: a crash after the call then never leaves used units unbooked. Raises
    SourceError("budget") when the budget does not allow it."""
    exhaust: Callable[[], None] = lambda: None
    """Record that the API reported today's quota as used up."""
    note_access: Callable[[str, str | None], None] = lambda name, error: None
    """Record that the API refused these credentials (`error`), or accepted them (None)."""
    spare: Callable[[int], bool] = lambda units: True
    """Whether the budget has units above its buffer, for optional work."""
    secret: Callable[[str], str | None] = lambda name: None
    now: Callable[[], float] = field(default=lambda: 0.0)
    spacing: Callable[[str], float] = lambda host: 0.0
    """The seconds between two requests to this host."""


@dataclass(frozen=True)
class FoundWatch:
    """The watch that a text means (`SourceAdapter.discover`)."""

    ref: str
    """What identifies the watch within its source: the value of its required key."""
    title: str | None = None
    """Its name, if the source gives it."""
    remark: str | None = None
    """What the operator should know, in one sentence."""


@dataclass(frozen=True)
class SampleAnswer:
    """One answer of the source."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceSamples:
    """A small recorded source. The conformance suite (csi.testing) reads it in place of the network."""

    settings: Mapping[str, Any]
    """The block `sources.<name>`, with at least one watch if the source has a list of them."""
    answers: Mapping[str, SampleAnswer] = field(default_factory=dict)
    """By the beginning of the requested URL; the longest one wins."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """By variable, the secrets that the settings name."""
    now: float = 1_771_761_600.0
    """The time at which the answers were given."""


class SourceAdapter(ABC):
    """One kind of source.

    The three abstract methods are the PRD's interface. The pipeline reads watch by watch, from a Huey thread, through
    the synchronous `read`; an adapter that has only `fetch_events` is read as a single watch. # decision 0003
    """

    Settings: ClassVar[type[SourceSettings]] = SourceSettings
    name: ClassVar[str]
    key_stems: ClassVar[tuple[str, ...]] = ()
    """Prefixes of an item's id in its dedupe keys; a search by the bare id tries each of them."""
    lists_the_past: ClassVar[bool] = False
    """A watch of this source always lists its newest items: one that listed some and lists none is broken."""
    reads_groups: ClassVar[bool] = False
    """One request reads several watches: the pipeline calls `group_of` and `read_group` instead of `read`."""
    newest_first: ClassVar[bool] = False
    """The source lists its newest item first: of two items of the same second the first one is newer."""

    def __init__(self, config: Mapping[str, Any] | SourceSettings, tools: Tools | None = None) -> None:
        self.settings = config if isinstance(config, SourceSettings) else self.Settings.model_validate(dict(config))
        self.tools = tools or Tools(net=Net())

    @abstractmethod
    async def fetch_events(self) -> list[RawEvent]:
        """Fetch new events from the source."""

    @abstractmethod
    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        """Transform raw payload to CreatorSignalEvent v1. Raises MalformedItem when a required field is missing."""

    @abstractmethod
    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        """Generate dedupe key for the event."""

    def via_of(self, watch: WatchSettings) -> Via:
        """How this configured watch is read."""
        return "feed"

    def read(self, position: Position) -> ReadResult:
        """Read one watch completely. After a SourceError nothing was changed."""
        return ReadResult(items=tuple(asyncio.run(self.fetch_events())))

    @classmethod
    def samples(cls) -> SourceSamples | None:
        """Recorded answers of this source. None: there are none, and the conformance suite cannot read it."""
        return None

    def discover(self, text: str) -> FoundWatch | None:
        """The watch that this text of an operator (`csi sources add TEXT`) means: a URL, an id, a name. None: it means
        none of this source. Raises SourceError when the source had to be asked and could not be read."""
        return None

    def group_of(self, ref: str, members: Sequence[Member]) -> Sequence[str]:
        """The refs that are read together with this one, itself included. `members`: all watches of the source."""
        return (ref,)

    def read_group(
        self, positions: Sequence[Position], members: Sequence[Member]
    ) -> Mapping[str, ReadResult | SourceError]:
        """Read these watches in one request; the result of each by its ref. Raises SourceError when it failed for
        all."""
        return {position.ref: self.read(position) for position in positions}

    def item_key(self, raw: RawEvent) -> str:
        """The dedupe key of an item before normalization. Raises MalformedItem when it has none."""
        return self.get_dedupe_key(self.normalize(raw))

    def known_key(self, ref: str, item_id: str) -> str | None:
        """The dedupe key of an item of this watch, if it follows from the item's id alone."""
        return None

    def shared_key(self, key: str) -> str | None:
        """The key that an item with this dedupe key shares with items of other watches: of these the first is sent.
        None: the item shares none."""
        return None

    def host(self, ref: str, via: str = "feed") -> str:
        """The host (`name` or `name:port`) that this watch is read from. Empty: no single host."""
        return ""

    def paced_as(self, ref: str, via: str = "feed") -> str:
        """The host whose pace applies to a read of this watch. Empty: none."""
        return self.host(ref, via)

    def lacks(self) -> str | None:
        """The settings that are missing for reads that cost API units. None: no setting is missing."""
        return None

    def feed_url(self, ref: str) -> str | None:
        """The feed's URL of this watch, if it has one."""
        return None

    def push_topic(self, ref: str, state: Mapping[str, Any]) -> PushTopic | None:
        """Where changes of this watch are announced. `state`: what the adapter remembered of the watch. None: nowhere,
        as far as is known."""
        return None

    def read_push(self, ref: str, body: bytes, now: float) -> PushContent:
        """What a verified push of this watch says. Raises SourceError when it cannot be read; the watch is read all
        the same."""
        return PushContent()

    def fill_gap(self, position: Position, since: float | None) -> ReadResult | None:
        """Items newer than `since` (the last successful read) that the window did not show, newest first.

        None: not possible (no key, a refused key, not supported by the source); items were missed.
        `window_full` in the result: the walk stopped at its cap, and more items may be missing.
        Raises SourceError for a temporary failure.
        """
        return None

    def awaited_stream(self, event: CreatorSignalEvent) -> str | None:
        """The video of an event that announces a stream whose start is an event, too. None: this event does not."""
        return None

    def stream_states(self, videos: Sequence[str]) -> Mapping[str, StreamState]:
        """The states of announced streams, at most 50, by video; one that is not listed any more is left out. Raises
        SourceError when the source could not be asked."""
        return {}

    def started_item(self, subject: Mapping[str, Any], started_at: float) -> RawEvent:
        """The item of a stream that was announced with this subject and has begun."""
        raise NotImplementedError

    @property
    def finds_icons(self) -> bool:
        """Whether `find_icons` can find any."""
        return False

    def find_icons(self, refs: Sequence[str]) -> Mapping[str, str]:
        """Addresses of the icons of these watches, at most 50, where a read does not tell them (`ReadResult.icon`).
        Raises SourceError when the source could not be asked."""
        return {}

    def confirm(self, ref: str) -> Existence:
        """Whether this watch still exists according to the API. Costs a unit; never raises SourceError."""
        return "unknown"

    def count_items(self, ref: str, via: str) -> int | None:
        """How many items the watch lists now. None: the API does not list the watch, which may still exist."""
        return len(self.read(Position(ref, via=via, emits=0)).items)


class WatchedSource(SourceAdapter):
    """A source that is read watch by watch; the PRD's `fetch_events` reads all watches, one after the other."""

    @abstractmethod
    def read(self, position: Position) -> ReadResult:
        """Read one watch completely."""

    async def fetch_events(self) -> list[RawEvent]:
        settings = self.settings
        refs = [watch.ref for watch in settings.watches] if settings.watch_key else [self.name]
        readings = [await asyncio.to_thread(self.read, Position(ref)) for ref in refs]
        return [item for reading in readings for item in reading.items]

    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        return event.dedupe_key
