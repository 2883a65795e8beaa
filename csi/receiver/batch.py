"""What a verified body says: the envelope, and each event by itself."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, StringConstraints, ValidationError

from csi.ingester.event import MAX_EVENTS_PER_REQUEST, CreatorSignalEvent
from csi.ingester.signature import canonical
from csi.receiver.request_error import RefusalError

Verdict = Literal["accepted", "duplicate", "invalid"]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[ -~]+$")]

# Wide enough for any id; what breaks a database column or a log line stays out.
_KEY = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,512}")


class Envelope(BaseModel):
    """The body but for its events, which are judged one by one."""

    csi_version: Label
    csi_instance_id: Label
    batch_id: Label
    events: list[Any]


@dataclass(frozen=True)
class Item:
    """One event as it arrived; `event` is None when it does not keep the contract."""

    raw: Any
    event: CreatorSignalEvent | None
    text: str
    """The event's canonical JSON as received, fields unknown to us included; empty when invalid."""

    @property
    def pipeline(self) -> str | None:
        word = self.event.routing.get("pipeline") if self.event else None
        return word if isinstance(word, str) and _KEY.fullmatch(word) else None


@dataclass(frozen=True)
class Batch:
    """A body that can be stored."""

    batch_id: str
    instance_id: str
    items: tuple[Item, ...]


def read_batch(body: bytes, allowed_instances: frozenset[str]) -> Batch:
    """The batch in a verified body, or the RefusalError that its sender must see."""
    envelope = _read_envelope(_read_json(body))
    if allowed_instances and envelope.csi_instance_id not in allowed_instances:
        raise RefusalError(403, "instance_not_allowed")
    if len(envelope.events) > MAX_EVENTS_PER_REQUEST:
        raise RefusalError(413, "too_many_events")
    items = tuple(_read_item(raw) for raw in envelope.events)
    return Batch(envelope.batch_id, envelope.csi_instance_id, items)


def status_of(verdicts: list[Verdict]) -> int:
    """200 when all is new, 409 when all is known, else 207. Nothing at all is also fine."""
    if all(verdict == "accepted" for verdict in verdicts):
        return 200
    return 409 if all(verdict == "duplicate" for verdict in verdicts) else 207


def fingerprint(raw: Any) -> str | None:
    """SHA-256 of an event but for `emitted_at`, the one field that may differ between attempts."""
    if isinstance(raw, dict):
        raw = {key: value for key, value in raw.items() if key != "emitted_at"}
    try:
        return hashlib.sha256(canonical(raw)).hexdigest()
    except (ValueError, RecursionError):
        return None


def _read_json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RefusalError(400, "invalid_json") from None


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _read_envelope(body: Any) -> Envelope:
    try:
        return Envelope.model_validate(body)
    except ValidationError:
        raise RefusalError(400, "invalid_envelope") from None


def _read_item(raw: Any) -> Item:
    try:
        event = CreatorSignalEvent.model_validate(raw)
        text = canonical(raw).decode("ascii")
    except (ValueError, OverflowError, RecursionError):
        return Item(raw, None, "")
    keys = (event.event_id, event.dedupe_key, event.source, event.event_type)
    return Item(raw, event, text) if all(map(_KEY.fullmatch, keys)) else Item(raw, None, "")
