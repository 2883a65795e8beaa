"""`/feeds`: stored events as an Atom feed and as a JSON Feed, and the watches as OPML, for feed readers."""

import base64
import binascii
import hashlib
import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from pydantic import Field, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi import __version__, clock
from csi.adapters.registry import ADAPTERS
from csi.admin import watches
from csi.admin.watches import WatchRefused
from csi.runtime import Runtime
from csi.store import events
from csi.store.models import Event
from csi.store.queries import event_search
from csi.store.queries.event_search import EventQuery
from csi.web import auth
from csi.web.auth import AccessRules, access_rules
from csi.web.guards import check_brake, note_wrong
from csi.web.operation_definition import Limit, RequestModel, parameters_of
from csi.web.responses import HttpProblem, problem
from csi.web.shared_state import Sidecar

ATOM = "http://www.w3.org/2005/Atom"
JSON_FEED = "https://jsonfeed.org/version/1.1"
MEDIA_TYPES = {
    "atom": "application/atom+xml; charset=utf-8",
    "json": "application/feed+json; charset=utf-8",
    "opml": "text/x-opml; charset=utf-8",
}
EPOCH = "1970-01-01T00:00:00Z"
"""When an empty feed was updated: a constant, so that it stays the same document."""
HEADERS = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
REMEMBERED = 256
# What XML 1.0 cannot contain, in any spelling.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

Format = Literal["atom", "json", "opml"]


class FeedQuery(RequestModel):
    """Which events a feed has; several values are separated by commas, all conditions must hold."""

    source: str = Field("", description="Only of these sources", max_length=500)
    type: str = Field("", description="Only of these event types", max_length=500)
    tag: str = Field("", description="Only with one of these tags", max_length=500)
    watch: str = Field("", description="Only of this watch: its number, id, name or URL", max_length=500)
    limit: Limit = 50

    def address(self) -> str:
        """The parameters that differ from the defaults, in one order."""
        return urlencode(self.model_dump(exclude_defaults=True))


@dataclass(frozen=True)
class EventFeed:
    """What a feed consists of, whatever its format."""

    title: str
    author: str
    url: str
    feed_id: str
    items: Sequence[Event]


class FeedDates:
    """Since when each feed has its present content, for `Last-Modified`.

    Kept in memory: rows do not say when an event was stored, only when its item was seen. A process that starts again
    gives later times, which costs a reader one more download and never an event.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def modified_at(self, address: str, etag: str, now: float) -> int:
        before = self._known.pop(address, None)
        if before is None or before[0] != etag:
            # At least a second later than the content before: the header has no fractions.
            before = (etag, max(int(now), before[1] + 1 if before else 0))
        self._known[address] = before
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return before[1]


def routes() -> list[Route]:
    """Each feed at its own path, and at the same path behind a token for readers that send no header."""
    names = ("events.atom", "events.json", "watches.opml")
    places = [place for name in names for place in (f"/feeds/{name}", f"/feeds/{{token}}/{name}")]
    return [Route(place, show, methods=["GET"]) for place in places]


async def show(request: Request) -> Response:
    """Refused without the read token, of the path or of a header, before anything is read."""
    sidecar: Sidecar = request.app.state.sidecar
    try:
        rules = access_rules(await sidecar.settings())
        check_brake(sidecar, request)
        authorize(rules, request)
        format: Format = request.url.path.rpartition(".")[2]  # type: ignore[assignment]
        given = parameters_of(request)
        known = [] if format == "opml" else list(FeedQuery.model_fields)
        if unknown := [name for name in given if name not in known]:
            names = f"known are {', '.join(known)}" if known else "this document has none"
            raise HttpProblem(400, f"{len(unknown)} unknown parameter; {names}")
        try:
            query = FeedQuery.model_validate(given)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            raise HttpProblem(400, f"{fault['loc'][0]}: {fault['msg']}") from error
        # The address of the sidecar as the reader knows it. The Host was checked; a proxy in front says whether
        # it is https.
        is_https = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        base_url = f"{'https' if is_https else 'http'}://{request.headers['host']}"
        url = f"{base_url}/feeds/{request.url.path.rpartition('/')[2]}"
        if address := query.address():
            url += f"?{address}"
        body = await sidecar.read(lambda rt: _render(rt, format, query, url))
    except HttpProblem as error:
        sidecar.warn("feed request refused", error)
        if error.status == 401 and ("authorization" in request.headers or "token" in request.path_params):
            note_wrong(sidecar, request)
        headers = {"WWW-Authenticate": 'Basic realm="csi feeds", charset="UTF-8"'} if error.status == 401 else {}
        return problem(error.status, str(error), headers)
    dates: FeedDates = request.app.state.feed_dates
    return _conditional(request.headers, body, format, url, dates, sidecar.now())


def authorize(rules: AccessRules, request: Request) -> None:
    """HttpProblem unless the request has a token that may read: in the path, as a bearer token, or as the password of
    basic authentication. The admin token is not accepted in a path, because addresses are stored and passed on."""
    if not rules.serves_api:
        raise HttpProblem(404, "the admin API and its feeds are switched off (features.admin_api)")
    auth.check_origin(rules, request.method, request.headers)
    if not (rules.token or rules.read_token or rules.feed_token):
        raise HttpProblem(403, "feeds need a token: set CSI_FEED_TOKEN or CSI_ADMIN_READ_TOKEN")
    in_path = request.path_params.get("token")
    if in_path is not None:
        if not auth.is_feed_token(rules, in_path):
            raise HttpProblem(401, "no feed has this address; its token must be CSI_FEED_TOKEN or CSI_ADMIN_READ_TOKEN")
        return
    given = _header_token(request.headers)
    if not auth.is_feed_token(rules, given) and auth.role_of(rules, given) is None:
        raise HttpProblem(401, "a feed needs its token: as Authorization: Bearer, as a password, or in the path")


def _header_token(headers: Headers) -> str:
    credentials = headers.getlist("authorization")
    scheme, _, given = credentials[0].partition(" ") if len(credentials) == 1 else ("", "", "")
    if scheme.lower() == "bearer":
        return given.strip(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given.strip(" "), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


# ── content ─────────────────────────────────────────────────────────────────────────────────────────────


def _render(rt: Runtime, format: Format, query: FeedQuery, url: str) -> bytes:
    if format == "opml":
        return watches.export_list(rt).encode()
    instance = rt.settings.csi.instance_id
    sources = _words(query.source)
    known = dict.fromkeys([*ADAPTERS, *rt.settings.sources])
    # Events of senders (docs/push.md) name their source themselves.
    others = [name for name in sources if name not in known]
    if unknown := [name for name in others if not event_search.newest(EventQuery(source=name), 1)]:
        raise HttpProblem(400, f"source: {len(unknown)} unknown; known are {', '.join(known)}")
    try:
        watch_id = watches.find_watch(rt, query.watch).id if query.watch else None
    except WatchRefused as error:
        raise HttpProblem(404, str(error)) from error
    event_query = EventQuery(sources=sources, event_types=_words(query.type), tags=_words(query.tag), watch_id=watch_id)
    found = event_search.newest(event_query, query.limit)
    feed = EventFeed(
        title=f"CSI events of {instance}" + (f" ({query.address()})" if query.address() else ""),
        author=f"CSI {instance}",
        url=url,
        # Of the instance and the filters, not of the address: a feed keeps its id when the host is renamed.
        feed_id=f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'csi:{instance}:{query.address()}')}",
        items=events.by_ids([row.id for row in found]),
    )
    return atom(feed) if format == "atom" else json_feed(feed)


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip())))


def atom(feed: EventFeed) -> bytes:
    """RFC 4287."""
    root = ElementTree.Element("feed", xmlns=ATOM)
    _add(root, "id", feed.feed_id)
    _add(root, "title", feed.title)
    _add(root, "updated", max((_updated_at(event) for event in feed.items), default=EPOCH))
    _add(root, "link", rel="self", type="application/atom+xml", href=feed.url)
    _add(_add(root, "author"), "name", feed.author)
    _add(root, "generator", "CSI", version=__version__)
    for event in feed.items:
        entry, subject = _add(root, "entry"), _json(event.subject_json)
        # Without a tilde, which RFC 8141 allows in a URN, and RFC 2141, which validators know, does not.
        _add(entry, "id", f"urn:csi:{quote(event.event_id, safe=':').replace('~', '%7E')}")
        _add(entry, "title", _title(event, subject))
        _add(entry, "updated", _updated_at(event))
        if occurred := _date(event.occurred_at):
            _add(entry, "published", occurred)
        if link := _link(subject):
            _add(entry, "link", rel="alternate", href=link)
        if name := _creator(subject):
            _add(_add(entry, "author"), "name", name)
        _add(entry, "category", scheme="urn:csi:source", term=event.source)
        _add(entry, "category", scheme="urn:csi:type", term=event.event_type)
        for tag in _tags(event):
            _add(entry, "category", scheme="urn:csi:tag", term=tag)
        _add(entry, "content", _text(event, subject), type="text")
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def json_feed(feed: EventFeed) -> bytes:
    """JSON Feed 1.1. `_csi` has the event as a receiver gets it, without the time of one attempt."""
    items = []
    for event in feed.items:
        subject = _json(event.subject_json)
        contract = events.as_contract(event, None)
        del contract["emitted_at"]
        optional = {"url": _link(subject), "date_published": _date(event.occurred_at)}
        items.append(
            {
                "id": event.event_id,
                "title": _title(event, subject),
                "content_text": _text(event, subject),
                "date_modified": _updated_at(event),
                "tags": list(dict.fromkeys([event.source, event.event_type, *_tags(event)])),
                **{name: value for name, value in optional.items() if value},
                **({"authors": [{"name": name}]} if (name := _creator(subject)) else {}),
                "_csi": contract,
            }
        )
    document = {
        "version": JSON_FEED,
        "title": feed.title,
        "feed_url": feed.url,
        "authors": [{"name": feed.author}],
        "items": items,
    }
    return json.dumps(document, allow_nan=False).encode()


def _add(parent: ElementTree.Element, name: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    safe = {key: _NOT_XML.sub("", value) for key, value in attributes.items()}
    child = ElementTree.SubElement(parent, name, safe)
    child.text = None if text is None else _NOT_XML.sub("", text)
    return child


def _json(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


def _first(subject: dict[str, Any], *names: str) -> str:
    return next((value.strip() for name in names if isinstance(value := subject.get(name), str) and value.strip()), "")


def _title(event: Event, subject: dict[str, Any]) -> str:
    return _first(subject, "title") or event.event_id


def _creator(subject: dict[str, Any]) -> str:
    return _first(subject, "channel_title", "channel_name", "author", "channel_id")


def _link(subject: dict[str, Any]) -> str:
    """The item's page. Only http and https: a reader makes a link of it."""
    link = _first(subject, "url")
    return quote(link, safe="%/:=&?~#+!$,;'@()*[]") if re.match(r"https?://[^\s/]", link) else ""


def _text(event: Event, subject: dict[str, Any]) -> str:
    """What happened and where; then what the source said."""
    head = f"{event.event_type} ({event.source})" + (f" by {name}" if (name := _creator(subject)) else "")
    return "\n\n".join(filter(None, (head, _first(subject, "description", "summary"), _link(subject))))


def _tags(event: Event) -> list[str]:
    tags = _json(event.routing_json).get("tags")
    return [tag for tag in tags if isinstance(tag, str) and tag.strip()] if isinstance(tags, list) else []


def _updated_at(event: Event) -> str:
    """When the event was seen. A poll sees many in one second, and readers sort by this time: the milliseconds are
    the event's own, in the order of the events."""
    return f"{clock.iso(event.first_seen_at)[:-1]}.{event.id % 1000:03d}Z"


def _date(text: str) -> str | None:
    try:
        return clock.iso(clock.parse(text))
    except (ValueError, OverflowError):
        return None


# ── conditional requests ────────────────────────────────────────────────────────────────────────────────


def _conditional(headers: Headers, body: bytes, format: Format, url: str, dates: FeedDates, now: float) -> Response:
    """200 with the document, or 304 where the reader has it already (RFC 9110, 13): If-None-Match decides alone."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    modified = dates.modified_at(url, etag, now)
    validators = HEADERS | {
        "ETag": etag,
        "Last-Modified": format_datetime(datetime.fromtimestamp(modified, UTC), usegmt=True),
    }
    known = headers.get("if-none-match")
    if known is not None:
        is_known = known.strip() == "*" or etag in [one.strip().removeprefix("W/") for one in known.split(",")]
    else:
        try:
            since = parsedate_to_datetime(headers.get("if-modified-since", ""))
            is_known = modified <= (since if since.tzinfo else since.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            is_known = False
    if is_known:
        return Response(status_code=304, headers=validators)
    return Response(body, headers=validators | {"Content-Type": MEDIA_TYPES[format]})
