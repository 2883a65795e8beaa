"""Any feed: RSS, Atom or JSON Feed of a blog, a podcast, a forge or a social network."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import AfterValidator, Field

from csi import clock
from csi.adapters import feed_discovery, feed_document, response_headers, samples
from csi.adapters.base import (
    FoundWatch,
    Position,
    PushContent,
    PushTopic,
    RawEvent,
    ReadResult,
    SourceSamples,
    WatchedSource,
)
from csi.adapters.feed_document import FeedDocument, FeedItem
from csi.config.durations import Seconds
from csi.config.setting_types import VariableName, check_url
from csi.config.source_settings import PushSettings, SourceSettings, WatchSettings
from csi.errors import MalformedItem, NetError, SourceError
from csi.exclusive_section import POLL_SECTION
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.text import clean
from csi.net import HttpLimits, HttpResponse

SOURCE = "feed"
LIMITS = HttpLimits(total=25.0, max_body=feed_document.MAX_BYTES, max_redirects=5)
DAY = 86_400.0
MOVED_AFTER = 7 * DAY
"""A permanent redirect is stored after it was the same for so long: a maintenance page redirects for hours."""
LATEST_DATE = 3600.0
"""A publication time further in the future counts as the time of the read."""
LONGEST_IDENTITY = 120

_PERMANENT = frozenset({301, 308})
_KINDS = {404: "missing", 401: "denied", 403: "denied", 429: "throttled", 503: "throttled"}
_LINK = re.compile(r"""<([^<>]{1,2000})>[^,<]*?;\s*rel="?(hub|self)"?(?=[\s;,]|$)""", re.IGNORECASE)
_TRACKING = ("utm_", "fbclid", "gclid", "mc_cid", "mc_eid")
FEED, BODY = "feed", "body"
"""Marks of the stored validator: the feed's ETag, or a digest of the last body."""


def _check_feed_url(text: str) -> str:
    return check_url(text, plain_http=True)


FeedUrl = Annotated[str, Field(max_length=2000), AfterValidator(_check_feed_url)]


class FeedWatch(WatchSettings):
    """One feed."""

    url: FeedUrl = Field(description="The feed's address; `csi sources add` finds it from the address of a page")
    user_agent: str | None = Field(None, max_length=200, description="The User-Agent that this feed's server gets")
    authorization_env: VariableName | None = Field(
        None, description="Variable with the value of the Authorization header, for a private feed"
    )

    @property
    def ref(self) -> str:
        return self.url


class FeedSettings(SourceSettings):
    """sources.feed"""

    watch_key: ClassVar[str | None] = "feeds"

    poll_interval_seconds: Seconds = 900
    respect_cache_headers: bool = Field(True, description="Do not read again before the cached response expires")
    push: PushSettings | None = Field(None, description="Subscribe to feeds that name a WebSub hub (rel=hub)")
    feeds: tuple[FeedWatch, ...] = ()


class FeedAdapter(WatchedSource):
    """The items of one feed. `Position.state` and `ReadResult.state` remember where a feed moved to."""

    name = SOURCE
    key_stems = ("feed:",)
    newest_first = True
    lists_the_past = True
    Settings = FeedSettings
    settings: FeedSettings

    @classmethod
    def samples(cls) -> SourceSamples:
        return samples.feed()

    def read(self, position: Position) -> ReadResult:
        answer, address = self._get(position)
        now, state = self.tools.now(), self._moved(position, answer, address)
        digest = hashlib.blake2b(answer.body, digest_size=16).hexdigest()
        if answer.status == 304 or response_headers.validator_to_send(position.etag, BODY, now) == digest:
            # An unchanged response has nothing new about these.
            known = {name: position.state[name] for name in ("hub", "topic", "ttl") if name in position.state}
            return ReadResult(
                etag=position.etag,
                last_modified=position.last_modified,
                unchanged=True,
                fresh_until=self._fresh_until(position.ref, answer, now, known.get("ttl", 0.0)),
                state=state | known,
            )
        with POLL_SECTION:  # parsing is CPU-bound: one thread at a time
            found = feed_document.read_feed(answer.body, answer.headers.get("content-type", ""), address)
            items = tuple(_raw_events(found, position.ref, now))
        # The hub that the feed names, in itself or in its headers, and its topic: the address that the feed has
        # there.
        named = {"hub": found.hub, "self": found.topic}
        for target, rel in _LINK.findall(", ".join(answer.headers.get_list("link"))[:4000]):
            named[rel] = named.get(rel) or feed_document.web_address(target, address)
        hub = named["hub"]
        state = state | ({"hub": hub, "topic": named["self"] or address} if hub else {})
        state |= {"ttl": found.ttl} if found.ttl else {}
        tag, modified = (response_headers.validator(answer, name) for name in ("etag", "last-modified"))
        value, mark = (tag, FEED) if tag else (digest, BODY)
        return ReadResult(
            items=items,
            etag=response_headers.stored_validator(value, mark, now),
            last_modified=response_headers.stored_validator(modified, FEED, now),
            fresh_until=self._fresh_until(position.ref, answer, now, found.ttl),
            state=state,
            title=found.title or None,
            icon=found.icon,
        )

    def _fresh_until(self, ref: str, answer: HttpResponse, now: float, ttl: float) -> float | None:
        """Only a time after the watch's own interval: cache headers and `ttl` make reads rarer, never more frequent."""
        watch = self._watch(ref)
        interval = (watch.poll_interval_seconds if watch else None) or self.settings.poll_interval_seconds
        until = max(response_headers.fresh_until(answer, now) or 0.0, now + min(ttl, response_headers.LONGEST_FRESH))
        return until if until > now + interval else None

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        payload = raw.payload
        try:
            item, ref, identity = dict(payload["item"]), str(payload["feed_url"]), str(payload["identity"])
            published = None if item.get("published") is None else float(item["published"])
            occurred_at = clock.iso(_occurred(published, float(payload["seen_at"])))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedItem("the item has no identity, or its times are not numbers") from error
        subject = {
            "platform": "web",
            "url": item.get("link"),
            "title": item.get("title") or "",
            "author": item.get("author"),
            "published_at": occurred_at,
            "is_dated": published is not None,
            "summary": item.get("summary") or "",
            "enclosures": item.get("enclosures") or [],
            "tags": item.get("tags") or [],
            "feed_url": ref,
            "feed_title": payload.get("feed_title") or "",
            "item_id": item.get("guid") or item.get("link"),
        }
        epoch = 0 if published is None else int(published)
        return CreatorSignalEvent(
            event_id=f"src:feed:{watch_id(ref)}:{_hash(identity, 16)}:{epoch}",
            dedupe_key=item_key(ref, identity),
            source=SOURCE,
            event_type=raw.event_type,
            occurred_at=occurred_at,
            received_at=occurred_at,
            subject=subject,
            routing={},
            metadata={"source_adapter": "feed_v1", "source_ref": ref},
        )

    def item_key(self, raw: RawEvent) -> str:
        try:
            return item_key(str(raw.payload["feed_url"]), str(raw.payload["identity"]))
        except KeyError as error:
            raise MalformedItem("the item has no identity") from error

    def host(self, ref: str, via: str = "feed") -> str:
        return urlsplit(ref).netloc

    def feed_url(self, ref: str) -> str:
        return ref

    def discover(self, text: str) -> FoundWatch | None:
        """The feed at an address, or of the page there."""
        address = text.strip()
        if not address.lower().startswith(("http://", "https://")):
            return None
        found = feed_discovery.find_feed(self.tools.web, address)
        if found is None:
            raise SourceError("no feed was found at this address; give the address of the feed itself", kind="missing")
        remark = None if found.url == address else f"the feed of that page is {found.url}"
        return FoundWatch(found.url, found.title or None, remark)

    def push_topic(self, ref: str, state: Mapping[str, Any]) -> PushTopic | None:
        hub, topic = state.get("hub"), state.get("topic")
        if self.settings.push is None or not isinstance(topic, str) or not isinstance(hub, str):
            return None
        own = self.settings.push.hub_url
        return PushTopic(own or hub, topic, is_foreign=own is None)

    def read_push(self, ref: str, body: bytes, now: float) -> PushContent:
        with POLL_SECTION:
            found = feed_document.read_feed(body, "", ref)
            return PushContent(tuple(self.item_key(raw) for raw in _raw_events(found, ref, now)))

    # ── the request ─────────────────────────────────────────────────────────────────────────────────────

    def _get(self, position: Position) -> tuple[HttpResponse, str]:
        """The response, and the address that was asked for. A feed that moved and is not there any more is asked for at
        its configured address."""
        moved = position.state.get("url")
        if isinstance(moved, str) and moved:
            try:
                return self._get_from(moved, position), moved
            except SourceError as error:
                if error.kind not in ("missing", "gone", "malformed"):
                    raise
        return self._get_from(position.ref, position), position.ref

    def _get_from(self, address: str, position: Position) -> HttpResponse:
        now = self.tools.now()
        conditions = {
            "If-None-Match": response_headers.validator_to_send(position.etag, FEED, now),
            "If-Modified-Since": response_headers.validator_to_send(position.last_modified, FEED, now),
        }
        conditions = {name: value for name, value in conditions.items() if value}
        headers = {"Accept": "application/atom+xml, application/rss+xml, application/feed+json, */*;q=0.5"}
        try:
            watch = self._watch(position.ref)
            if watch is None:
                own_headers = {}
            else:
                secret = self.tools.secret(watch.authorization_env) if watch.authorization_env else None
                own = {"User-Agent": watch.user_agent, "Authorization": secret}
                own_headers = {name: value for name, value in own.items() if value}
            headers |= {**own_headers, **conditions}  # type: ignore[dict-item]
            answer = self.tools.web.get(address, headers=headers, limits=LIMITS)
        except NetError as error:
            raise response_headers.unreachable(error, "the feed could not be read") from error
        if answer.status == 304 and not conditions:
            raise SourceError("the feed answered 304 to a request without conditions", kind="malformed")
        if answer.status in (200, 304):
            return answer
        if answer.headers.get("cf-mitigated", "").lower() == "challenge":
            raise SourceError("the site requires a browser: it answers with a bot check", kind="denied")
        if answer.status == 410:
            raise SourceError("the feed is gone for good (410)", kind="gone")
        kind = _KINDS.get(answer.status, "transient")
        wait = response_headers.retry_after(answer, now)
        raise SourceError(f"the feed answered {answer.status}", kind=kind, retry_after=wait)

    def _watch(self, ref: str) -> FeedWatch | None:
        return next((watch for watch in self.settings.feeds if watch.url == ref), None)

    def _moved(self, position: Position, answer: HttpResponse, address: str) -> dict[str, Any]:
        """What is remembered of permanent redirects: an upgrade to https is stored at once, another address after
        MOVED_AFTER of the same redirect. A temporary redirect is followed and never stored."""
        state = {"url": address} if address != position.ref else {}
        hops = answer.redirects
        if not hops or not all(hop.status in _PERMANENT for hop in hops):
            return state
        there, now = hops[-1].url, self.tools.now()
        if there == address.replace("http://", "https://", 1):
            return {"url": there}
        since = position.state.get("since") if position.state.get("moves_to") == there else now
        since = float(since) if isinstance(since, int | float) and since <= now else now
        if now - since >= MOVED_AFTER:
            return {"url": there}
        return state | {"moves_to": there, "since": since}


# ── identity ────────────────────────────────────────────────────────────────────────────────────────────


def _raw_events(found: FeedDocument, ref: str, now: float) -> list[RawEvent]:
    # A guid that items with different links share identifies none of them.
    links: dict[str | None, set[str]] = defaultdict(set)
    for item in found.items:
        links[item.guid].add(_plain_link(item.link) or _digest(item))
    events = []
    for item in found.items:
        payload = {
            "item": asdict(item),
            "identity": identity_of(item, guid_is_useless=len(links[item.guid]) > 1),
            "feed_url": ref,
            "feed_title": found.title,
            "seen_at": now,
        }
        events.append(RawEvent(SOURCE, "feed_new_item", payload, clock.iso(_occurred(item.published, now))))
    return events


def identity_of(item: FeedItem, *, guid_is_useless: bool = False) -> str:
    """The guid; without one the link, without its tracking parameters; without both a digest of title and text."""
    link = _plain_link(item.link)
    if item.guid and guid_is_useless:
        return f"{item.guid}|{link or _digest(item)}"
    return item.guid or link or _digest(item)


def _digest(item: FeedItem) -> str:
    text = json.dumps([item.title, item.summary, [one.url for one in item.enclosures]])
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _plain_link(link: str | None) -> str | None:
    if not link:
        return None
    parts = urlsplit(link)
    query = [(name, value) for name, value in parse_qsl(parts.query) if not name.lower().startswith(_TRACKING)]
    return f"{parts.netloc.lower()}{parts.path.rstrip('/')}{'?' + urlencode(query) if query else ''}"


def item_key(ref: str, identity: str) -> str:
    short = identity if len(identity) <= LONGEST_IDENTITY else f"sha256:{_hash(identity, 32)}"
    return f"feed:{watch_id(ref)}:{clean(short)}"


def watch_id(ref: str) -> str:
    """A short name of the feed for keys: its address may be long."""
    return _hash(ref, 12)


def _hash(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def _occurred(published: Any, seen_at: float) -> float:
    """When the item was published, if the feed says so and it is not in the future; else when it was first read."""
    if not isinstance(published, int | float) or isinstance(published, bool):
        return seen_at
    return float(published) if 0 <= published <= seen_at + LATEST_DATE else seen_at
