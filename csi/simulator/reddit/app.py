"""The simulated Reddit over HTTP: feed, API and access tokens on one port, and a control API under /sim."""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi.errors import CsiError
from csi.simulator.control import changed
from csi.simulator.reddit.site import RedditSite, SimulatedAnswer

TOKEN_PATH = "/api/v1/access_token"  # noqa: S105
MOST_POSTS = 10_000
"""In one request of the control API."""


def reddit_app(site: RedditSite) -> Starlette:
    async def listing(request: Request) -> Response:
        return _response(site.get(request.url.path, dict(request.query_params), request.headers))

    async def token(request: Request) -> Response:
        return _response(site.token(request.headers, await request.body()))

    async def show(request: Request) -> Response:
        return JSONResponse(
            {
                "subreddits": {
                    name: {"posts": len(posts), "state": site.state(name)} for name, posts in site.posts.items()
                },
                "blocked": site.blocked,
                "accepts_key": site.accepts_key,
                "per_minute": site.per_minute,
                "requests": len(site.asked),
                "refused": sum(status in (403, 429) for _, _, status in site.asked),
            }
        )

    async def publish(request: Request) -> Response:
        return await changed(request, lambda body: _publish(site, body))

    async def set_subreddit(request: Request) -> Response:
        return await changed(request, lambda body: _set_subreddit(site, body))

    async def set_access(request: Request) -> Response:
        return await changed(request, lambda body: _set_access(site, body))

    routes = [
        Route("/sim/state", show, methods=["GET"]),
        Route("/sim/posts", publish, methods=["POST"]),
        Route("/sim/subreddits", set_subreddit, methods=["POST"]),
        Route("/sim/access", set_access, methods=["POST"]),
        Route(TOKEN_PATH, token, methods=["POST"]),
        Route("/{path:path}", listing, methods=["GET"]),
    ]
    return Starlette(routes=routes)


async def post_steadily(site: RedditSite, names: Sequence[str], rate: float) -> None:
    """`rate` posts a second, in the subreddits in turn, until cancelled."""
    started, made = site.now(), 0
    while True:
        while made < int((site.now() - started) * rate):
            site.publish(names[made % len(names)])
            made += 1
        await asyncio.sleep(0.2)


def _publish(site: RedditSite, body: dict[str, Any]) -> dict[str, Any]:
    """`late`: a moderator approves the post after so many seconds, and it is listed at its old time."""
    name, count = str(body.get("subreddit", "")), int(body.get("count", 1))
    if name.lower() not in site.posts:
        raise CsiError(f"there is no subreddit {name!r}; GET /sim/state lists them")
    if not 1 <= count <= MOST_POSTS:
        raise CsiError(f"count: expected 1 to {MOST_POSTS:,}")
    more: dict[str, Any] = {"title": str(body["title"])} if body.get("title") else {}
    late = float(body.get("late", 0.0))
    return {"posts": [site.publish(name, late=late, **more).id for _ in range(count)]}


def _set_subreddit(site: RedditSite, body: dict[str, Any]) -> dict[str, Any]:
    name, state = str(body.get("name", "")), str(body.get("state", ""))
    site.set_state(name, state, str(body.get("renamed_to", "")))
    return {"name": name, "state": state}


def _set_access(site: RedditSite, body: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(body) - {"blocked", "accepts_key", "per_minute"}):
        raise CsiError(f"unknown: {unknown[0]}")
    site.blocked = bool(body.get("blocked", site.blocked))
    site.accepts_key = bool(body.get("accepts_key", site.accepts_key))
    if "per_minute" in body:
        site.per_minute = int(body["per_minute"] or 0) or None
    return {"blocked": site.blocked, "accepts_key": site.accepts_key, "per_minute": site.per_minute}


def _response(answer: SimulatedAnswer) -> Response:
    return Response(answer.body, answer.status, headers=dict(answer.headers))
