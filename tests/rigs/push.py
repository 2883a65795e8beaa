"""The pipeline with a simulated YouTube, a simulated hub and the sidecar's /hooks over loopback HTTP."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount

from csi.admin import inbound
from csi.net import Net
from csi.simulator.hub import HUB_PATH, SimulatedHub, removal_push, video_push
from csi.simulator.youtube.app import API_PATH, FEED_PATH, YouTubeOptions, create_app
from csi.simulator.youtube.content import populate
from csi.simulator.youtube.world import World
from csi.store import db, subscriptions
from csi.store.subscriptions import Subscription
from csi.web.app import create_app as create_sidecar
from tests.conftest import HandClock
from tests.fakes.background_server import serve_in_background
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline


class PushRig:
    """One channel and one playlist with three items each, which the first poll marks as seen."""

    def __init__(
        self, line: InProcessPipeline, hub: SimulatedHub, world: World, ua: ScriptedReceiver, url: str
    ) -> None:
        self.line, self.hub, self.world, self.ua, self.url = line, hub, world, ua, url
        self.rt, self.clock, self.net = line.rt, line.clock, Net()
        self.channel, self.playlist, self.site = "", "", None

    @property
    def topic(self) -> str:
        return self.rt.adapter("youtube_channel_rss").feed_url(self.channel) or ""

    @property
    def subscription(self) -> Subscription:
        (row,) = [row for row in subscriptions.every() if row.kind == "websub"]
        return row

    def subscribe(self) -> None:
        """The first polls, the request to the hub, and its verification."""
        self.line.run()
        self.wait(lambda: self.hub.verifications)

    def upload(self, title: str = "A new video") -> str:
        return self.world.upload(self.channel, title, at=self.clock()).id

    def push(self, video: str) -> list[int]:
        return self.hub.push(self.topic, video_push(self.channel, video, self.clock()))

    def push_removal(self, video: str) -> list[int]:
        return self.hub.push(self.topic, removal_push(self.channel, video, self.clock()))

    def wait(self, condition: Callable[[], Any], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "the condition did not come true"
            time.sleep(0.005)

    def received(self, event_type: str | None = None) -> list[dict[str, Any]]:
        """The events that the receiver accepted."""
        found = [event for request in self.ua.requests for event in request.events]
        return [event for event in found if event_type in (None, event["event_type"])]

    def sender(self, name: str, kind: str = "events", **options: Any) -> inbound.SenderAccess:
        return inbound.add(self.rt, name, kind, **options)

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        return self.net.post(url, body=body, headers=headers).status


@contextmanager
def push_rig(
    tmp_path: Path, clock: HandClock, *, push: dict[str, Any] | None = None, key: bool = False, **blocks: Any
) -> Iterator[PushRig]:
    """`key`: the API of the simulated YouTube is used, and the playlist is watched, too. One server has everything."""
    hub, world, box = SimulatedHub(now=clock), World(0), dict[str, PushRig]()
    content = populate(world, channels=1, playlists=1, videos=3, at=clock() - 86_400)
    youtube, sidecar = create_app(world, YouTubeOptions(now=clock)), create_sidecar(lambda: box["rig"].rt)
    served = Starlette(routes=[*hub.app().routes, Mount("/youtube", youtube), Mount("/", sidecar)])
    with db.connection(), ScriptedReceiver(now=clock) as ua, serve_in_background(served) as url:
        channels = {
            "feed_url_template": f"{url}/youtube{FEED_PATH}?channel_id={{channel_id}}",
            "poll_interval_seconds": 300,
            "priority": "urgent",
            "push": {"hub_url": f"{url}{HUB_PATH}", "callback_url": url} | (push or {}),
            "watchlist": [{"channel_id": ref} for ref in content.channels],
        }
        playlists = {
            "api_base_url": f"{url}/youtube{API_PATH}",
            "poll_interval_seconds": 300,
            "adaptive_polling": {"enabled": False},
            "playlists": [{"id": ref} for ref in content.playlists],
        }
        sources = {"youtube_channel_rss": channels, **({"youtube_playlist": playlists} if key else {})}
        inbound_block = {"enabled": True, "public_url": url} | blocks.pop("inbound", {})
        line = InProcessPipeline(tmp_path, clock, ua.url, sources=sources, inbound=inbound_block, **blocks)
        rig = box["rig"] = PushRig(line, hub, world, ua, url)
        rig.channel, rig.playlist, rig.site = content.channels[0], content.playlists[0], youtube.state.site
        rig.rt.inbound_keys  # noqa: B018 as the sidecar does when it starts
        yield rig
        rig.net.close()
        hub.net.close()
        rig.rt.net.close()
