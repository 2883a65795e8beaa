"""A simulated Composio: webhooks of the versions 1 to 3, signed, repeated, or signed with a secret that was revoked."""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from csi import clock
from csi.errors import NetError
from csi.ingester.webhook_signature import sign_webhook
from csi.net import Net

EndKind = Literal["composio.connected_account.expired", "composio.trigger.disabled"]
Version = Literal["V1", "V2", "V3"]
PLAYLIST_TRIGGER = "YOUTUBE_NEW_PLAYLIST_ITEM_TRIGGER"


@dataclass
class ComposioSender:
    """Sends to one address. A message keeps its id over its attempts; the timestamp is that of the attempt."""

    url: str
    secret: str
    now: Callable[[], float] = clock.now
    net: Net = field(default_factory=Net)
    sent: int = 0

    def trigger(self, data: dict[str, Any], *, version: Version = "V3", trigger: str = PLAYLIST_TRIGGER) -> int:
        """One webhook; returns the status of its answer, 0 without one."""
        message_id = self.next_id()
        return self.send(message_id, envelope(data, message_id, self.now(), version=version, trigger=trigger))

    def playlist_item(self, item: dict[str, Any], *, version: Version = "V3") -> int:
        return self.trigger({"event_type": "new_playlist_item", "item": item}, version=version)

    def end(self, kind: EndKind) -> int:
        """The connection has ended: no further trigger follows."""
        message_id = self.next_id()
        return self.send(message_id, end_envelope(kind, message_id, self.now()))

    def send(self, message_id: str, body: dict[str, Any], attempt: int = 1) -> int:
        content = json.dumps(body).encode()
        headers = sign_webhook(self.secret.encode(), message_id, int(self.now()), content)
        headers |= {"Content-Type": "application/json", "x-composio-delivery-attempt": str(attempt)}
        try:
            return self.net.post(self.url, body=content, headers=headers).status
        except NetError:
            return 0

    def next_id(self) -> str:
        self.sent += 1
        return f"msg_{self.sent:06}"


def playlist_item(playlist: str, video: str, title: str, channel: str, at: float) -> dict[str, Any]:
    """A raw playlist item, as the Data API lists it and Composio passes it on."""
    moment = clock.iso(at)
    item_id = base64.b64encode(f"{playlist}.{hashlib.sha256(video.encode()).hexdigest()[:16].upper()}".encode())
    return {
        "kind": "youtube#playlistItem",
        "id": item_id.decode().rstrip("="),
        "snippet": {
            "publishedAt": moment, "channelId": channel, "title": title, "description": "", "position": 0,
            "playlistId": playlist, "videoOwnerChannelId": channel, "videoOwnerChannelTitle": "A channel",
            "resourceId": {"kind": "youtube#video", "videoId": video},
            "thumbnails": {"default": {"url": f"https://i.ytimg.com/vi/{video}/default.jpg"}},
        },
        "contentDetails": {"videoId": video, "videoPublishedAt": moment},
        "status": {"privacyStatus": "public"},
    }  # fmt: skip


def envelope(data: dict[str, Any], message_id: str, now: float, *, version: Version, trigger: str) -> dict[str, Any]:
    """The body of one webhook in this version."""
    match version:
        case "V1":
            return {
                "trigger_name": trigger, "connection_id": "conn-1", "trigger_id": "ti_1", "payload": data,
                "log_id": "log_1",
            }  # fmt: skip
        case "V2":
            own = {"connection_id": "conn-1", "trigger_id": "ti_1", "user_id": "user-1"}
            return {"type": trigger.lower(), "timestamp": clock.iso(now), "log_id": "log_1", "data": own | data}
    return {
        "id": message_id,
        "timestamp": clock.iso(now),
        "type": "composio.trigger.message",
        "metadata": {"log_id": "log_1", "trigger_slug": trigger, "trigger_id": "ti_1", "connected_account_id": "ca_1"},
        "data": data,
    }


def end_envelope(kind: EndKind, message_id: str, now: float) -> dict[str, Any]:
    """The body that says that an account has expired or a trigger was disabled."""
    metadata = {"trigger_slug": PLAYLIST_TRIGGER, "connected_account_id": "ca_1"}
    return {"id": message_id, "timestamp": clock.iso(now), "type": kind, "metadata": metadata, "data": {}}
