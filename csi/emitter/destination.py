"""Destinations: address, event filter, batch sizes and concurrency of each configured receiver."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from csi.config.delivery_settings import RESEND, STREAM, DestinationSettings, JsonForm, PriorityBehavior, TierSettings
from csi.config.destination_profiles import GROUP_SECONDS, signing_key
from csi.config.setting_types import TIERS, MaintenanceWindow
from csi.config.settings import Settings
from csi.config.weekly_windows import windows_end
from csi.emitter.http import Receiver
from csi.emitter.profile import Profile
from csi.ingester.signature import Form

DEFAULT = "default"
"""The destination of `ua_endpoint`."""

LANES = (*TIERS, STREAM, RESEND)
"""Events of one lane share batches; lanes do not wait for each other."""

GROUP_LANE = "standard"
"""The one lane of a destination that collects events into messages."""

MAX_GROUP = 100
"""Events in one message; it is sent before its time when so many wait."""


@dataclass(frozen=True)
class EventFilter:
    """Which events a destination gets. An empty set accepts all."""

    sources: frozenset[str] = frozenset()
    event_types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    watches: frozenset[str] = frozenset()
    tiers: frozenset[str] = frozenset()

    def accepts(self, source: str, event_type: str, tags: Iterable[str], *, watch: str, tier: str) -> bool:
        """`watch` is the watch's own name: its playlist, channel or feed; empty: the event has none."""
        return (
            (not self.sources or source in self.sources)
            and (not self.event_types or event_type in self.event_types)
            and (not self.tags or not self.tags.isdisjoint(tags))
            and (not self.watches or watch in self.watches)
            and (not self.tiers or tier in self.tiers)
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
    is_grouped: bool = False
    """All its events share one lane: one message for what was collected."""
    quiet_hours: tuple[MaintenanceWindow, ...] = ()
    timezone: str = "UTC"
    has_secret_address: bool = False
    is_guarded: bool = False
    """An agent chose its address: private addresses are not reached."""

    @property
    def profile(self) -> Profile:
        return self.receiver.profile

    @property
    def collects(self) -> bool:
        """Events wait here by design: for a message that collects them, or for the end of quiet hours."""
        return self.is_grouped or bool(self.quiet_hours)

    @property
    def address(self) -> str:
        """Its address without what may be secret: of a URL from a variable only scheme and host."""
        url = self.receiver.url.partition("?")[0]
        if self.profile.kind == "notify":
            return f"{url.partition('://')[0]}://"
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}/…" if self.has_secret_address else url

    def lane(self, lane: str) -> str:
        """The lane that an event of this lane is queued in."""
        return GROUP_LANE if self.is_grouped else lane

    def batch_size(self, lane: str) -> int:
        """Events in one request of this lane."""
        return min(self.tiers.of(lane).batch_size, self.max_events_per_request)

    def form(self, verified: str | None) -> Form:
        """The form of JSON to send: as configured, or what the receiver has verified."""
        if self.canonical_json != "auto":
            return self.canonical_json
        return "utf8" if verified == "utf8" else "ascii"

    def quiet_until(self, now: float) -> float | None:
        """When the quiet hours that have begun end; None: events may be sent."""
        return windows_end(self.quiet_hours, self.timezone, now) if self.quiet_hours else None


def destinations(settings: Settings) -> dict[str, Destination]:
    """All of them by name. The one of `ua_endpoint`, with the PRD's contract, is there unless only named ones are
    configured."""
    delivery = settings.delivery
    found = {name: build(name, given, settings) for name, given in delivery.destinations.items()}
    if delivery.ua_endpoint or not found:
        secret = delivery.shared_secret.get_secret_value() if delivery.shared_secret else ""
        bearer = delivery.bearer_token.get_secret_value() if delivery.bearer_token else secret
        receiver = Receiver(
            delivery.ua_endpoint or "", secret.encode(), bearer, delivery.timeout_seconds, delivery.standard_webhooks
        )
        found[DEFAULT] = Destination(
            name=DEFAULT,
            receiver=receiver,
            tiers=delivery.priority_behavior,
            canonical_json=delivery.canonical_json,
            max_events_per_request=delivery.max_events_per_request,
            max_concurrent_requests=delivery.max_concurrent_requests,
            max_streaming_requests=_streaming(settings),
        )
    return found


def build(
    name: str, given: DestinationSettings, settings: Settings, secrets: Mapping[str, SecretStr] | None = None
) -> Destination:
    """One destination, from the configuration file or from a row: a key that `given` leaves out has the value of
    `delivery`. `secrets` are the values of the variables that it names; None: those of the environment."""
    delivery, named = settings.delivery, settings.secrets.named if secrets is None else secrets

    def secret(variable: str | None) -> str:
        found = named.get(variable or "")
        return found.get_secret_value() if found else ""

    def own(key: str) -> Any:
        value = getattr(given, key)
        return getattr(delivery, key) if value is None else value

    profile = _profile(given, secret)
    text = secret(given.secret_env)
    # The contract's bearer token is the secret. To receivers that know only the signature the secret is never sent.
    bearer = secret(given.bearer_env) or (text if given.signature == "csi" else "")
    is_grouped = profile.kind == "notify" or given.group_seconds is not None
    is_fixed = profile.signature != "csi" or profile.template is not None or profile.kind == "notify"
    return Destination(
        name=name,
        receiver=Receiver(
            secret(given.endpoint_env) or given.endpoint or "",
            signing_key(text, given.secret_form) if text else b"",
            bearer,
            own("timeout_seconds"),
            own("standard_webhooks"),
            profile,
        ),
        tiers=_tiers(given, own("priority_behavior"), profile, is_grouped=is_grouped),
        wanted=EventFilter(
            *(frozenset(one) for one in (given.sources, given.event_types, given.tags, given.watches, given.tiers))
        ),
        # Only the contract re-encodes JSON before it verifies: every other scheme signs the bytes as they are sent.
        canonical_json="ascii" if is_fixed and own("canonical_json") == "auto" else own("canonical_json"),
        max_events_per_request=1 if profile.is_single else own("max_events_per_request"),
        max_concurrent_requests=own("max_concurrent_requests"),
        max_streaming_requests=_streaming(settings),
        is_grouped=is_grouped,
        quiet_hours=given.quiet_hours,
        timezone=settings.notify.timezone,
        has_secret_address=given.endpoint_env is not None,
    )


def _profile(given: DestinationSettings, secret: Callable[[str | None], str]) -> Profile:
    headers = {
        name: value if isinstance(value, str) else value.prefix + secret(value.value_env)
        for name, value in given.headers.items()
    }
    return Profile(
        kind=given.type,
        answers=given.answers,
        body=given.body,
        signature=given.signature,
        method=given.method,
        headers=headers,
        template=given.template,
        title=given.title,
    )


def _tiers(
    given: DestinationSettings, tiers: PriorityBehavior, profile: Profile, *, is_grouped: bool
) -> PriorityBehavior:
    if is_grouped:
        # Every tier waits for the same time: a replayed event is collected like a new one.
        delay = GROUP_SECONDS if given.group_seconds is None else given.group_seconds
        tier = TierSettings.model_construct(batch_size=MAX_GROUP, max_delay_seconds=delay)
        return PriorityBehavior(urgent=tier, standard=tier, high_volume=tier)
    if not profile.is_single:
        return tiers
    # Where each request has one event, no event waits for a batch to fill.
    return tiers.model_copy(update={tier: tiers.of(tier).model_copy(update={"batch_size": 1}) for tier in TIERS})


def _streaming(settings: Settings) -> int:
    streaming = [source for source in settings.sources.values() if source.enabled and source.streaming_mode]
    return max((source.max_concurrent_events for source in streaming), default=10)
