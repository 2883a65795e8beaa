"""The simulated YouTube: feeds and Data API as one Starlette app, with faults and a ledger."""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path
from random import Random
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from csi import clock
from csi.simulator.youtube import atom_feed, data_api, fault_responses
from csi.simulator.youtube.api_errors import ApiRefusalError, error_body
from csi.simulator.youtube.captions import CAPTIONS_PATH, captions_handler
from csi.simulator.youtube.control_api import control_routes
from csi.simulator.youtube.faults import FEED, Fault, FaultScript, RequestTarget, decide, read_script
from csi.simulator.youtube.oauth_tokens import OAUTH_PATH, OAuthClient, TokenIssuer, read_form
from csi.simulator.youtube.response import HeaderPairs, SimulatedResponse, served_item, served_upload
from csi.simulator.youtube.served_ledger import ServedLedger
from csi.simulator.youtube.transmit import LOST, send_response
from csi.simulator.youtube.world import World, channel_of

FEED_PATH = "/feeds/videos.xml"
API_PATH = "/youtube/v3"
MAX_AGE = 900
REMEMBERED = 20_000  # requests that GET /sim/requests can still tell about
KEPT_PAGES = 2_000

_FEED_HEADERS: HeaderPairs = (
    ("server", "YouTube RSS Feeds server"),
    ("x-xss-protection", "0"),
    ("x-frame-options", "SAMEORIGIN"),
    ("alt-svc", 'h3=":443"; ma=2592000,h3-29=":443"; ma=2592000'),
)
_API_HEADERS: HeaderPairs = (
    ("server", "scaffolding on HTTPServer2"),
    ("vary", "Origin, X-Origin, Referer"),
    ("cache-control", "private"),
    ("x-xss-protection", "0"),
    ("x-frame-options", "SAMEORIGIN"),
    ("x-content-type-options", "nosniff"),
)


@dataclass(frozen=True)
class YouTubeOptions:
    """How this YouTube behaves. `now` is its clock; tests hand in one that they move."""

    api_key: str = field(default="demo-key", repr=False)
    oauth: OAuthClient = field(default_factory=OAuthClient)  # the owner of every private playlist
    quota: int = 10_000
    faults: str = ""
    latency: float = 0.0
    etags: bool = False  # feeds with ETag and 304; the real ones have neither
    short_pages: bool = False  # pages hold 49 of 50, and go on
    copy_seconds: float = 0.0  # a feed is served from a copy up to this old, with an Age header
    ledger_path: Path | None = None
    seed: int = 0
    now: Callable[[], float] = clock.now


@dataclass(frozen=True)
class RequestRecord:
    """One request as it ended. `status` is 0 where the connection was torn before a whole answer."""

    at: float
    path: str
    ref: str
    status: int
    fault: str


class RequestLog:
    """What was asked, for tests and for GET /sim/state."""

    def __init__(self) -> None:
        self.by_path: dict[str, Counter[int]] = {}
        self.by_ref: Counter[str] = Counter()
        self.recent: deque[RequestRecord] = deque(maxlen=REMEMBERED)
        self.keys_in_url = 0
        self.in_flight = 0
        self.peak = 0

    def note(self, seen: RequestRecord) -> None:
        self.by_path.setdefault(seen.path, Counter())[seen.status] += 1
        self.by_ref[seen.ref] += 1
        self.recent.append(seen)

    def count(self, path: str = "", status: int | None = None, ref: str | None = None) -> int:
        """Finished requests, narrowed down; `path` may be the end of one, as in `playlistItems`."""
        if ref is not None:
            return sum(
                1
                for seen in tuple(self.recent)
                if seen.ref == ref and seen.path.endswith(path) and status in (None, seen.status)
            )
        return sum(
            number
            for name, statuses in tuple(self.by_path.items())
            for code, number in tuple(statuses.items())
            if name.endswith(path) and status in (None, code)
        )


class YouTubeSite:
    """The app's state: world, counters, faults, quota, and the pages rendered so far."""

    def __init__(self, world: World, options: YouTubeOptions) -> None:
        self.world = world
        self.options = options
        self.started = options.now()
        self.requests = RequestLog()
        self.quota = data_api.Quota(options.quota)
        self.tokens = TokenIssuer(options.oauth)
        self.ledger = ServedLedger(options.ledger_path) if options.ledger_path else None
        self._random = Random(options.seed)
        self._feeds: dict[str, tuple[int, SimulatedResponse]] = {}
        self._pages: dict[tuple[tuple[str, str], ...], tuple[int, SimulatedResponse]] = {}
        self.script: FaultScript = ()
        self._seen: list[int] = []
        self.set_faults(options.faults)

    def set_faults(self, text: str, *, from_now: bool = False) -> None:
        """Replace the script. Windows count from the start of the simulator, or from now."""
        later = self.options.now() - self.started if from_now else 0.0
        script = read_script(text, later=later)
        self._seen = [0] * len(script)
        self.script = script

    def fault(self, asked: RequestTarget, now: float) -> Fault:
        script, seen = self.script, self._seen
        if not script:
            return Fault()
        decision = decide(script, asked, now - self.started, self._random.random, seen)
        for place in decision.concerned:
            seen[place] += 1
        return decision.fault

    def feed(self, query: data_api.Query, now: float) -> SimulatedResponse:
        """The answer of /feeds/videos.xml, before faults."""
        ref = query.get("channel_id") or query.get("playlist_id")
        if not ref:
            return fault_responses.html_error(400, FEED_PATH)
        kept = self._feeds.get(ref)
        if kept and self._fresh(ref, *kept, now=now):
            return kept[1]
        version = self.world.version(ref)
        reply = self._render(ref, now, is_list="channel_id" not in query)
        if reply is None:
            return fault_responses.html_error(404, f"{FEED_PATH}?{urlencode(query)}")
        self._feeds[ref] = (version, reply)
        return reply

    def api(
        self, endpoint: str, query: dict[str, str], key: str | None, now: float, authorization: str = ""
    ) -> SimulatedResponse:
        """The answer of one Data API call, before faults. Only a known key or token can be charged."""
        try:
            self._admit(query, key, now, authorization)
            return self._api_page(endpoint, query, now, as_owner=bool(authorization))
        except ApiRefusalError as refused:
            code, body = error_body(refused.reason, refused.says)
            return SimulatedResponse(code, body, data_api.JSON)

    def record(self, reply: SimulatedResponse, at: float) -> None:
        """The answer got out in full: what it showed counts as served."""
        if self.ledger and reply.served:
            self.ledger.record(reply.served, at)

    def _admit(self, query: dict[str, str], key: str | None, now: float, authorization: str) -> None:
        in_url = query.pop("key", None)
        self.requests.keys_in_url += in_url is not None
        given = key or in_url
        if authorization and not self.tokens.accepts(authorization, now):
            raise ApiRefusalError("authError")
        if not given and not authorization:
            raise ApiRefusalError("forbidden")
        if given and given != self.options.api_key:
            raise ApiRefusalError("API_KEY_INVALID")
        if not self.quota.charge(now):
            raise ApiRefusalError("quotaExceeded")

    def _api_page(self, endpoint: str, query: dict[str, str], now: float, *, as_owner: bool) -> SimulatedResponse:
        if endpoint != "playlistItems" or "playlistId" not in query:
            return data_api.ENDPOINTS[endpoint](self.world, query, now)
        wanted = (*sorted(query.items()), ("owner", str(as_owner)))
        version = self.world.version(query["playlistId"])
        kept = self._pages.get(wanted)
        if kept and kept[0] == version:
            return kept[1]
        reply = data_api.playlist_items(self.world, query, now, short_pages=self.options.short_pages, as_owner=as_owner)
        if len(self._pages) >= KEPT_PAGES:
            self._pages.clear()
        self._pages[wanted] = (version, reply)
        return reply

    def _fresh(self, ref: str, version: int, reply: SimulatedResponse, *, now: float) -> bool:
        if self.options.copy_seconds:
            return now - (reply.made_at or 0.0) < self.options.copy_seconds
        return version == self.world.version(ref)

    def _render(self, ref: str, now: float, *, is_list: bool) -> SimulatedResponse | None:
        reply = self._list_feed(ref, now) if is_list else self._channel_feed(ref, now)
        if reply and self.options.etags:
            tag = hashlib.sha1(reply.body, usedforsecurity=False).hexdigest()
            return replace(reply, etag=tag)
        return reply

    def _channel_feed(self, ref: str, now: float) -> SimulatedResponse | None:
        channel = self.world.channel(ref)
        if channel is None:
            return None
        videos = self.world.newest(ref, atom_feed.FEED_SIZE)
        served = tuple(served_upload("feed", ref, video) for video in videos)
        return SimulatedResponse(
            200, atom_feed.channel_feed(channel, videos, now), fault_responses.XML, served=served, made_at=now
        )

    def _list_feed(self, ref: str, now: float) -> SimulatedResponse | None:
        listing = self.world.listing(ref)
        if listing is None:
            return None
        readable = [entry for entry in listing.entries if entry.video.readable][: atom_feed.FEED_SIZE]
        shown = tuple((e.video, self.world.channel(e.video.channel_id) or listing.owner) for e in readable)
        if channel_of(ref):
            served = tuple(served_upload("uploads", ref, entry.video) for entry in readable)
        else:
            served = tuple(served_item("playlist_feed", ref, entry) for entry in readable)
        return SimulatedResponse(
            200, atom_feed.playlist_feed(listing, shown, now), fault_responses.XML, served=served, made_at=now
        )


class SimulatedEndpoint:
    """One path of the site as an ASGI app: wait, answer, spoil, send, and only then write it down."""

    def __init__(self, site: YouTubeSite, target: str, path: str) -> None:
        self._site = site
        self._target = target
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        requests = self._site.requests
        requests.in_flight += 1
        requests.peak = max(requests.peak, requests.in_flight)
        try:
            await self._exchange(scope, receive, send)
        finally:
            requests.in_flight -= 1

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        site, query = self._site, dict(parse_qsl(scope["query_string"].decode("latin-1")))
        headers = dict(scope["headers"])
        asked = RequestTarget(self._target, requested_ref(query))
        fault = site.fault(asked, site.options.now())
        if delay := site.options.latency + fault.delay:
            await asyncio.sleep(delay)
        now = site.options.now()
        true_reply = self._conditional(self._answer(query, headers, now), headers)
        reply = fault_responses.apply_fault(true_reply, fault, self._path)
        complete = await send_response(reply, self._headers(reply, now), fault, scope, receive, send)
        if complete and fault.harmless and reply.status == 200 and scope["method"] == "GET":
            site.record(reply, now)
        status = reply.status if complete else LOST
        site.requests.note(RequestRecord(now, self._path, asked.ref, status, fault.name))

    def _answer(self, query: dict[str, str], headers: dict[bytes, bytes], now: float) -> SimulatedResponse:
        if self._target == FEED:
            return self._site.feed(query, now)
        key = headers.get(b"x-goog-api-key", b"").decode("latin-1")
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        return self._site.api(self._target, query, key, now, authorization)

    def _conditional(self, reply: SimulatedResponse, headers: dict[bytes, bytes]) -> SimulatedResponse:
        if reply.has_etag(headers.get(b"if-none-match", b"").decode("latin-1")):
            return replace(reply, status=304, body=b"", served=())
        return reply

    def _headers(self, reply: SimulatedResponse, now: float) -> HeaderPairs:
        if self._target != FEED:
            return (*_API_HEADERS, ("date", _http_date(int(now))), *reply.headers)
        copied = self._site.options.copy_seconds > 0
        return (*_FEED_HEADERS, *feed_cache_headers(reply, now, copied=copied), *reply.headers)


def create_app(world: World, options: YouTubeOptions | None = None) -> Starlette:
    """The site over `world`. Its Site is `app.state.site`: counters, faults, quota."""
    site = YouTubeSite(world, options or YouTubeOptions())
    doors = [Route(FEED_PATH, SimulatedEndpoint(site, FEED, FEED_PATH), methods=["GET"])]
    for name in data_api.ENDPOINTS:
        path = f"{API_PATH}/{name}"
        doors.append(Route(path, SimulatedEndpoint(site, name, path), methods=["GET"]))
    doors.append(Route(CAPTIONS_PATH, captions_handler(world), methods=["GET"]))
    doors.append(Route(OAUTH_PATH, _token_door(site), methods=["POST"]))
    app = Starlette(routes=[*doors, Mount("/sim", routes=control_routes(site))])
    app.state.site = site
    return app


def _token_door(site: YouTubeSite) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return site.tokens.issue(await read_form(request), site.options.now())

    return answer


def requested_ref(query: dict[str, str]) -> str:
    """The one id that a request is about; of several, the first."""
    names = ("channel_id", "playlist_id", "playlistId", "id", "forHandle", "channelId")
    found = next((query[name] for name in names if query.get(name)), "")
    return found.partition(",")[0][:100]


def feed_cache_headers(reply: SimulatedResponse, now: float, *, copied: bool) -> HeaderPairs:
    """Date and cache headers. Only a feed may be cached, for 900 s from when its copy was made."""
    if reply.made_at is None or reply.status not in (200, 304):
        return (("date", _http_date(int(now))),)
    made = int(reply.made_at if copied else now)
    headers = [
        ("cache-control", f"public, max-age={MAX_AGE}"),
        ("date", _http_date(made)),
        ("expires", _http_date(made + MAX_AGE)),
    ]
    if age := int(now) - made:
        headers.append(("age", str(age)))
    if reply.etag:
        headers.append(("etag", f'"{reply.etag}"'))
    return tuple(headers)


@lru_cache(maxsize=4096)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)
