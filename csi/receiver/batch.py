"""Parse a verified body: the batch's envelope, and each event separately."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, StringConstraints, ValidationError

from csi.ingester.event import MAX_EVENTS_PER_REQUEST, CreatorSignalEvent
from csi.ingester.signature import canonical
from csi.receiver.request import RequestError

EventVerdict = Literal["accepted", "duplicate", "invalid"]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[ -~]+$")]

# Any id is allowed, except characters that break a database column or a log line.
_KEY = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,512}")


class BatchEnvelope(BaseModel):
    """The body. Its events are validated one by one, so that one invalid event does not reject the others."""

    csi_version: Label
    csi_instance_id: Label
    batch_id: Label
    events: list[Any]


@dataclass(frozen=True)
class ReceivedEvent:
    """One event as it arrived. `event` is None when it does not keep the contract."""

    raw: Any
    event: CreatorSignalEvent | None
    text: str
    """The event's canonical JSON as received, including fields unknown to us; empty when it is invalid."""

    @property
    def pipeline(self) -> str | None:
        name = self.event.routing.get("pipeline") if self.event else None
        return name if isinstance(name, str) and _KEY.fullmatch(name) else None


@dataclass(frozen=True)
class ReceivedBatch:
    """A batch that can be stored."""

    batch_id: str
    instance_id: str
    items: tuple[ReceivedEvent, ...]


def read_batch(body: bytes, allowed_instances: frozenset[str]) -> ReceivedBatch:
    """The batch in a verified body. RequestError when the sender must get another status than 200, 207 or 409."""
    try:
        data = json.loads(body.decode("utf-8"), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise RequestError(400, "invalid_json") from None
    try:
        envelope = BatchEnvelope.model_validate(data)
    except ValidationError:
        raise RequestError(400, "invalid_envelope") from None
    if allowed_instances and envelope.csi_instance_id not in allowed_instances:
        raise RequestError(403, "instance_not_allowed")
    if len(envelope.events) > MAX_EVENTS_PER_REQUEST:
        raise RequestError(413, "too_many_events")
    items = tuple(_read_event(raw) for raw in envelope.events)
    return ReceivedBatch(envelope.batch_id, envelope.csi_instance_id, items)


def status_of(verdicts: list[EventVerdict]) -> int:
    """200 when all events are new or there are none, 409 when all are duplicates, else 207."""
    if all(verdict == "accepted" for verdict in verdicts):
        return 200
    return 409 if all(verdict == "duplicate" for verdict in verdicts) else 207


def fingerprint(raw: Any) -> str | None:
    """SHA-256 of an event without `emitted_at`, the one field that may differ between attempts."""
    if isinstance(raw, dict):
        raw = {key: value for key, value in raw.items() if key != "emitted_at"}
    try:
        return hashlib.sha256(canonical(raw)).hexdigest()
    except (ValueError, RecursionError):
        return None


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python's parser would accept NaN and Infinity


def _read_event(raw: Any) -> ReceivedEvent:
    try:
        event = CreatorSignalEvent.model_validate(raw)
        text = canonical(raw).decode("ascii")
    except (ValueError, OverflowError, RecursionError):
        return ReceivedEvent(raw, None, "")
    keys = (event.event_id, event.dedupe_key, event.source, event.event_type)
    return ReceivedEvent(raw, event, text) if all(map(_KEY.fullmatch, keys)) else ReceivedEvent(raw, None, "")
