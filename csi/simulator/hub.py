"""A simulated WebSub hub, as YouTube's is: it verifies, signs with sha1, pushes, and fails or lies on command."""

import html
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi import clock
from csi.errors import CsiError, NetError
from csi.ingester.webhook_signature import sign_hub
from csi.net import Net
from csi.simulator.control import changed

Lie = Literal["", "topic", "challenge", "lease", "silent", "denied", "unsubscribe"]
Signature = Literal["right", "wrong", "none"]
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
    signature: Signature = "right"


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
        """The hub at HUB_PATH, and its control API under /sim."""

        async def take(request: Request) -> Response:
            form = dict(parse_qsl((await request.body())[:10_000].decode("latin-1")))
            self.requests.append(form)
            if self.faults.status >= 300:
                return Response(status_code=self.faults.status, headers={"Retry-After": "120"})
            is_publish = form.get("hub.mode") == "publish"
            if not is_publish and not {"hub.mode", "hub.topic", "hub.callback"} <= set(form):
                return Response(status_code=400)
            work = BackgroundTask(self.publish if is_publish else self.verify, form)
            return Response(status_code=self.faults.status, background=work)

        async def show(request: Request) -> Response:
            return JSONResponse(self.state())

        async def set_faults(request: Request) -> Response:
            return await changed(request, self.set_faults)

        async def push(request: Request) -> Response:
            return await changed(request, self.push_video)

        return Starlette(
            routes=[
                Route(HUB_PATH, take, methods=["POST"]),
                Route("/sim/hub", show, methods=["GET"]),
                Route("/sim/hub", set_faults, methods=["POST"]),
                Route("/sim/push", push, methods=["POST"]),
            ]
        )

    def state(self) -> dict[str, Any]:
        """Callbacks hold tokens: only topics are shown."""
        return {
            "faults": asdict(self.faults),
            "subscriptions": [{"topic": one.topic, "until": one.until} for one in self.verified.values()],
            "requests": len(self.requests),
            "verifications": self.verifications[-100:],
        }

    def set_faults(self, body: dict[str, Any]) -> dict[str, Any]:
        """CsiError: there is no such fault. Keys that are left out keep their values."""
        allowed = {"lie": get_args(Lie), "signature": get_args(Signature)}
        for key, value in body.items():
            if key not in asdict(self.faults):
                raise CsiError(f"there is no fault {key!r}: {', '.join(asdict(self.faults))}")
            if key in allowed and value not in allowed[key]:
                raise CsiError(f"{key}: expected one of {', '.join(filter(None, allowed[key]))}, or nothing")
        found = replace(self.faults, **body)
        if not isinstance(found.status, int) or not 200 <= found.status <= 599:
            raise CsiError("status: expected 200 to 599")
        self.faults = replace(found, lease=None if found.lease is None else str(int(found.lease)))
        return asdict(self.faults)

    def push_video(self, body: dict[str, Any]) -> dict[str, Any]:
        """Announce a video, or its removal, to the subscribers of a channel's feed."""
        topic, video = str(body.get("topic", "")), str(body.get("video", ""))
        channel = parse_qs(urlsplit(topic).query).get("channel_id", [""])[0]
        if not video or not channel:
            raise CsiError("expected `topic`, the address of a channel's feed, and `video`")
        make = removal_push if body.get("removed") else video_push
        return {"answers": self.push(topic, make(channel, video, self.now()))}

    def publish(self, form: dict[str, str]) -> None:
        """A publisher says that its topic changed: read it, and send it to the subscribers."""
        topic = form.get("hub.url", "")
        try:
            answer = self.net.get(topic)
        except NetError:
            return
        if answer.status == 200:
            self.push(topic, answer.body)

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
        statuses = []
        for url, one in found:
            headers = {"Content-Type": "application/atom+xml"}
            if self.faults.signature != "none":
                secret = one.secret if self.faults.signature == "right" else "another secret"
                headers["X-Hub-Signature"] = sign_hub(secret, body)
            for _ in range(2 if self.faults.doubled else 1):
                try:
                    statuses.append(self.net.post(url, body=body, headers=headers).status)
                except NetError:
                    statuses.append(0)
        return statuses
