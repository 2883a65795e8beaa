"""Destinations: address, event filter, batch sizes and concurrency of each configured receiver."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from csi.config.settings import (
    STREAM,
    TIERS,
    DeliverySettings,
    DestinationSettings,
    JsonForm,
    PriorityBehavior,
    Settings,
)
from csi.emitter.http import Receiver

DEFAULT = "default"
"""The destination of `ua_endpoint`."""

LANES = (*TIERS, STREAM)
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
    streaming = max((source.max_concurrent_events for source in settings.sources.values()), default=10)
    delivery = settings.delivery
    found = {name: _named(name, given, settings, streaming) for name, given in delivery.destinations.items()}
    if delivery.ua_endpoint or not found:
        found[DEFAULT] = _default(delivery, streaming)
    return found


def _default(delivery: DeliverySettings, streaming: int) -> Destination:
    secret = delivery.shared_secret.get_secret_value() if delivery.shared_secret else ""
    bearer = delivery.bearer_token.get_secret_value() if delivery.bearer_token else secret
    return Destination(
        name=DEFAULT,
        receiver=Receiver(
            delivery.ua_endpoint or "", secret, bearer, delivery.timeout_seconds, delivery.standard_webhooks
        ),
        tiers=delivery.priority_behavior,
        canonical_json=delivery.canonical_json,
        max_events_per_request=delivery.max_events_per_request,
        max_concurrent_requests=delivery.max_concurrent_requests,
        max_streaming_requests=streaming,
    )


def _named(name: str, given: DestinationSettings, settings: Settings, streaming: int) -> Destination:
    delivery, secrets = settings.delivery, settings.secrets.named
    secret = secrets[given.secret_env].get_secret_value() if given.secret_env in secrets else ""
    bearer = secrets.get(given.bearer_env or "")
    webhooks = delivery.standard_webhooks if given.standard_webhooks is None else given.standard_webhooks
    timeout = given.timeout_seconds or delivery.timeout_seconds
    return Destination(
        name=name,
        receiver=Receiver(given.endpoint, secret, bearer.get_secret_value() if bearer else secret, timeout, webhooks),
        tiers=given.priority_behavior or delivery.priority_behavior,
        wanted=EventFilter(frozenset(given.sources), frozenset(given.event_types), frozenset(given.tags)),
        canonical_json=given.canonical_json or delivery.canonical_json,
        max_events_per_request=given.max_events_per_request or delivery.max_events_per_request,
        max_concurrent_requests=given.max_concurrent_requests or delivery.max_concurrent_requests,
        max_streaming_requests=streaming,
    )
