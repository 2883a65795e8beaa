"""One destination for its operator: figures of a day, settings without secrets, last requests. Reads only."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from csi.config.delivery_settings import DestinationSettings
from csi.emitter.failure_cause import without_code
from csi.runtime import Runtime
from csi.status.destinations import DestinationStatus, all_destinations, destination_status, known_name
from csi.store import managed_destinations
from csi.store.managed_destinations import ManagedDestination
from csi.store.queries import destination_attempts
from csi.store.queries.destination_attempts import DestinationAttempt, DestinationFigures

DAY = 86_400.0
SHOWN_ATTEMPTS = 10
Origin = Literal["config", "command", "agent"]


@dataclass(frozen=True)
class DestinationSummary:
    """The state of a destination, and its requests of a day."""

    status: DestinationStatus
    row: ManagedDestination | None
    """None: it is from the configuration."""
    url: str
    """Without what may be secret; empty: it is no longer configured."""
    day: DestinationFigures

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def origin(self) -> Origin:
        return "config" if self.row is None else "command" if self.row.owner is None else "agent"

    @property
    def expires_at(self) -> float | None:
        """Of the subscription of an agent."""
        return self.row.expires_at if self.row is not None else None

    @property
    def queued(self) -> int:
        return self.status.pending + self.status.in_flight


@dataclass(frozen=True)
class SecretRotation:
    """The overlap of the last rotation."""

    previous_until: float
    previous_needed_at: float | None
    """When the receiver last refused the new secret and accepted the previous one."""
    signs_with_both: bool
    """Each request has both signatures: which of them the receiver verifies is not known."""


@dataclass(frozen=True)
class DestinationDetails(DestinationSummary):
    """The same with its settings and its last requests."""

    settings: dict[str, Any]
    """Secrets are named by their variables. Empty for the destination of `ua_endpoint`."""
    attempts: tuple[DestinationAttempt, ...]

    @property
    def rotation(self) -> SecretRotation | None:
        """None: no secret was rotated with an overlap."""
        if self.row is None or self.row.previous_until is None:
            return None
        signs_with_both = self.settings.get("signature") == "standard_webhooks"
        return SecretRotation(self.row.previous_until, self.row.previous_needed_at, signs_with_both)


def summaries(rt: Runtime) -> list[DestinationSummary]:
    return [_summary(rt, one) for one in all_destinations(rt)]


def details(rt: Runtime, name: str) -> DestinationDetails:
    """UnknownDestination where neither the configuration nor the database has the name."""
    found = _summary(rt, destination_status(rt, known_name(rt, name)))
    given = rt.settings.delivery.destinations.get(name)
    if found.row is not None:
        given = DestinationSettings.model_validate_json(found.row.settings_json)
    settings = given.model_dump(mode="json", include=given.model_fields_set) if given is not None else {}
    last = destination_attempts.last(name, SHOWN_ATTEMPTS)
    attempts = tuple(replace(one, reason=without_code(one.reason) if one.reason else None) for one in last)
    return DestinationDetails(**vars(found), settings=settings, attempts=attempts)


def _summary(rt: Runtime, status: DestinationStatus) -> DestinationSummary:
    made, day = rt.destinations.get(status.name), destination_attempts.figures(status.name, rt.now() - DAY)
    return DestinationSummary(status, managed_destinations.find(status.name), made.address if made else "", day)
