"""The simulated feeds over HTTP: feeds, pages, a WebSub hub, and a control API under /sim."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi.simulator.control import changed
from csi.simulator.feeds.site import FAULTS, FeedSite
from csi.simulator.hub import SimulatedHub

TICK = 0.2


def feeds_app(site: FeedSite, hub: SimulatedHub | None = None) -> Starlette:
    """`hub`: pushes each post that the control API publishes to its subscribers."""

    async def read(request: Request) -> Response:
        answer = site.get(request.url.path, request.headers)
        return Response(answer.body, answer.status, headers=dict(answer.headers))

    async def show(request: Request) -> Response:
        feeds = {
            name: {"url": site.address(name), "page": f"{site.base}/pages/{name}", "kind": feed.kind,
                   "fault": feed.fault, "posts": len(feed.posts)}
            for name, feed in site.feeds.items()
        }  # fmt: skip
        return JSONResponse({"feeds": feeds, "faults": FAULTS, "requests": len(site.requests)})

    async def publish(request: Request) -> Response:
        def act(body: dict[str, str]) -> dict[str, object]:
            return {"number": publish_post(site, hub, str(body.get("feed", "")), body.get("title"))}

        return await changed(request, act)

    async def set_fault(request: Request) -> Response:
        def act(body: dict[str, str]) -> dict[str, object]:
            site.set_fault(str(body.get("feed", "")), str(body.get("fault", "")))
            return {"fault": body.get("fault", "")}

        return await changed(request, act)

    routes = [
        Route("/sim/feeds", show, methods=["GET"]),
        Route("/sim/posts", publish, methods=["POST"]),
        Route("/sim/faults", set_fault, methods=["POST"]),
        *(hub.app().routes if hub is not None else ()),
        Route("/{path:path}", read, methods=["GET"]),
    ]
    return Starlette(routes=routes)


def publish_post(site: FeedSite, hub: SimulatedHub | None, name: str, title: str | None = None) -> int:
    """Publish a post, and push its feed to the subscribers of the hub. Returns the number of the post."""
    number = site.publish(name, title).number
    if hub is not None:
        hub.push(site.address(name), site.document(site.feeds[name]))
    return number


async def publish_steadily(site: FeedSite, hub: SimulatedHub | None, rate: float) -> None:
    """`rate` posts a second, in the feeds in turn, until cancelled."""
    started, made, names = site.now(), 0, list(site.feeds)
    while True:
        while names and made < int((site.now() - started) * rate):
            await asyncio.to_thread(publish_post, site, hub, names[made % len(names)])
            made += 1
        await asyncio.sleep(TICK)
