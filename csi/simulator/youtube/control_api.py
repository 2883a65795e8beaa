"""The control API under /sim: another process changes the simulated YouTube and reads its counters."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi.errors import CsiError
from csi.net import is_loopback
from csi.simulator.youtube.faults import PRESETS
from csi.simulator.youtube.world import Kind, Privacy

if TYPE_CHECKING:
    from csi.simulator.youtube.app import YouTubeSite

ResponseFields = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]
MAX_BODY_BYTES = 1_000_000


class ControlBody(BaseModel):
    """A request's JSON object, and the change that it asks for. `at` (epoch seconds) defaults to the site's clock."""

    model_config = ConfigDict(extra="forbid")

    at: float | None = None

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        raise NotImplementedError


class UploadBody(ControlBody):
    channel: str
    title: str = "A new video"
    kind: Kind = "video"
    privacy: Privacy = "public"
    count: int = Field(1, ge=1, le=20_000)

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        ids = [
            site.world.upload(self.channel, title, at=now, kind=self.kind, privacy=self.privacy).id
            for title in _numbered(self.title, self.count)
        ]
        return {"video_id": ids[0], "video_ids": ids}


class AddItemBody(ControlBody):
    """Without `video`, a new video is uploaded to the playlist's owner."""

    playlist: str
    video: str | None = None
    title: str = "A new video"
    privacy: Privacy = "public"
    at_top: bool = False
    count: int = Field(1, ge=1, le=20_000)

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        playlist = site.world.playlist(self.playlist)
        if playlist is None:
            raise CsiError(f"no playlist {self.playlist!r} in this world; GET /sim/state lists them")
        items = []
        for title in _numbered(self.title, self.count):
            video_id = self.video or site.world.upload(playlist.channel_id, title, at=now, privacy=self.privacy).id
            items.append(site.world.add_to_playlist(self.playlist, video_id, at=now, at_top=self.at_top))
        return {"item_id": items[0].id, "video_id": items[0].video_id, "video_ids": [item.video_id for item in items]}


class RemoveItemBody(ControlBody):
    playlist: str
    video: str

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        site.world.remove_from_playlist(self.playlist, self.video)
        return {"removed": self.video}


class SetPrivacyBody(ControlBody):
    video: str
    privacy: Privacy

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        return {"video_id": self.video, "privacy": site.world.set_privacy(self.video, self.privacy, at=now).privacy}


class DeleteBody(ControlBody):
    video: str | None = None
    channel: str | None = None

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        if (self.video is None) == (self.channel is None):
            raise CsiError("name either a video or a channel to delete")
        if self.video is not None:
            site.world.delete(self.video, at=now)
        else:
            site.world.delete_channel(str(self.channel))
        return {"deleted": self.video or self.channel}


class EditBody(ControlBody):
    """A new title, or the start or end of a stream. Without both, only `updated` changes."""

    video: str
    title: str | None = None
    live: bool | None = None

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        world = site.world
        if self.title is not None:
            world.edit(self.video, at=now, title=self.title)
        if self.live is not None:
            (world.start_live if self.live else world.end_live)(self.video, at=now)
        if self.title is None and self.live is None:
            world.edit(self.video, at=now)
        return {"video_id": self.video}


class NewChannelsBody(ControlBody):
    title: str = "A new channel"
    handle: str | None = None
    count: int = Field(1, ge=1, le=20_000)

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        titles = _numbered(self.title, self.count)
        ids = [site.world.add_channel(title, at=now, handle=self.handle).id for title in titles]
        return {"channel_id": ids[0], "channel_ids": ids}


class NewPlaylistsBody(ControlBody):
    owner: str
    title: str = "A new playlist"
    privacy: Privacy = "public"
    count: int = Field(1, ge=1, le=20_000)

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        titles = _numbered(self.title, self.count)
        ids = [site.world.add_playlist(title, owner=self.owner, at=now, privacy=self.privacy).id for title in titles]
        return {"playlist_id": ids[0], "playlist_ids": ids}


class GrowthBody(ControlBody):
    """How many views an hour a video gains, or subscribers a day a channel; or how fast all of them grow."""

    video: str | None = None
    channel: str | None = None
    views_per_hour: int | None = Field(None, ge=-100_000_000, le=100_000_000)
    subscribers_per_day: int | None = Field(None, ge=-100_000_000, le=100_000_000)
    speed: float | None = Field(None, gt=0, le=1_000_000)

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        world = site.world
        if (self.video is None) != (self.views_per_hour is None):
            raise CsiError("views_per_hour needs a video, and a video needs views_per_hour")
        if (self.channel is None) != (self.subscribers_per_day is None):
            raise CsiError("subscribers_per_day needs a channel, and a channel needs subscribers_per_day")
        if self.video is None and self.channel is None and self.speed is None:
            raise CsiError("name a video, a channel or a speed")
        if self.speed is not None:
            world.growth.set_speed(self.speed, now)
        if self.video is not None and self.views_per_hour is not None:
            world.grow(self.video, at=now, views_per_hour=self.views_per_hour)
        if self.channel is not None and self.subscribers_per_day is not None:
            world.grow_channel(self.channel, at=now, subscribers_per_day=self.subscribers_per_day)
        return {"speed": world.growth.speed}


class SetFaultsBody(ControlBody):
    script: str
    from_now: bool = False

    def apply(self, site: "YouTubeSite", now: float) -> ResponseFields:
        site.set_faults(self.script, from_now=self.from_now)
        presets = {name: description for name, (_, description) in PRESETS.items()}
        return {"rules": [rule.text for rule in site.script], "presets": presets}


CHANGES: dict[str, type[ControlBody]] = {
    "/upload": UploadBody,
    "/playlist/add": AddItemBody,
    "/playlist/remove": RemoveItemBody,
    "/privacy": SetPrivacyBody,
    "/delete": DeleteBody,
    "/edit": EditBody,
    "/channels": NewChannelsBody,
    "/playlists": NewPlaylistsBody,
    "/faults": SetFaultsBody,
    "/growth": GrowthBody,
}


def control_routes(site: "YouTubeSite") -> list[Route]:
    """GET reads, POST changes."""
    changes = [Route(path, _post_handler(site, body), methods=["POST"]) for path, body in CHANGES.items()]
    reads = (("/state", _state), ("/requests", _requests))
    return changes + [Route(path, _get_handler(site, read), methods=["GET"]) for path, read in reads]


def _post_handler(site: "YouTubeSite", model: type[ControlBody]) -> Handler:
    async def handle(request: Request) -> Response:
        if refusal := _refusal(request, needs_json=True):
            return refusal
        try:
            body = model.model_validate_json(await request.body())
            now = site.options.now() if body.at is None else body.at
            return JSONResponse(await run_in_threadpool(body.apply, site, now))
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, row['loc'])) or 'body'}: {row['msg']}" for row in error.errors())
            return _error(422, "; ".join(problems))
        except CsiError as error:
            return _error(400, str(error))

    return handle


def _get_handler(site: "YouTubeSite", read: Callable[["YouTubeSite"], ResponseFields]) -> Handler:
    async def handle(request: Request) -> Response:
        return _refusal(request, needs_json=False) or JSONResponse(read(site))

    return handle


def _refusal(request: Request, *, needs_json: bool) -> Response | None:
    """Requests must come from loopback, and changes must be JSON: a form on a web page cannot send that."""
    if not is_loopback(request.client.host if request.client else ""):
        return _error(403, "the control API answers on loopback only")
    if needs_json and not request.headers.get("content-type", "").startswith("application/json"):
        return _error(415, "send a JSON object with Content-Type: application/json")
    if int(request.headers.get("content-length", "0") or "0") > MAX_BODY_BYTES:
        return _error(413, f"at most {MAX_BODY_BYTES} bytes")
    return None


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


def _state(site: "YouTubeSite") -> ResponseFields:
    now, requests, world = site.options.now(), site.requests, site.world
    return {
        "uptime_seconds": round(now - site.started, 3),
        "requests": {
            path: {str(status): number for status, number in counts.items()}
            for path, counts in requests.by_path.items()
        },
        "in_flight": requests.in_flight,
        "peak_in_flight": requests.peak,
        "keys_in_url": requests.keys_in_url,
        "quota": {"limit": site.quota.limit, "used_today": site.quota.used(now)},
        "faults": [rule.text for rule in site.script],
        "speed": world.growth.speed,
        "videos": world.video_count(),
        "channels": {channel.id: world.size(channel.id) for channel in world.channels()},
        "playlists": {playlist.id: world.size(playlist.id) for playlist in world.playlists()},
    }


def _requests(site: "YouTubeSite") -> ResponseFields:
    """The latest requests, oldest first. Status 0: the connection ended before the whole response was sent."""
    return {"requests": [asdict(record) for record in tuple(site.requests.recent)]}


def _numbered(title: str, count: int) -> list[str]:
    """`title`, `title 2`, `title 3` …"""
    return [title, *(f"{title} {number}" for number in range(2, count + 1))]
