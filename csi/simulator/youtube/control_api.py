"""The control API under /sim: how a test in another process makes things happen."""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi.errors import CsiError
from csi.simulator.youtube.faults import PRESETS
from csi.simulator.youtube.world import Kind, Privacy

if TYPE_CHECKING:
    from csi.simulator.youtube.app import YouTubeSite

Answer = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]
MOST_BODY = 1_000_000


class ControlBody(BaseModel):
    """A request's JSON object. `at` (epoch seconds) is the site's own time where it is left out."""

    model_config = ConfigDict(extra="forbid")

    at: float | None = None


class UploadBody(ControlBody):
    channel: str
    title: str = "A new video"
    kind: Kind = "video"
    privacy: Privacy = "public"
    count: int = Field(1, ge=1, le=20_000)


class AddItemBody(ControlBody):
    """Without `video`, a new one is uploaded to the playlist's owner."""

    playlist: str
    video: str | None = None
    title: str = "A new video"
    privacy: Privacy = "public"
    at_top: bool = False
    count: int = Field(1, ge=1, le=20_000)


class RemoveItemBody(ControlBody):
    playlist: str
    video: str


class SetPrivacyBody(ControlBody):
    video: str
    privacy: Privacy


class DeleteBody(ControlBody):
    video: str | None = None
    channel: str | None = None


class EditBody(ControlBody):
    """A new title; or a stream that starts or ends."""

    video: str
    title: str | None = None
    live: bool | None = None


class NewChannelsBody(ControlBody):
    title: str = "A new channel"
    handle: str | None = None
    count: int = Field(1, ge=1, le=20_000)


class NewPlaylistsBody(ControlBody):
    owner: str
    title: str = "A new playlist"
    privacy: Privacy = "public"
    count: int = Field(1, ge=1, le=20_000)


class SetFaultsBody(ControlBody):
    script: str
    from_now: bool = False


def control_routes(site: "YouTubeSite") -> list[Route]:
    """Reads by GET, changes by POST; each handler is a line of this table."""
    changes: dict[str, tuple[type[ControlBody], Callable[[YouTubeSite, Any, float], Answer]]] = {
        "/upload": (UploadBody, _upload),
        "/playlist/add": (AddItemBody, _add_item),
        "/playlist/remove": (RemoveItemBody, _remove_item),
        "/privacy": (SetPrivacyBody, _set_privacy),
        "/delete": (DeleteBody, _delete),
        "/edit": (EditBody, _edit),
        "/channels": (NewChannelsBody, _new_channels),
        "/playlists": (NewPlaylistsBody, _new_playlists),
        "/faults": (SetFaultsBody, _new_faults),
    }
    posts = [Route(path, _change(site, *row), methods=["POST"]) for path, row in changes.items()]
    reads = (("/state", _state), ("/requests", _requests))
    return posts + [Route(path, _read(site, make), methods=["GET"]) for path, make in reads]


def _change(
    site: "YouTubeSite", model: type[ControlBody], act: Callable[["YouTubeSite", Any, float], Answer]
) -> Handler:
    async def handle(request: Request) -> Response:
        if refusal := _refusal(request, needs_json=True):
            return refusal
        try:
            body = model.model_validate_json(await request.body())
            now = site.options.now() if body.at is None else body.at
            return JSONResponse(await run_in_threadpool(act, site, body, now))
        except ValidationError as error:
            return _error(422, _problems(error))
        except CsiError as error:
            return _error(400, str(error))

    return handle


def _read(site: "YouTubeSite", make: Callable[["YouTubeSite"], Answer]) -> Handler:
    async def handle(request: Request) -> Response:
        return _refusal(request, needs_json=False) or JSONResponse(make(site))

    return handle


def _refusal(request: Request, *, needs_json: bool) -> Response | None:
    """Only from this machine; and only JSON, which no form of a foreign web page can send."""
    host = request.client.host if request.client else ""
    if not _is_loopback(host):
        return _error(403, "the control API answers on loopback only")
    if needs_json and not request.headers.get("content-type", "").startswith("application/json"):
        return _error(415, "send a JSON object with Content-Type: application/json")
    if int(request.headers.get("content-length", "0") or "0") > MOST_BODY:
        return _error(413, f"at most {MOST_BODY} bytes")
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


def _problems(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, row['loc'])) or 'body'}: {row['msg']}" for row in error.errors())


def _upload(site: "YouTubeSite", body: UploadBody, now: float) -> Answer:
    made = [
        site.world.upload(body.channel, _numbered(body.title, place), at=now, kind=body.kind, privacy=body.privacy)
        for place in range(body.count)
    ]
    return {"video_id": made[0].id, "video_ids": [video.id for video in made]}


def _add_item(site: "YouTubeSite", body: AddItemBody, now: float) -> Answer:
    pairs = [_add_one(site, body, place, now) for place in range(body.count)]
    return {
        "item_id": pairs[0][0],
        "video_id": pairs[0][1],
        "video_ids": [video_id for _, video_id in pairs],
    }


def _add_one(site: "YouTubeSite", body: AddItemBody, place: int, now: float) -> tuple[str, str]:
    video_id = body.video or _fresh_video(site, body, place, now)
    item = site.world.add_to_playlist(body.playlist, video_id, at=now, at_top=body.at_top)
    return item.id, video_id


def _fresh_video(site: "YouTubeSite", body: AddItemBody, place: int, now: float) -> str:
    playlist = site.world.playlist(body.playlist)
    if playlist is None:
        raise CsiError(f"no playlist {body.playlist!r} in this world; GET /sim/state lists them")
    title = _numbered(body.title, place)
    return site.world.upload(playlist.channel_id, title, at=now, privacy=body.privacy).id


def _remove_item(site: "YouTubeSite", body: RemoveItemBody, now: float) -> Answer:
    site.world.remove_from_playlist(body.playlist, body.video)
    return {"removed": body.video}


def _set_privacy(site: "YouTubeSite", body: SetPrivacyBody, now: float) -> Answer:
    return {
        "video_id": body.video,
        "privacy": site.world.set_privacy(body.video, body.privacy, at=now).privacy,
    }


def _delete(site: "YouTubeSite", body: DeleteBody, now: float) -> Answer:
    if (body.video is None) == (body.channel is None):
        raise CsiError("name either a video or a channel to delete")
    if body.video is not None:
        site.world.delete(body.video, at=now)
    else:
        site.world.delete_channel(str(body.channel))
    return {"deleted": body.video or body.channel}


def _edit(site: "YouTubeSite", body: EditBody, now: float) -> Answer:
    world = site.world
    if body.title is not None:
        world.edit_title(body.video, body.title, at=now)
    if body.live is not None:
        (world.start_live if body.live else world.end_live)(body.video, at=now)
    if body.title is None and body.live is None:
        world.touch(body.video, at=now)
    return {"video_id": body.video}


def _new_channels(site: "YouTubeSite", body: NewChannelsBody, now: float) -> Answer:
    made = [
        site.world.add_channel(_numbered(body.title, place), at=now, handle=body.handle) for place in range(body.count)
    ]
    return {"channel_id": made[0].id, "channel_ids": [channel.id for channel in made]}


def _new_playlists(site: "YouTubeSite", body: NewPlaylistsBody, now: float) -> Answer:
    made = [
        site.world.add_playlist(_numbered(body.title, place), owner=body.owner, at=now, privacy=body.privacy)
        for place in range(body.count)
    ]
    return {"playlist_id": made[0].id, "playlist_ids": [playlist.id for playlist in made]}


def _new_faults(site: "YouTubeSite", body: SetFaultsBody, now: float) -> Answer:
    site.set_faults(body.script, from_now=body.from_now)
    return {"rules": [rule.text for rule in site.script], "presets": {k: v[1] for k, v in PRESETS.items()}}


def _state(site: "YouTubeSite") -> Answer:
    now, requests, world = site.options.now(), site.requests, site.world
    return {
        "uptime_seconds": round(now - site.started, 3),
        "requests": {path: {str(s): n for s, n in by.items()} for path, by in requests.by_path.items()},
        "in_flight": requests.in_flight,
        "peak_in_flight": requests.peak,
        "keys_in_url": requests.keys_in_url,
        "quota": {"limit": site.quota.limit, "used_today": site.quota.used(now)},
        "faults": [rule.text for rule in site.script],
        "videos": world.video_count(),
        "channels": {channel.id: world.size(channel.id) for channel in world.channels()},
        "playlists": {playlist.id: world.size(playlist.id) for playlist in world.playlists()},
    }


def _requests(site: "YouTubeSite") -> Answer:
    """The last requests, oldest first: when, what for, and how each ended (0: torn)."""
    rows = [
        {"at": seen.at, "path": seen.path, "ref": seen.ref, "status": seen.status, "fault": seen.fault}
        for seen in tuple(site.requests.recent)
    ]
    return {"requests": rows}


def _numbered(title: str, place: int) -> str:
    return f"{title} {place + 1}" if place else title
