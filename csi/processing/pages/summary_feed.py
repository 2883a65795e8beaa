"""The newest summaries as Atom and as JSON Feed, for readers that know the dashboard's password."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from csi import clock
from csi.errors import StoreError
from csi.processing.pages.reading import render_markdown
from csi.processing.pages.video_list import bullets_of
from csi.processing.runtime import Processing
from csi.processing.store import db, videos
from csi.processing.store.videos import ProcessingVideo, VideoFilter

ATOM_PATH, JSON_PATH = "/processing/feed.atom", "/processing/feed.json"
ENTRIES = 50
TITLE = "CSI: summaries"
_ATOM = "http://www.w3.org/2005/Atom"
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def routes(rt: Processing, has_password: Callable[[Request], bool] | None) -> list[Route]:
    """None: there is no password, and nothing is served."""

    def serve(make: Callable[[list[dict[str, Any]]], Response]) -> Callable[[Request], Any]:
        def read() -> Response:
            try:
                with db.reading():
                    entries = [_entry(video) for video in videos.page(ENTRIES, wanted=VideoFilter(status="summarized"))]
                    return make(entries)
            except StoreError:
                return JSONResponse({"error": "processing's database cannot be used"}, 503, _HEADERS)

        async def handle(request: Request) -> Response:
            if has_password is None:
                return JSONResponse({"error": "a password of the dashboard has to be set"}, 403, _HEADERS)
            if not has_password(request):
                return Response("401", 401, {**_HEADERS, "WWW-Authenticate": 'Basic realm="csi"'})
            return await to_thread.run_sync(read)

        return handle

    return [Route(ATOM_PATH, serve(_atom)), Route(JSON_PATH, serve(_json))]


def _entry(video: ProcessingVideo) -> dict[str, Any]:
    bullets = bullets_of(video)
    return {
        "id": f"urn:csi:video:{video.id}",
        "url": video.url,
        "title": video.doc.title,
        "content_html": str(render_markdown("\n".join(f"- {line}" for line in bullets))),
        "date_published": video.doc.published_at,
        "date_modified": video.doc.completed_at or video.doc.updated_at,
        "authors": [{"name": video.doc.channel_title}],
        "tags": list(video.doc.tags or []),
    }


def _json(entries: list[dict[str, Any]]) -> Response:
    feed = {"version": "https://jsonfeed.org/version/1.1", "title": TITLE, "items": entries}
    return JSONResponse(feed, 200, _HEADERS, media_type="application/feed+json")


def _atom(entries: list[dict[str, Any]]) -> Response:
    feed = ElementTree.Element("feed", {"xmlns": _ATOM})
    updated = max((entry["date_modified"] for entry in entries), default=clock.iso(0))
    for name, text in (("id", "urn:csi:summaries"), ("title", TITLE), ("updated", updated)):
        ElementTree.SubElement(feed, name).text = text
    for entry in entries:
        element = ElementTree.SubElement(feed, "entry")
        known = {"id": "id", "title": "title", "published": "date_published", "updated": "date_modified"}
        for name, key in known.items():
            ElementTree.SubElement(element, name).text = entry[key]
        ElementTree.SubElement(element, "link", {"href": entry["url"]})
        author = ElementTree.SubElement(element, "author")
        ElementTree.SubElement(author, "name").text = entry["authors"][0]["name"]
        ElementTree.SubElement(element, "content", {"type": "html"}).text = entry["content_html"]
        for tag in entry["tags"]:
            ElementTree.SubElement(element, "category", {"term": tag})
    body = ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True)
    return Response(body, 200, _HEADERS, media_type="application/atom+xml")
