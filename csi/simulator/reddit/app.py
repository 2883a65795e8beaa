"""The simulated Reddit over HTTP: feed, API and access tokens on one port."""

import asyncio
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.simulator.reddit.site import RedditSite, SimulatedAnswer

TOKEN_PATH = "/api/v1/access_token"  # noqa: S105


def reddit_app(site: RedditSite) -> Starlette:
    async def listing(request: Request) -> Response:
        return _response(site.get(request.url.path, dict(request.query_params), request.headers))

    async def token(request: Request) -> Response:
        return _response(site.token(request.headers, await request.body()))

    routes = [Route(TOKEN_PATH, token, methods=["POST"]), Route("/{path:path}", listing, methods=["GET"])]
    return Starlette(routes=routes)


async def post_steadily(site: RedditSite, names: Sequence[str], rate: float) -> None:
    """`rate` posts a second, in the subreddits in turn, until cancelled."""
    started, made = site.now(), 0
    while True:
        while made < int((site.now() - started) * rate):
            site.publish(names[made % len(names)])
            made += 1
        await asyncio.sleep(0.2)


def _response(answer: SimulatedAnswer) -> Response:
    return Response(answer.body, answer.status, headers=dict(answer.headers))
