"""What is known of a receiver, kept over restarts: breaker, pause, last success, accepted JSON form."""

from typing import Any

from peewee import fn

from csi.store.models import DeliveryAttempt, Endpoint

DEFAULT = "default"


def get(destination: str = DEFAULT) -> Endpoint:
    found = Endpoint.get_or_none(destination=destination)
    if found is None:
        Endpoint.insert(destination=destination).on_conflict_ignore().execute()
        found = Endpoint.get_by_id(destination)
    return found


def find(destination: str = DEFAULT) -> Endpoint | None:
    """Like `get`, and writes nothing: None when nothing is known yet."""
    found: Endpoint | None = Endpoint.get_or_none(destination=destination)
    return found


def change(destination: str, **changes: Any) -> None:
    Endpoint.update(**changes).where(Endpoint.destination == destination).execute()


def failing_batches(endpoint: Endpoint) -> int:
    """How many different batches have failed since the last success."""
    since = endpoint.last_success_at or 0
    failed = (
        (DeliveryAttempt.destination == endpoint.destination)
        & (DeliveryAttempt.started_at > since)
        & (DeliveryAttempt.outcome == "transient")
    )
    return int(DeliveryAttempt.select(fn.COUNT(DeliveryAttempt.batch_id.distinct())).where(failed).scalar() or 0)
