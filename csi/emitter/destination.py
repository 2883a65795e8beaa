"""A destination: where events go, which ones it wants, and how they travel there."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from csi.emitter.http import Receiver
from csi.ingester.config import PriorityBehavior


@dataclass(frozen=True)
class Wanted:
    """Which events a destination wants. Nothing named: all of them."""

    sources: frozenset[str] = frozenset()
    event_types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def accepts(self, source: str, event_type: str, tags: Iterable[str]) -> bool:
        return (
            (not self.sources or source in self.sources)
            and (not self.event_types or event_type in self.event_types)
            and (not self.tags or not self.tags.isdisjoint(tags))
        )


@dataclass(frozen=True)
class Destination:
    """One receiver with its settings."""

    name: str
    receiver: Receiver
    tiers: PriorityBehavior = field(default_factory=PriorityBehavior)
    wanted: Wanted = field(default_factory=Wanted)
    canonical_json: Literal["auto", "ascii", "utf8"] = "auto"
    max_events_per_request: int = 100
    max_concurrent_requests: int = 4

    def batch_size(self, tier: str) -> int:
        """Events in one request of this tier."""
        return min(self.tiers.of(tier).batch_size, self.max_events_per_request)
