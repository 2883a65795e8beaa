"""The simulated YouTube in this process, on a free port: `with simulated_youtube(channels=3) as yt:`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from csi.simulator.youtube.app import API_PATH, FEED_PATH, RequestLog, YouTubeOptions, YouTubeSite, create_app
from csi.simulator.youtube.content import populate
from csi.simulator.youtube.oauth_tokens import OAUTH_PATH
from csi.simulator.youtube.world import World
from tests.fakes.background_server import serve_in_background


@dataclass(frozen=True)
class SimulatedYouTube:
    """A running site. Tests change `world` directly, from any thread."""

    base_url: str
    site: YouTubeSite
    channels: tuple[str, ...]
    playlists: tuple[str, ...]
    library: str

    @property
    def world(self) -> World:
        return self.site.world

    @property
    def requests(self) -> RequestLog:
        return self.site.requests

    @property
    def api_key(self) -> str:
        return self.site.options.api_key

    @property
    def api_base_url(self) -> str:
        return self.base_url + API_PATH

    @property
    def feed_url_template(self) -> str:
        return f"{self.base_url}{FEED_PATH}?channel_id={{channel_id}}"

    @property
    def token_url(self) -> str:
        return self.base_url + OAUTH_PATH

    def feed_url(self, channel_id: str) -> str:
        return self.feed_url_template.format(channel_id=channel_id)

    def set_faults(self, text: str, *, from_now: bool = False) -> None:
        self.site.set_faults(text, from_now=from_now)

    def upload(self, channel_id: str, title: str = "A new video", **fields: Any) -> str:
        """Upload a video, published now by the site's clock; returns its id."""
        return self.world.upload(channel_id, title, **{"at": self.site.options.now(), **fields}).id

    def add(self, playlist_id: str, title: str = "A new video", **fields: Any) -> str:
        """Add a new video of the library to the end of the playlist; returns its id."""
        now = self.site.options.now()
        video_id = self.world.upload(self.library, title, **{"at": now, **fields}).id
        self.world.add_to_playlist(playlist_id, video_id, at=now)
        return video_id

    def wait_for(self, condition: Any, seconds: float = 5.0) -> None:
        """Wait until `condition()` is true: a request is recorded just after the client has the response."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "the condition did not become true in time"
            time.sleep(0.005)


@contextmanager
def simulated_youtube(
    *,
    channels: int = 0,
    playlists: int = 0,
    videos: int = 0,
    world: World | None = None,
    **options: Any,
) -> Iterator[SimulatedYouTube]:
    """A site with channels and playlists of `videos` items each; `options` are fields of YouTubeOptions."""
    chosen = YouTubeOptions(**options)
    ours = world or World(chosen.seed)
    content = populate(ours, channels=channels, playlists=playlists, videos=videos, at=chosen.now())
    app = create_app(ours, chosen)
    with serve_in_background(app) as base_url:
        yield SimulatedYouTube(base_url, app.state.site, content.channels, content.playlists, content.library)
