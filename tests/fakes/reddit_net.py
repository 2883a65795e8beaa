"""A network that answers from the simulated Reddit by function call, with the pacing of the real one."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from csi.net import HttpHeaders, HttpResponse
from csi.net.response import Redirect
from csi.simulator.reddit.site import RedditSite, SimulatedAnswer


class RedditNet:
    """Stands in for `csi.net.Net`."""

    def __init__(self, site: RedditSite) -> None:
        self.site, self.pacer = site, None

    def get(
        self, url: str, *, headers: Mapping[str, str], limits: Any = None, paced_as: str | None = None
    ) -> HttpResponse:
        host = paced_as or urlsplit(url).netloc
        if self.pacer is not None:
            self.pacer.before(host)
        answer, redirects = self._ask(url, headers), []
        while answer.status in (301, 302):
            there = dict(answer.headers)["location"]
            redirects.append(Redirect(answer.status, f"https://www.reddit.com{there}"))
            answer = self._ask(there, headers)
        response = HttpResponse(
            answer.status, HttpHeaders(answer.headers), answer.body, url, redirects=tuple(redirects)
        )
        if self.pacer is not None:
            self.pacer.after(host, response.status, response.headers, url)
        return response

    def post(self, url: str, *, body: bytes, headers: Mapping[str, str], limits: Any = None) -> HttpResponse:
        answer = self.site.token(headers, body)
        return HttpResponse(answer.status, HttpHeaders(answer.headers), answer.body, url)

    def _ask(self, url: str, headers: Mapping[str, str]) -> SimulatedAnswer:
        parts = urlsplit(url)
        return self.site.get(parts.path, dict(parse_qsl(parts.query)), headers)
