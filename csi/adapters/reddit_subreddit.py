"""New posts of subreddits, several in one request: from the feed, or from the API where OAuth credentials are set.

What is new is decided by the set of known ids, never by a time: Reddit lists approved posts late and at their old time.
A watch remembers in its `adapter_state` how often posts appear (`rate`, and `level` for its group), when it was last
in a read of the newest posts (`read_at`), when a post of it was last listed (`seen_at`), when it was read alone
(`alone_at`), and what is left to read of a window that overflowed (`gap`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from csi import clock
from csi.adapters import samples
from csi.adapters.base import FoundWatch, Member, Position, RawEvent, ReadResult, SourceSamples, Tools, WatchedSource
from csi.adapters.reddit import read_groups
from csi.adapters.reddit.listing import WINDOW, Listing, Post, Reddit
from csi.adapters.reddit.read_groups import GroupPlan
from csi.adapters.reddit.settings import RedditSettings, subreddit_name
from csi.config.source_settings import SourceSettings
from csi.errors import MalformedItem, SourceError
from csi.ingester.event import CreatorSignalEvent

SOURCE = "reddit_subreddit"
DAY = 86_400.0
ALONE = frozenset({"missing", "denied", "gone"})
"""After these failures a subreddit is read alone: in a group Reddit leaves it out without a word."""
RETRY = 3 * 3600.0
"""A subreddit that does not exist, is private or banned is looked at again after this."""
ALONE_SHARE = 4
"""At most every fourth slot checks a silent subreddit alone."""
MOST_PAGES = 10
"""Reddit lists 1,000 posts."""
WEIGHT, SURGE_WEIGHT = 0.1, 0.5
"""What one read counts in the measured rate; more where many posts appear at once."""
SURGE, SURGE_POSTS = 4.0, 20
LATE = 0.1
"""So many of the listed posts may be old ones that were approved late: they say nothing of how far a page reaches."""
OVERLAP = 60.0
"""A read reaches this far behind the last one: in a burst, a post that is listed late at its old time is deeper
than the first posts that are known."""
OK_SECONDS = 1800.0


class RedditAdapter(WatchedSource):
    """The new posts of one subreddit; a read is a group of subreddits in one request."""

    name = SOURCE
    key_stems = ("reddit:post:",)
    newest_first = True
    reads_groups = True
    Settings = RedditSettings
    settings: RedditSettings

    def __init__(self, config: Mapping[str, Any] | SourceSettings, tools: Tools | None = None) -> None:
        super().__init__(config, tools)
        self._reddit = Reddit(self.settings, self.tools)
        self._alone_at = 0.0
        self._group_ok_at: float | None = None

    @classmethod
    def samples(cls) -> SourceSamples:
        return samples.reddit()

    def discover(self, text: str) -> FoundWatch | None:
        name = reference(text)
        return None if name is None else FoundWatch(name.lower())

    # ── groups ──────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, members: Sequence[Member]) -> GroupPlan:
        """The groups of all readable subreddits now, and how often each is read."""
        ours = [member for member in members if member.error_kind not in ALONE]
        levels = {member.ref: _level(member.state) for member in ours}
        rates = {
            member.ref: _rate(member.state) if (level := levels[member.ref]) is None else 2.0**level for member in ours
        }
        interval = min((member.interval for member in ours), default=self.settings.poll_interval_seconds)
        return read_groups.plan(rates, interval, self.tools.spacing(self._reddit.pace), WINDOW)

    def group_of(self, ref: str, members: Sequence[Member]) -> Sequence[str]:
        mine = next((member for member in members if member.ref == ref), None)
        if mine is None or mine.error_kind in ALONE:
            return (ref,)
        if (gap := mine.state.get("gap")) is not None:
            same = [one.ref for one in members if (one.state.get("gap") or {}).get("after") == gap.get("after")]
            return tuple(sorted(same))
        # Not those with pages left to read: their older posts would be forgotten by a read of the newest ones.
        behind = {member.ref for member in members if member.state.get("gap") is not None}
        group = tuple(name for name in self.plan(members).group_of(ref) if name not in behind)
        if len(group) > 1 and self._is_silent(mine.state):
            self._alone_at = self.tools.now()
            return (ref,)
        return group

    def _is_silent(self, state: Mapping[str, Any]) -> bool:
        """No post of it was listed for a day, or ever, and it was not read alone for a day."""
        now, spacing = self.tools.now(), self.tools.spacing(self._reddit.pace)
        if state.get("read_at") is None or 0 <= now - self._alone_at < ALONE_SHARE * spacing:
            return False
        return all(now - float(state.get(key) or 0.0) >= DAY for key in ("seen_at", "alone_at"))

    # ── reads ───────────────────────────────────────────────────────────────────────────────────────────

    def read(self, position: Position) -> ReadResult:
        result = self.read_group([position], [Member(position.ref, self.settings.poll_interval_seconds)])[position.ref]
        if isinstance(result, SourceError):
            raise result
        return result

    def read_group(
        self, positions: Sequence[Position], members: Sequence[Member]
    ) -> Mapping[str, ReadResult | SourceError]:
        refs, started = [position.ref for position in positions], self.tools.now()
        gap = positions[0].state.get("gap")
        try:
            page = self._reddit.page(refs, gap.get("after") if gap else None)
        except SourceError as error:
            return dict.fromkeys(refs, self._explained(error, positions))
        if len(refs) > 1 or positions[0].last_success_at is not None:
            self._group_ok_at = started
        if page.renamed_to is not None:
            text = f"r/{refs[0]} was renamed to r/{page.renamed_to}: change its name in the configuration"
            return {refs[0]: SourceError(text, kind="missing", retry_after=RETRY)}
        results = {
            position.ref: _filled(position, page, started) if gap else self._newest(position, page, started, len(refs))
            for position in positions
        }
        now_read = {ref: result.state or {} for ref, result in results.items()}
        members = [
            replace(one, state=now_read[one.ref], error_kind=None) if one.ref in now_read else one for one in members
        ]
        seconds = self.plan(members).seconds
        return {
            ref: result if result.again_after is not None else replace(result, again_after=seconds)
            for ref, result in results.items()
        }

    def _newest(self, position: Position, page: Listing, started: float, size: int) -> ReadResult:
        """What a read of the newest posts means for one member."""
        mine = _of(page, position.ref)
        state = {key: value for key, value in position.state.items() if key != "gap"}
        before = state.get("read_at")
        # Posts a second, over the time that this page lists; most of it is what was measured before.
        seen = len(mine) / max(started - _reach(page), 60.0) if page.posts else 0.0
        rate = seen or 1 / DAY
        if "rate" in state:
            known = _rate(state)
            weight = SURGE_WEIGHT if len(mine) >= SURGE_POSTS and seen > SURGE * known else WEIGHT
            rate = seen * weight + known * (1 - weight)
        state |= {"read_at": started, "rate": rate, "level": read_groups.level(rate, _level(state))}
        if mine:
            state["seen_at"] = started
        if size == 1:
            state["alone_at"] = started
        result = ReadResult(items=tuple(map(_raw, mine)), unreadable=page.unreadable if size == 1 else 0, state=state)
        if before is None or page.after is None or _reaches(page, before - OVERLAP):
            return result
        state["gap"] = {"since": before, "after": page.after, "pages": 1}
        return replace(result, state=state, again_after=1.0)

    def _explained(self, error: SourceError, positions: Sequence[Position]) -> SourceError:
        """A refusal in words, and whether it is about a subreddit or about all of our requests."""
        if error.kind not in ("missing", "denied"):
            return error
        if len(positions) > 1:
            if error.kind == "denied":
                return SourceError(f"{error}: Reddit refuses requests from this address", kind="throttled")
            return error  # none of them exists, or Reddit fails: each is read alone next
        name, now = f"r/{positions[0].ref}", self.tools.now()
        if error.kind == "missing":
            text = f"{name} does not exist or is banned: check the name"
            return SourceError(text, kind="missing", retry_after=RETRY)
        answers = self._group_ok_at is not None and 0 <= now - self._group_ok_at < OK_SECONDS
        if answers or positions[0].last_success_at is None:
            text = f"{name} is private or quarantined, or Reddit refuses requests from this address"
            return SourceError(text, kind="denied", retry_after=RETRY)
        return SourceError(f"{error}: Reddit refuses requests from this address", kind="throttled")

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        try:
            post = Post(**raw.payload["post"])
            occurred_at = clock.iso(float(post.published))
            if not all(isinstance(text, str) and text for text in (post.id, post.subreddit, post.permalink)):
                raise TypeError("expected text")
            if not isinstance(post.title, str):
                raise TypeError("expected text")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise MalformedItem("the post has no id, subreddit, title, link or time") from error
        subject = {
            "platform": "reddit",
            "post_id": post.id,
            "subreddit": post.subreddit,
            "url": post.permalink,
            "link_url": post.url,
            "title": post.title,
            "author": post.author,
            "published_at": occurred_at,
            "text": post.text,
            "is_self": post.is_self,
            "domain": post.domain,
            "score": post.score,
            "comments": post.comments,
            "flair": post.flair,
            "nsfw": post.nsfw,
            "stickied": post.stickied,
        }
        return CreatorSignalEvent(
            event_id=f"src:reddit:{post.id}:{int(post.published)}",
            dedupe_key=f"reddit:post:{post.id}",
            source=SOURCE,
            event_type=raw.event_type,
            occurred_at=occurred_at,
            received_at=occurred_at,
            subject={key: value for key, value in subject.items() if value is not None},
            routing={},
            metadata={"source_adapter": "reddit_v1", "source_ref": post.subreddit.lower()},
        )

    def item_key(self, raw: RawEvent) -> str:
        try:
            return f"reddit:post:{raw.payload['post']['id']}"
        except (KeyError, TypeError) as error:
            raise MalformedItem("the post has no id") from error

    def known_key(self, ref: str, item_id: str) -> str | None:
        return f"reddit:post:{item_id.removeprefix('t3_')}"

    def host(self, ref: str, via: str = "feed") -> str:
        base = self.settings.api_base_url if self._reddit.uses_oauth else self.settings.feed_base_url
        return urlsplit(base).netloc

    def paced_as(self, ref: str, via: str = "feed") -> str:
        return self._reddit.pace

    def feed_url(self, ref: str) -> str:
        return f"{self.settings.feed_base_url.rstrip('/')}/r/{ref}/new/.rss"


def sentence(plan: GroupPlan, spacing: float) -> str:
    """ "50 subreddits in 3 groups, each every 3 min; …" with what that means for missed posts."""
    count, groups = sum(map(len, plan.groups)), len(plan.groups)
    named = "1 subreddit" if count == 1 else f"{count} subreddits"
    divided = f"{named} in {groups} group{'s' if groups != 1 else ''}, each every {span(plan.seconds)}"
    if not groups:
        return "no subreddit is read"
    most = round(WINDOW * DAY / plan.seconds * groups)
    if plan.filled > 1:
        words = f"posts are missed: the busiest group has more than {WINDOW} posts between two reads"
    elif not plan.is_safe:
        words = f"posts may be missed at busy times: the busiest group fills {plan.filled:.0%} of its window"
    else:
        words = "no posts are missed at the measured rate"
    pace = f"one request every {span(spacing)}" if spacing else "requests are not spaced"
    return f"{divided} ({pace}); at most {most:,} posts a day are seen; {words}"


def configured_plan(settings: RedditSettings, spacing: float) -> GroupPlan:
    """The plan before any read: every subreddit is taken to have a usual rate."""
    rates = {watch.ref: read_groups.USUAL_RATE for watch in settings.subreddits}
    return read_groups.plan(rates, settings.poll_interval_seconds, spacing, WINDOW)


def reference(text: str) -> str | None:
    """The subreddit that a user names: `r/python`, or the address of its page. None: the text names none. SourceError:
    no subreddit can have this name."""
    text = text.strip()
    parts = urlsplit(text if "://" in text else f"https://{text}")
    path = text if text.lower().startswith(("r/", "/r/")) else ""
    host = (parts.hostname or "") if not path else ""
    if host == "reddit.com" or host.endswith(".reddit.com"):
        path = "/".join(parts.path.split("/")[:3])
    if not path.lower().lstrip("/").startswith("r/"):
        return None
    try:
        return subreddit_name(path)
    except ValueError as error:
        raise SourceError(f"{text[:80]!r} is no subreddit: {error}", kind="malformed") from error


def span(seconds: float) -> str:
    """`61 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _rate(state: Mapping[str, Any]) -> float:
    value = state.get("rate")
    return float(value) if isinstance(value, int | float) else read_groups.USUAL_RATE


def _of(page: Listing, ref: str) -> list[Post]:
    return [post for post in page.posts if post.subreddit.lower() == ref]


def _reach(page: Listing) -> float:
    """The time down to which this page lists posts, apart from those that were approved late."""
    times = sorted(post.published for post in page.posts)
    return times[int(len(times) * LATE)] if times else 0.0


def _reaches(page: Listing, since: float) -> bool:
    return _reach(page) <= since


def _level(state: Mapping[str, Any]) -> int | None:
    value = state.get("level")
    return value if isinstance(value, int) else None


def _filled(position: Position, page: Listing, now: float) -> ReadResult:
    """A page further back. The gap is over when a page reaches OVERLAP before the last complete read; posts are missed
    where the last page that Reddit lists does not reach that read."""
    gap = position.state["gap"]
    state = {key: value for key, value in position.state.items() if key != "gap"}
    items = tuple(map(_raw, _of(page, position.ref)))
    since, pages = float(gap["since"]), int(gap["pages"]) + 1
    if _reaches(page, since - OVERLAP) or (page.after is None and pages < MOST_PAGES):
        return ReadResult(items=items, state=state, again_after=1.0)
    if page.after is None or pages >= MOST_PAGES:
        missed_since = None if _reaches(page, since) else since
        return ReadResult(items=items, state=state, again_after=1.0, missed_since=missed_since)
    state["gap"] = {"since": since, "after": page.after, "pages": pages}
    return ReadResult(items=items, state=state, again_after=1.0)


def _raw(post: Post) -> RawEvent:
    return RawEvent(SOURCE, "subreddit_new_post", {"post": asdict(post)}, clock.iso(post.published))
