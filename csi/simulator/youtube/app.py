"""The simulated YouTube as one Starlette app: feeds, Data API, captions and tokens, with faults and a ledger."""

import asyncio
import hashlib
import html
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path
from random import Random
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from csi import clock
from csi.simulator.youtube import atom_feed, data_api
from csi.simulator.youtube.api_errors import ApiRefusalError, error_body
from csi.simulator.youtube.captions import CAPTIONS_PATH, captions_handler
from csi.simulator.youtube.control_api import control_routes
from csi.simulator.youtube.fault_effects import INCOMPLETE, apply_fault, html_error, send_response
from csi.simulator.youtube.faults import FEED, Fault, FaultScript, RequestTarget, decide, read_script
from csi.simulator.youtube.oauth_tokens import OAUTH_PATH, OAuthClient, TokenIssuer
from csi.simulator.youtube.response import HeaderPairs, ServedLedger, SimulatedResponse, served_entries, served_upload
from csi.simulator.youtube.world import SimulatedChannel, World

FEED_PATH = "/feeds/videos.xml"
API_PATH = "/youtube/v3"
MAX_AGE = 900
MAX_FORM_BYTES = 10_000
XML = "text/xml; charset=UTF-8"
RECENT_REQUESTS = 20_000  # how many GET /sim/requests returns
CACHED_PAGES = 2_000

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


API_KEY = "demo-key"
"""Callers send it unless another one is wanted. It is no secret: it opens simulated data only."""


@dataclass(frozen=True)
class YouTubeOptions:
    """How the simulated YouTube behaves. `now` is its clock; tests pass one that they move."""

    api_key: str = field(default=API_KEY, repr=False)
    oauth: OAuthClient = field(default_factory=OAuthClient)  # the owner of every private playlist
    quota: int = 10_000
    stats_quota: int = 10_000
    faults: str = ""
    latency: float = 0.0
    etags: bool = False  # feeds with ETag and 304; the real feeds have neither
    short_pages: bool = False  # pages have 49 of 50 items and a next page
    ledger_path: Path | None = None
    seed: int = 0
    now: Callable[[], float] = clock.now


@dataclass(frozen=True)
class RequestRecord:
    """One finished request. `status` is 0 when the connection ended before the whole response was sent."""

    at: float
    path: str
    ref: str
    status: int
    fault: str


class RequestLog:
    """Counters and the latest requests, for tests and for the control API."""

    def __init__(self) -> None:
        self.by_path: dict[str, Counter[int]] = {}
        self.recent: deque[RequestRecord] = deque(maxlen=RECENT_REQUESTS)
        self.keys_in_url = 0
        self.in_flight = 0
        self.peak = 0

    def add(self, record: RequestRecord) -> None:
        self.by_path.setdefault(record.path, Counter())[record.status] += 1
        self.recent.append(record)

    @contextmanager
    def counted_in_flight(self) -> Iterator[None]:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            yield
        finally:
            self.in_flight -= 1

    def count(self, path: str = "", status: int | None = None, ref: str | None = None) -> int:
        """Finished requests. `path` may be the end of one, as in `playlistItems`; with `ref`, only recent requests."""
        if ref is not None:
            return sum(
                record.ref == ref and record.path.endswith(path) and status in (None, record.status)
                for record in tuple(self.recent)
            )
        return sum(
            number
            for name, statuses in tuple(self.by_path.items())
            for code, number in tuple(statuses.items())
            if name.endswith(path) and status in (None, code)
        )


class YouTubeSite:
    """The app's state: world, counters, faults, quota, and cached responses."""

    def __init__(self, world: World, options: YouTubeOptions) -> None:
        self.world = world
        self.options = options
        self.started = options.now()
        self.requests = RequestLog()
        self.quota = data_api.Quota(options.quota)
        self.own_quotas = {name: data_api.Quota(options.stats_quota) for name in data_api.OWN_QUOTA}
        self.tokens = TokenIssuer(options.oauth)
        self._ledger = ServedLedger(options.ledger_path) if options.ledger_path else None
        self._random = Random(options.seed)
        self._feeds: dict[str, tuple[int, SimulatedResponse]] = {}
        self._is_stale: dict[str, bool] = {}
        """By channel, whether its feed stays as it was served last."""
        self._pages: dict[tuple[tuple[str, str], ...], tuple[int, SimulatedResponse]] = {}
        self.script: FaultScript = ()
        self._rule_counts: list[int] = []
        self.set_faults(options.faults)

    def set_faults(self, text: str, *, from_now: bool = False) -> None:
        """Replace the script. Its windows count from the start of the simulator, or from now."""
        later = self.options.now() - self.started if from_now else 0.0
        script = read_script(text, later=later)
        self._rule_counts = [0] * len(script)
        self.script = script

    def fault(self, request: RequestTarget, now: float) -> Fault:
        script, counts = self.script, self._rule_counts
        if not script:
            self._is_stale.clear()
            return Fault()
        fault, matched = decide(script, request, now - self.started, self._random.random, counts)
        for position in matched:
            counts[position] += 1
        self._is_stale[request.ref] = fault.name == "stale"
        return fault

    def feed(self, query: data_api.Query, now: float) -> SimulatedResponse:
        """The response of /feeds/videos.xml, before faults."""
        ref = query.get("channel_id") or query.get("playlist_id")
        if not ref:
            return html_error(400, FEED_PATH)
        version = self.world.version(ref)
        cached = self._feeds.get(ref)
        if cached and (cached[0] == version or self._is_stale.get(ref)):
            return cached[1]
        response = self._channel_feed(ref, now) if "channel_id" in query else self._playlist_feed(ref, now)
        if response is None:
            return html_error(404, f"{FEED_PATH}?{urlencode(query)}")
        if self.options.etags:
            response = replace(response, etag=hashlib.sha1(response.body, usedforsecurity=False).hexdigest())
        self._feeds[ref] = (version, response)
        return response

    def api(
        self, endpoint: str, query: dict[str, str], key: str | None, now: float, authorization: str = ""
    ) -> SimulatedResponse:
        """The response of one Data API call, before faults."""
        try:
            # Check key and token, then charge one unit: a call without valid credentials costs nothing
            key_in_url = query.pop("key", None)
            self.requests.keys_in_url += key_in_url is not None
            given = key or key_in_url
            if authorization and not self.tokens.accepts(authorization, now):
                raise ApiRefusalError("authError")
            if not given and not authorization:
                raise ApiRefusalError("forbidden")
            if given and given != self.options.api_key:
                raise ApiRefusalError("API_KEY_INVALID")
            if not (self.own_quotas.get(endpoint, self.quota)).charge(now):
                raise ApiRefusalError("quotaExceeded")
            if endpoint == "playlistItems" and "playlistId" in query:
                return self._playlist_items(query, now, as_owner=bool(authorization))
            return data_api.ENDPOINTS[endpoint](self.world, query, now)
        except ApiRefusalError as refusal:
            code, body = error_body(refusal.reason, refusal.message)
            return SimulatedResponse(code, body, data_api.JSON)

    def record_served(self, response: SimulatedResponse, at: float) -> None:
        """Write the items of a response that was sent in full to the ledger."""
        if self._ledger and response.served:
            self._ledger.record(response.served, at)

    def _playlist_items(self, query: dict[str, str], now: float, *, as_owner: bool) -> SimulatedResponse:
        cache_key = (*sorted(query.items()), ("owner", str(as_owner)))
        version = self.world.version(query["playlistId"])
        cached = self._pages.get(cache_key)
        if cached and cached[0] == version:
            return cached[1]
        short_pages = self.options.short_pages
        response = data_api.playlist_items(self.world, query, now, short_pages=short_pages, as_owner=as_owner)
        if len(self._pages) >= CACHED_PAGES:
            self._pages.clear()
        self._pages[cache_key] = (version, response)
        return response

    def _channel_feed(self, ref: str, now: float) -> SimulatedResponse | None:
        channel = self.world.channel(ref)
        if channel is None:
            return None
        videos = self.world.newest(ref, atom_feed.FEED_SIZE)
        served = tuple(served_upload("feed", ref, video) for video in videos)
        return SimulatedResponse(
            200, atom_feed.channel_feed(channel, videos, self.world.growth.at(now)), XML, served=served, is_feed=True
        )

    def _playlist_feed(self, ref: str, now: float) -> SimulatedResponse | None:
        listing = self.world.listing(ref)
        if listing is None:
            return None
        entries = [entry for entry in listing.entries if entry.video.readable][: atom_feed.FEED_SIZE]
        videos = tuple((entry.video, self.world.channel(entry.video.channel_id) or listing.owner) for entry in entries)
        served = served_entries(listing, "playlist_feed", entries)
        return SimulatedResponse(
            200, atom_feed.playlist_feed(listing, videos, self.world.growth.at(now)), XML, served=served, is_feed=True
        )


class SimulatedEndpoint:
    """One path of the site as an ASGI app: delay, respond, apply the fault, send, then record."""

    def __init__(self, site: YouTubeSite, target: str, path: str) -> None:
        self._site = site
        self._target = target
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        site, query = self._site, dict(parse_qsl(scope["query_string"].decode("latin-1")))
        target = RequestTarget(self._target, requested_ref(query))
        with site.requests.counted_in_flight():
            fault = site.fault(target, site.options.now())
            if delay := site.options.latency + fault.delay:
                await asyncio.sleep(delay)
            now = site.options.now()
            given = {name: value.decode("latin-1") for name, value in scope["headers"]}
            if self._target == FEED:
                response = site.feed(query, now)
            else:
                key, authorization = given.get(b"x-goog-api-key", ""), given.get(b"authorization", "")
                response = site.api(self._target, query, key, now, authorization)
            if response.has_etag(given.get(b"if-none-match")):
                response = replace(response, status=304, body=b"", served=())
            response = apply_fault(response, fault, self._path)
            if self._target != FEED:
                headers = (*_API_HEADERS, ("date", _http_date(int(now))), *response.headers)
            else:
                headers = (*_FEED_HEADERS, *feed_cache_headers(response, now), *response.headers)
            complete = await send_response(response, headers, fault, scope, receive, send)
            if complete and fault.harmless and response.status == 200 and scope["method"] == "GET":
                site.record_served(response, now)
            status = response.status if complete else INCOMPLETE
            site.requests.add(RequestRecord(now, self._path, target.ref, status, fault.name))


def create_app(world: World, options: YouTubeOptions | None = None) -> Starlette:
    """The site over `world`. `app.state.site` is its YouTubeSite: counters, faults, quota."""
    site = YouTubeSite(world, options or YouTubeOptions())

    async def issue_token(request: Request) -> Response:
        form = dict(parse_qsl((await request.body())[:MAX_FORM_BYTES].decode("latin-1")))
        return site.tokens.issue(form, site.options.now())

    async def channel_page(request: Request) -> Response:
        return _page(world.by_handle(request.path_params["handle"]), "")

    async def video_page(request: Request) -> Response:
        video = world.video(request.query_params.get("v", ""))
        known = video if video and video.readable else None
        return _page(world.channel(known.channel_id) if known else None, request.query_params.get("v", ""))

    paths = {FEED: FEED_PATH} | {
        name: f"{API_PATH}/{data_api.CUSTOM_METHODS.get(name, name)}" for name in data_api.ENDPOINTS
    }
    app = Starlette(
        routes=[
            *(Route(path, SimulatedEndpoint(site, name, path), methods=["GET"]) for name, path in paths.items()),
            Route("/@{handle}", channel_page, methods=["GET"]),
            Route("/watch", video_page, methods=["GET"]),
            Route(CAPTIONS_PATH, captions_handler(world), methods=["GET"]),
            Route(OAUTH_PATH, issue_token, methods=["POST"]),
            Mount("/sim", routes=control_routes(site)),
        ]
    )
    app.state.site = site
    return app


def _page(channel: SimulatedChannel | None, video: str) -> Response:
    """What programs read of the page of a channel or a video. YouTube has a page for every video id."""
    if channel is None:
        return HTMLResponse(
            f'<html><script>{{"videoId":"{html.escape(video)}"}}</script></html>', 200 if video else 404
        )
    title, link = html.escape(channel.title), f"https://www.youtube.com/channel/{channel.id}"
    if video:
        facts = f'<meta itemprop="channelId" content="{channel.id}"><link itemprop="name" content="{title}">'
    else:
        facts = f'<link rel="canonical" href="{link}"><meta property="og:title" content="{title}">'
    return HTMLResponse(f"<!DOCTYPE html><html><head>{facts}</head><body></body></html>")


def requested_ref(query: dict[str, str]) -> str:
    """The channel, list or video id that a request names; of several ids, the first."""
    names = ("channel_id", "playlist_id", "playlistId", "id", "forHandle", "channelId")
    found = next((query[name] for name in names if query.get(name)), "")
    return found.partition(",")[0][:100]


def feed_cache_headers(response: SimulatedResponse, now: float) -> HeaderPairs:
    """Date and cache headers. Only a feed may be cached, for 900 s."""
    date = ("date", _http_date(int(now)))
    if not response.is_feed or response.status not in (200, 304):
        return (date,)
    etag = (("etag", f'"{response.etag}"'),) if response.etag else ()
    expires = ("expires", _http_date(int(now) + MAX_AGE))
    return (("cache-control", f"public, max-age={MAX_AGE}"), date, expires, *etag)


@lru_cache(maxsize=4096)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)
