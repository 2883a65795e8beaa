"""Destinations: address, event filter, batch sizes and concurrency of each configured receiver."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from csi.config.settings import RESEND, STREAM, TIERS, DestinationSettings, JsonForm, PriorityBehavior, Settings
from csi.emitter.http import Receiver

DEFAULT = "default"
"""The destination of `ua_endpoint`."""

LANES = (*TIERS, STREAM, RESEND)
"""Events of one lane share batches; lanes do not wait for each other."""


@dataclass(frozen=True)
class EventFilter:
    """Which events a destination gets. An empty set accepts all."""

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
    wanted: EventFilter = field(default_factory=EventFilter)
    canonical_json: JsonForm = "auto"
    max_events_per_request: int = 100
    max_concurrent_requests: int = 4
    max_streaming_requests: int = 10

    def batch_size(self, lane: str) -> int:
        """Events in one request of this lane."""
        return min(self.tiers.of(lane).batch_size, self.max_events_per_request)


def destinations(settings: Settings) -> dict[str, Destination]:
    """All of them by name; the one of `ua_endpoint` is there unless only named ones are configured."""
    delivery = settings.delivery
    found = {name: _destination(name, settings, given) for name, given in delivery.destinations.items()}
    if delivery.ua_endpoint or not found:
        found[DEFAULT] = _destination(DEFAULT, settings)
    return found


def _destination(name: str, settings: Settings, given: DestinationSettings | None = None) -> Destination:
    """One destination. A key that `given` leaves out has the value of `delivery`; None: the one of `ua_endpoint`."""
    delivery, named = settings.delivery, settings.secrets.named
    if given is None:
        url, secret, bearer = delivery.ua_endpoint or "", delivery.shared_secret, delivery.bearer_token
        wanted = EventFilter()
    else:
        url, secret, bearer = given.endpoint, named.get(given.secret_env), named.get(given.bearer_env or "")
        wanted = EventFilter(frozenset(given.sources), frozenset(given.event_types), frozenset(given.tags))
    key = secret.get_secret_value() if secret else ""
    token = bearer.get_secret_value() if bearer else key

    def own(name: str) -> Any:
        value = getattr(given, name, None)
        return getattr(delivery, name) if value is None else value

    return Destination(
        name=name,
        receiver=Receiver(url, key, token, own("timeout_seconds"), own("standard_webhooks")),
        tiers=own("priority_behavior"),
        wanted=wanted,
        canonical_json=own("canonical_json"),
        max_events_per_request=own("max_events_per_request"),
        max_concurrent_requests=own("max_concurrent_requests"),
        max_streaming_requests=max((source.max_concurrent_events for source in settings.sources.values()), default=10),
    )
