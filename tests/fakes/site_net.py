"""A network that answers from the simulated YouTube by function call: same site, faults and counters, no sockets."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from csi.errors import NetError
from csi.net import HttpHeaders, HttpResponse
from csi.simulator.youtube.app import (
    FEED_PATH,
    RequestRecord,
    YouTubeSite,
    feed_cache_headers,
    requested_ref,
)
from csi.simulator.youtube.fault_effects import apply_fault
from csi.simulator.youtube.faults import FEED, RequestTarget

FEED_HOST = "www.youtube.com"
API_HOST = "www.googleapis.com"


class SiteNet:
    """Stands in for `csi.net.Net`; `asked` records time, host and reference of every request."""

    def __init__(self, site: YouTubeSite) -> None:
        self.site = site
        self.asked: list[tuple[float, str, str]] = []
        self.before: Callable[[str], None] = lambda ref: None

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, limits: Any = None) -> HttpResponse:
        parts, now = urlsplit(url), self.site.options.now()
        query = dict(parse_qsl(parts.query))
        target = FEED if parts.path == FEED_PATH else parts.path.rsplit("/", 1)[1].rpartition(":")[2]
        ref = requested_ref(query)
        self.asked.append((now, parts.netloc, ref))
        self.before(ref)
        fault = self.site.fault(RequestTarget(target, ref), now)
        if fault.name in ("reset", "hang", "cut"):
            raise NetError(f"{parts.netloc}: {fault.name}", kind="timeout" if fault.name == "hang" else "reset")
        reply = self._reply(target, query, dict(headers or {}), now)
        spoiled = apply_fault(reply, fault, parts.path)
        self.site.requests.add(RequestRecord(now, parts.path, ref, spoiled.status, fault.name))
        told = (*(feed_cache_headers(spoiled, now) if target == FEED else ()), *spoiled.headers)
        return HttpResponse(spoiled.status, HttpHeaders(told), spoiled.body, f"https://{parts.netloc}{parts.path}")

    def post(self, url: str, **_: Any) -> HttpResponse:
        raise NetError("this network has no receiver", kind="connect")

    def times(self, ref: str) -> list[float]:
        return [at for at, _, asked in self.asked if asked == ref]

    def _reply(self, target: str, query: dict[str, str], headers: dict[str, str], now: float) -> Any:
        if target == FEED:
            reply = self.site.feed(query, now)
            same = reply.has_etag(headers.get("If-None-Match"))
            return replace(reply, status=304, body=b"") if same else reply
        return self.site.api(target, query, headers.get("X-Goog-Api-Key", ""), now)
