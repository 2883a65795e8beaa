"""A simulated WebSub hub, as YouTube's is: it verifies, signs with sha1, pushes, and fails or lies as told."""

import html
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi import clock
from csi.errors import NetError
from csi.ingester.webhook_signature import sign_hub
from csi.net import Net

Lie = Literal["", "topic", "challenge", "lease", "silent", "denied", "unsubscribe"]
HUB_PATH = "/hub"

_FEED = (
    '<?xml version="1.0" encoding="UTF-8"?><feed xmlns:yt="http://www.youtube.com/xml/schemas/2015" '
    'xmlns:at="http://purl.org/atompub/tombstones/1.0" xmlns="http://www.w3.org/2005/Atom">'
    '<link rel="self" href="https://www.youtube.com/xml/feeds/videos.xml?channel_id={channel}"/>'
    "<title>YouTube video feed</title><updated>{at}</updated>{content}</feed>"
)
_ENTRY = (
    "<entry><id>yt:video:{video}</id><yt:videoId>{video}</yt:videoId><yt:channelId>{channel}</yt:channelId>"
    '<title>{title}</title><link rel="alternate" href="https://www.youtube.com/watch?v={video}"/>'
    "<author><name>A channel</name></author><published>{at}</published><updated>{at}</updated></entry>"
)
_TOMBSTONE = (
    '<at:deleted-entry ref="yt:video:{video}" when="{at}"><link href="https://www.youtube.com/watch?v={video}"/>'
    "<at:by><name>A channel</name></at:by></at:deleted-entry>"
)


def video_push(channel: str, video: str, at: float, title: str = "A new video") -> bytes:
    """What the hub sends for a new or changed video; times have nanoseconds."""
    moment = clock.iso(at).replace("Z", ".109921364+00:00")
    entry = _ENTRY.format(video=video, channel=channel, title=html.escape(title), at=moment)
    return _FEED.format(channel=channel, at=moment, content=entry).encode()


def removal_push(channel: str, video: str, at: float) -> bytes:
    """What the hub sends when a video is deleted or made private."""
    moment = clock.iso(at).replace("Z", "+00:00")
    return _FEED.format(channel=channel, at=moment, content=_TOMBSTONE.format(video=video, at=moment)).encode()


@dataclass
class HubFaults:
    """How the hub misbehaves from now on."""

    status: int = 202
    """Its answer to a request; 503 comes with Retry-After."""
    lie: Lie = ""
    lease: str | None = None
    """The lease that it grants; None: what was asked for."""
    doubled: bool = False
    signature: Literal["right", "wrong", "none"] = "right"


@dataclass
class HubSubscription:
    """A callback that was verified."""

    topic: str
    secret: str
    lease: float
    until: float


@dataclass
class SimulatedHub:
    """The hub's state. `net` calls the callbacks; tests may replace it."""

    now: Callable[[], float] = clock.now
    net: Net = field(default_factory=Net)
    faults: HubFaults = field(default_factory=HubFaults)
    verified: dict[str, HubSubscription] = field(default_factory=dict)
    """By callback."""
    requests: list[dict[str, str]] = field(default_factory=list)
    verifications: list[int] = field(default_factory=list)
    """The status of each answer to a verification."""

    def app(self) -> Starlette:
        async def take(request: Request) -> Response:
            form = dict(parse_qsl((await request.body())[:10_000].decode("latin-1")))
            self.requests.append(form)
            if self.faults.status >= 300:
                return Response(status_code=self.faults.status, headers={"Retry-After": "120"})
            return Response(status_code=self.faults.status, background=BackgroundTask(self.verify, form))

        return Starlette(routes=[Route(HUB_PATH, take, methods=["POST"])])

    def verify(self, form: dict[str, str]) -> None:
        """Ask the callback whether it wants this, with whatever the hub lies about."""
        lie, challenge = self.faults.lie, secrets.token_hex(16)
        if lie == "silent":
            return
        lease = self.faults.lease or form.get("hub.lease_seconds", "864000")
        query = {
            "hub.mode": {"denied": "denied", "unsubscribe": "unsubscribe"}.get(lie, form["hub.mode"]),
            "hub.topic": "https://example.org/another" if lie == "topic" else form["hub.topic"],
            "hub.challenge": "" if lie == "challenge" else challenge,
            "hub.lease_seconds": "-5" if lie == "lease" else lease,
        }
        callback = form["hub.callback"]
        try:
            answer = self.net.get(f"{callback}?{urlencode(query)}")
        except NetError:
            self.verifications.append(0)
            return
        self.verifications.append(answer.status)
        if answer.status != 200 or answer.body != challenge.encode():
            return
        if query["hub.mode"] == "unsubscribe":
            self.verified.pop(callback, None)
        else:
            seconds = float(lease)
            secret = form.get("hub.secret", "")
            self.verified[callback] = HubSubscription(form["hub.topic"], secret, seconds, self.now() + seconds)

    def push(self, topic: str, body: bytes) -> list[int]:
        """Send a change to every subscriber of this topic whose lease holds. Returns the statuses of the answers."""
        found = [(url, one) for url, one in self.verified.items() if one.topic == topic and one.until > self.now()]
        return [
            self._send(url, one, body) for url, one in found for _ in range(2 if self.faults.doubled else 1)
        ]  # fmt: skip

    def _send(self, url: str, one: HubSubscription, body: bytes) -> int:
        headers = {"Content-Type": "application/atom+xml"}
        if self.faults.signature != "none":
            secret = one.secret if self.faults.signature == "right" else "another secret"
            headers["X-Hub-Signature"] = sign_hub(secret, body)
        try:
            return self.net.post(url, body=body, headers=headers).status
        except NetError:
            return 0
