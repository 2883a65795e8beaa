"""What a destination speaks: how a body is made of events, and which headers prove its origin."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from csi import __version__, body_template, notifications
from csi.config.destination_profiles import SINGLE, Answers, BodyForm, SignatureScheme
from csi.ingester import signature
from csi.ingester.signature import Form, canonical

JSON = "application/json"
CLOUDEVENTS, CLOUDEVENTS_BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"

MCP_EVENT_NAME = "signal.created"
"""What the MCP server calls every event (MCP Events); the event's own type is in its data."""

_NOT_PLAIN = "!#$&'()*+,/:;=?@[]~|{}<>^`\"\\ "
"""Printable characters that an event id keeps in a header; `%` and what HTTP cannot carry are percent-encoded."""


@dataclass(frozen=True)
class Profile:
    """What a destination speaks. The default is the PRD's contract."""

    kind: Literal["http", "notify"] = "http"
    answers: Answers = "contract"
    body: BodyForm = "batch"
    signature: SignatureScheme = "csi"
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    template: str | None = None
    title: str | None = None

    @property
    def is_single(self) -> bool:
        """One event per request."""
        return self.body in SINGLE

    @property
    def takes_empty_batch(self) -> bool:
        """Whether an empty batch is a test that this receiver understands. To any other it would be a strange message,
        so an event is its first test, and its state is `untested` until then."""
        return self.kind == "http" and self.answers == "contract" and self.body == "batch" and self.template is None

    @property
    def content_type(self) -> str:
        own = next((value for name, value in self.headers.items() if name.lower() == "content-type"), None)
        default = {"cloudevents": CLOUDEVENTS, "cloudevents_batch": CLOUDEVENTS_BATCH}.get(self.body, JSON)
        return own or default


CONTRACT = Profile()


@dataclass(frozen=True)
class Message:
    """One request before it is signed. `message_id` is the same in every attempt."""

    body: bytes
    message_id: str
    title: str = ""
    """Of a message to people."""


def envelope(instance_id: str, batch_id: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of one request (PRD §8.1)."""
    return {"csi_version": __version__, "csi_instance_id": instance_id, "batch_id": batch_id, "events": events}


def compose(profile: Profile, events: list[dict[str, Any]], *, instance_id: str, batch_id: str, form: Form) -> Message:
    """The body of these events. Raises TemplateFailed or RendererFailed where the destination has a template."""
    message_id = header_text(events[0]["event_id"]) if profile.is_single else batch_id
    if profile.kind == "notify":
        return _note_to_people(profile, events, instance_id, batch_id)
    if profile.template is not None:
        context = body_template.context_of(events, instance_id=instance_id, batch_id=batch_id)
        is_json = "json" in profile.content_type
        render = body_template.render_json if is_json else body_template.render
        return Message(render(profile.template, context).encode(), message_id)
    content: Any
    match profile.body:
        case "batch":
            content = envelope(instance_id, batch_id, events)
        case "event":
            content = events[0]
        case "cloudevents":
            content = cloud_event(events[0], instance_id)
        case "cloudevents_batch":
            content = [cloud_event(event, instance_id) for event in events]
        case "mcp_event":
            content = mcp_event(events[0])
    return Message(canonical(content, form), message_id)


def cloud_event(event: dict[str, Any], instance_id: str) -> dict[str, Any]:
    """CloudEvents 1.0. `source` and `id` together name the event, in each attempt the same."""
    return {
        "specversion": "1.0",
        "id": event["event_id"],
        "source": f"urn:csi:{quote(instance_id)}:{quote(event['source'])}",
        "type": f"csi.{event['event_type']}",
        "subject": event["dedupe_key"],
        "time": event["occurred_at"],
        "datacontenttype": JSON,
        "data": event,
    }


def mcp_event(event: dict[str, Any]) -> dict[str, Any]:
    """An occurrence of MCP Events (draft). It has no cursor: nothing is replayed to a new subscription."""
    return {
        "eventId": event["event_id"],
        "name": MCP_EVENT_NAME,
        "timestamp": event["occurred_at"],
        "data": event,
        "cursor": None,
    }


def _note_to_people(profile: Profile, events: list[dict[str, Any]], instance_id: str, batch_id: str) -> Message:
    # A template may mention people; the text of an event may not.
    events = [_map_texts(event, notifications.without_mentions) for event in events]
    context = body_template.context_of(events, instance_id=instance_id, batch_id=batch_id)
    title, text = headline(events[0]) if len(events) == 1 else f"{len(events)} new items", ""
    if profile.title is not None:
        title = body_template.render(profile.title, context)
    title = " ".join(title.split())  # it becomes a header of a mail
    if profile.template is not None:
        text = body_template.render(profile.template, context)
    else:
        text = "\n\n".join(f"{headline(event)}\n{event['subject'].get('url') or ''}".strip() for event in events)
    return Message(text.encode(), batch_id, title)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _map_texts(inner, change) for key, inner in value.items()}
        case list():
            return [_map_texts(inner, change) for inner in value]
    return value


def headline(event: dict[str, Any]) -> str:
    """The title of what the event is about; without one, its type and source."""
    return str(event["subject"].get("title") or "") or f"{event['event_type']} ({event['source']})"


def header_text(event_id: str) -> str:
    """An event id as a header can carry it: ids of CSI's own sources stay as they are."""
    return quote(event_id, safe=_NOT_PLAIN).strip()


def proof_headers(
    profile: Profile, key: bytes, body: bytes, *, message_id: str, request_id: str, now: float, also_standard: bool,
    old_key: bytes | None = None,
) -> dict[str, str]:  # fmt: skip
    """The headers of the profile's signature. `also_standard`: those of Standard Webhooks beside the PRD's. `old_key`
    signs, too, where the scheme carries several signatures: only Standard Webhooks does."""
    found = {"X-CSI-Request-ID": request_id}
    match profile.signature:
        case "csi":
            found = signature.headers(key, body, now=now, request_id=request_id)
        case "github":
            found["X-Hub-Signature-256"] = f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"
    if profile.signature == "standard_webhooks" or (profile.signature == "csi" and also_standard):
        found |= signature.webhook_headers(key, body, message_id=message_id, now=now)
        if old_key is not None:
            old = signature.webhook_headers(old_key, body, message_id=message_id, now=now)
            found["webhook-signature"] += f" {old['webhook-signature']}"
    return found
