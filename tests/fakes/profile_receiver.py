"""Receivers that do not speak the PRD's contract: what a destination with each profile sends, checked by the published
libraries, and the same ledger as that of the scripted receiver."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook

from tests.fakes.raw_server import RawRequest
from tests.fakes.scripted_receiver import SECRET, ReceivedRequest, Reply, ScriptedReceiver, json_reply

WHSEC = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
Events = list[dict[str, Any]]


@dataclass(frozen=True)
class ProfileSample:
    """A profile as it is configured, and how its receiver reads a request."""

    settings: dict[str, Any]
    events: Callable[[dict[str, str], bytes], Events]
    fault: Callable[[dict[str, str], bytes, Events], str | None] = lambda headers, body, events: None


def _cloud_event(headers: dict[str, str], body: bytes) -> Events:
    """Parsed, and with that checked, by the library."""
    found = from_http_event(HTTPMessage(dict(headers), body))
    data = found.get_data()
    assert isinstance(data, dict)
    assert (found.get_id(), found.get_type()) == (data["event_id"], f"csi.{data['event_type']}")
    return [data]


def _cloud_events(headers: dict[str, str], body: bytes) -> Events:
    assert headers["content-type"] == "application/cloudevents-batch+json"
    one = {"content-type": "application/cloudevents+json"}
    return [event for part in json.loads(body) for event in _cloud_event(one, json.dumps(part).encode())]


def _standard(headers: dict[str, str], body: bytes, events: Events) -> str | None:
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    expected = Webhook(WHSEC).sign(headers["webhook-id"], at, body.decode())
    if headers["webhook-signature"] != expected:
        return "signature"
    return None if headers["webhook-id"] == events[0]["event_id"] else "webhook-id is not the event's"


def _github(headers: dict[str, str], body: bytes, events: Events) -> str | None:
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return None if headers["x-hub-signature-256"] == f"sha256={expected}" else "signature"


def _unsigned(headers: dict[str, str], body: bytes, events: Events) -> str | None:
    secret = [name for name in headers if "signature" in name or name == "authorization"]
    return f"{secret[0]} was sent" if secret else None


def _one(headers: dict[str, str], body: bytes) -> Events:
    return [json.loads(body)]


SAMPLES = {
    "standard_webhooks": ProfileSample({"preset": "hookdeck", "secret_env": "TO_WHSEC"}, _one, _standard),
    "github": ProfileSample(
        {"answers": "status", "signature": "github", "secret_env": "TO_SECRET"},
        lambda headers, body: json.loads(body)["events"],
        _github,
    ),
    "mcp_event": ProfileSample(
        {"preset": "hookdeck", "body": "mcp_event", "secret_env": "TO_WHSEC"},
        lambda headers, body: [json.loads(body)["data"]],
        _standard,
    ),
    "n8n": ProfileSample({"preset": "n8n"}, _one, _unsigned),
    "cloudevents": ProfileSample({"preset": "cloudevents"}, _cloud_event, _unsigned),
    "cloudevents_batch": ProfileSample({"preset": "cloudevents", "body": "cloudevents_batch"}, _cloud_events),
    "template": ProfileSample(
        {"preset": "slack", "method": "PUT", "template": '{"text": {{ event | tojson }}}'},
        lambda headers, body: [json.loads(body)["text"]],
        _unsigned,
    ),
    "notify": ProfileSample(
        {"type": "notify", "endpoint_env": "TO_APPRISE", "group_seconds": 0, "template": "{{ events | tojson }}"},
        lambda headers, body: json.loads(json.loads(body)["message"]),
    ),
}


def delivery_to(url: str, profile: str, **more: Any) -> dict[str, Any]:
    """The block `delivery` with one destination of this profile."""
    given = SAMPLES[profile].settings | more
    return {"destinations": {"there": given if "endpoint_env" in given else given | {"endpoint": url}}}


def secrets_for(url: str) -> dict[str, str]:
    """The variables that the profiles name, and no default destination."""
    apprise = url.replace("http://", "json://")
    none = {"CSI_UA_ENDPOINT": "", "CSI_UA_SHARED_SECRET": ""}
    return {"TO_WHSEC": WHSEC, "TO_SECRET": SECRET, "TO_APPRISE": apprise, **none}


class ProfileReceiver(ScriptedReceiver):
    """Answers 2xx with HTML, as receivers do that know nothing of CSI, and keeps the ledger of what it took."""

    profile = "n8n"

    def __init__(self, *script: Any, **options: Any) -> None:
        super().__init__(*script, **{"then": welcome, **options})

    def _read(self, asked: RawRequest) -> ReceivedRequest:
        request, sample = super()._read(asked), SAMPLES[self.profile]
        events = sample.events(asked.headers, asked.body)
        return replace(request, envelope={"events": events}, objection=sample.fault(asked.headers, asked.body, events))


def welcome(request: ReceivedRequest) -> Reply:
    return replace(json_reply(200, b"<html>thank you</html>"), headers=(("content-type", "text/html"),))


def receiver_of(name: str) -> type[ProfileReceiver]:
    return type("Receiver", (ProfileReceiver,), {"profile": name})
