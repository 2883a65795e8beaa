"""The simulated YouTube without a socket, under its real names: the same site, faults and counters, in no time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from peewee import fn

from csi.errors import NetError
from csi.net import HttpHeaders, HttpResponse
from csi.pipeline import ingest, poll, schedule
from csi.simulator.youtube.app import (
    FEED_PATH,
    RequestRecord,
    YouTubeOptions,
    YouTubeSite,
    feed_cache_headers,
    requested_ref,
)
from csi.simulator.youtube.fault_responses import apply_fault
from csi.simulator.youtube.faults import FEED, RequestTarget
from csi.simulator.youtube.traffic import populate
from csi.simulator.youtube.world import World
from csi.store import db, inbox
from csi.store.models import InboxItem, Watch
from tests.fakes.line import Line

FEED_HOST = "www.youtube.com"
API_HOST = "www.googleapis.com"


class SiteNet:
    """Answers as the site would."""

    def __init__(self, site: YouTubeSite) -> None:
        self.site = site
        self.asked: list[tuple[float, str, str]] = []
        self.before: Callable[[str], None] = lambda ref: None

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, limits: Any = None) -> HttpResponse:
        parts, now = urlsplit(url), self.site.options.now()
        query = dict(parse_qsl(parts.query))
        target = FEED if parts.path == FEED_PATH else parts.path.rsplit("/", 1)[1]
        ref = requested_ref(query)
        self.asked.append((now, parts.netloc, ref))
        self.before(ref)
        fault = self.site.fault(RequestTarget(target, ref), now)
        if fault.name in ("reset", "hang", "cut"):
            raise NetError(f"{parts.netloc}: {fault.name}", kind="timeout" if fault.name == "hang" else "reset")
        reply = self._reply(target, query, dict(headers or {}), now)
        spoiled = apply_fault(reply, fault, parts.path)
        self.site.requests.add(RequestRecord(now, parts.path, ref, spoiled.status, fault.name))
        told = (*(feed_cache_headers(spoiled, now, copied=False) if target == FEED else ()), *spoiled.headers)
        return HttpResponse(spoiled.status, HttpHeaders(told), spoiled.body, f"https://{parts.netloc}{parts.path}")

    def post(self, url: str, **_: Any) -> HttpResponse:
        raise NetError("nobody delivers here", kind="connect")

    def times(self, ref: str) -> list[float]:
        return [at for at, _, asked in self.asked if asked == ref]

    def _reply(self, target: str, query: dict[str, str], headers: dict[str, str], now: float) -> Any:
        if target == FEED:
            reply = self.site.feed(query, now)
            same = reply.has_etag(headers.get("If-None-Match"))
            return replace(reply, status=304, body=b"") if same else reply
        return self.site.api(target, query, headers.get("X-Goog-Api-Key", ""), now)


class Rounds:
    """A line that only reads: time goes from one due watch to the next."""

    def __init__(
        self, line: Line, site: YouTubeSite, channels: tuple[str, ...], playlists: tuple[str, ...], library: str
    ) -> None:
        self.line, self.rt, self.clock = line, line.rt, line.clock
        self.site, self.world = site, site.world
        self.channels, self.playlists, self.library = channels, playlists, library
        self.use(line)

    def use(self, line: Line) -> None:
        """Read with this line from now on, as after a restart."""
        self.line, self.rt = line, line.rt
        self.net = SiteNet(self.site)
        line.rt.net = self.net  # type: ignore[assignment]
        line.rt.adapters.clear()

    def run(self) -> None:
        """Everything that is due at this moment."""
        due = [*self.line._due(), *schedule.plan(self.rt, horizon=0)]
        for wake in due:
            if wake.at is not None and wake.at > self.clock():
                self.line.scheduled.append(wake)
            elif wake.step == "poll":
                self._poll(int(wake.key))
            else:
                self._ingest([int(wake.key)])
        self._ingest(inbox.overdue(self.clock()))

    def until(self, moment: float, step: float = 0.5) -> None:
        self.run()
        while self.clock() < moment:
            self.clock.time = min(max(self._next(), self.clock() + step), moment)
            self.run()

    def go(self, seconds: float, step: float = 0.5) -> None:
        self.until(self.clock() + seconds, step)

    def upload(self, channel: str, title: str = "A new video", **fields: Any) -> str:
        return self.world.upload(channel, title, **{"at": self.clock(), **fields}).id

    def _next(self) -> float:
        waiting = InboxItem.select(fn.MIN(InboxItem.wake_at)).where(InboxItem.state == "new").scalar()
        due = Watch.select(fn.MIN(Watch.wake_at)).where(Watch.state == "active").scalar()
        scheduled = [wake.at for wake in self.line.scheduled if wake.at is not None]
        return min(at for at in (waiting, due, *scheduled, self.clock() + 3600) if at is not None)

    def _poll(self, watch_id: int) -> None:
        for wakes in poll.poll(self.rt, watch_id):
            self._ingest([int(wake.key) for wake in wakes if wake.step == "ingest" and wake.at is None])
            self.line.scheduled += [wake for wake in wakes if wake.at is not None]

    def _ingest(self, ids: list[int]) -> None:
        for item_id in ids:
            ingest.ingest(self.rt, item_id)


@contextmanager
def rounds(
    tmp_path: Path,
    clock: Any,
    *,
    channels: int = 0,
    playlists: int = 0,
    videos: int = 0,
    feeds: dict[str, Any] | None = None,
    lists: dict[str, Any] | None = None,
    site: YouTubeOptions | None = None,
    csi: dict[str, Any] | None = None,
) -> Iterator[Rounds]:
    """So many channels and playlists with `videos` each, and the line that reads them."""
    options = site or YouTubeOptions(now=clock)
    world = World(options.seed)
    cast = populate(world, channels=channels, playlists=playlists, videos=videos, at=clock())
    sources = {
        "youtube_channel_rss": {"watchlist": [{"channel_id": ref} for ref in cast.channels], **(feeds or {})},
        "youtube_playlist": {"playlists": [{"id": ref} for ref in cast.playlists], **(lists or {})},
    }
    line = Line(tmp_path, clock, "http://127.0.0.1:9/", sources=sources, csi=dict(csi or {}))
    with db.connection():
        yield Rounds(line, YouTubeSite(world, options), cast.channels, cast.playlists, cast.library)
