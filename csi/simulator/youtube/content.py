"""Content for the simulated YouTube: channels and playlists to start with, and new items at a steady rate."""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from csi.simulator.youtube.world import KINDS, Privacy, World

HOUR = 3600.0
DAY = 24 * HOUR
TICK = 0.05  # seconds between two checks for due items

_TOPICS = (
    "sourdough", "bridges", "tide pools", "old radios", "night trains", "maps",
    "chess endings", "beehives", "small engines", "lighthouses", "soldering", "mountain weather",
)  # fmt: skip
_FORMS = (
    "Why {} work the way they do",
    "{}: what most people miss",
    "A quiet hour with {}",
    "{} in ten minutes",
    "I was wrong about {}",
)
# Titles that careless code handles wrongly: other scripts, right-to-left text, markup, unusual spaces, quotes.
_ODD_TITLES = (
    "Größenwahn & Übermut: Straßenbahnen im Schnee",
    "🚀🔥 Launch day!!! 👩\u200d🚀👨🏽‍🚒 (full stream)",
    "東京の夜、雨と電車の音",
    "مقدمة في الخرائط القديمة",
    "\u202edrawkcab\u202c and forwards again",
    "</script><script>alert(1)</script>",
    "<b>bold</b> &amp; already escaped &lt;i&gt;",
    "]]> ends a CDATA section",
    "He said “quotes” and 'apostrophes' and \"more\"",
    "Zero\u200bwidth and no\u00a0break and line\u2028separator",
    "e\u0301 or é? Z\u0351\u0343a\u0300l\u0301g\u0302o",
    '=HYPERLINK("http://example.invalid") | \'; DROP TABLE events; --',
)
_KIND_WEIGHTS = (70, 18, 6, 6)  # in the order of KINDS


@dataclass(frozen=True)
class ContentIds:
    """The ids that `populate` created. `library` is the channel that owns the playlists; no watch reads its feed."""

    channels: tuple[str, ...]
    playlists: tuple[str, ...]
    library: str


def populate(world: World, *, channels: int, playlists: int, videos: int, at: float) -> ContentIds:
    """Create channels and playlists with `videos` items each, all older than `at`."""
    random = Random(channels * 1_000_003 + playlists * 1_009 + videos)
    created_at = at - 2000 * DAY
    refs = [
        world.add_channel(f"{_TOPICS[n % len(_TOPICS)].title()} Channel {n + 1}", at=created_at + n).id
        for n in range(channels)
    ]
    library = world.add_channel("The Lending Library", at=created_at, handle="@lendinglibrary").id
    for ref in refs:
        for age in _ages(random, videos):
            world.upload(ref, new_title(random), at=at - age, kind=random.choices(KINDS, _KIND_WEIGHTS)[0])
    lists = []
    for n in range(playlists):
        lists.append(world.add_playlist(f"Collection {n + 1}", owner=library, at=at - 1000 * DAY).id)
        for age in _ages(random, videos):
            video = world.upload(library, new_title(random), at=at - age - HOUR)
            world.add_to_playlist(lists[-1], video.id, at=at - age)
    return ContentIds(tuple(refs), tuple(lists), library)


def new_title(random: Random) -> str:
    """One title in five is an unusual one."""
    if random.random() < 0.2:
        return random.choice(_ODD_TITLES)
    return random.choice(_FORMS).format(random.choice(_TOPICS)).capitalize()


class Traffic:
    """Creates one new item with each `step`, and sometimes changes an old one. Seeded; the caller passes the time."""

    def __init__(self, world: World, content: ContentIds, seed: int = 0) -> None:
        self._world = world
        self._content = content
        self._random = Random(seed)
        self._to_publish: list[tuple[float, str]] = []
        self._recent: list[str] = []
        self.made = 0

    def step(self, at: float) -> None:
        """Create one item in a random channel or playlist. Without effect if the channel was deleted."""
        refs = self._content.channels + self._content.playlists
        ref = self._random.choice(refs) if refs else ""
        is_playlist = ref in self._content.playlists
        self.made += 1
        if self._world.channel(self._content.library if is_playlist else ref) is None:
            return
        video_id = self._add_to_playlist(ref, at) if is_playlist else self._upload(ref, at)
        self._recent = [*self._recent[-50:], video_id]
        # Sometimes edit a title, change only `updated`, or delete a video
        chance, video_id = self._random.random(), self._random.choice(self._recent)
        if chance < 0.04:
            self._world.edit(video_id, at=at, title=new_title(self._random) + " (edited)")
        elif chance < 0.10:
            self._world.edit(video_id, at=at)
        elif chance < 0.12 and len(self._recent) > 10:
            self._world.delete(self._recent.pop(0), at=at)

    def publish_due(self, at: float) -> None:
        """Make videos public whose private time is over."""
        while self._to_publish and self._to_publish[0][0] <= at:
            _, video_id = heapq.heappop(self._to_publish)
            video = self._world.video(video_id)
            if video and video.privacy == "private":
                self._world.set_privacy(video_id, "public", at=at)

    def _upload(self, channel_id: str, at: float, privacy: Privacy = "public") -> str:
        title, kind = new_title(self._random), self._random.choices(KINDS, _KIND_WEIGHTS)[0]
        return self._world.upload(channel_id, title, at=float(int(at)), kind=kind, privacy=privacy).id

    def _add_to_playlist(self, playlist_id: str, at: float) -> str:
        """Add a new video of the library, one in ten of them private at first, or (one in ten) a recent video."""
        if self._recent and self._random.random() < 0.1:
            video_id = self._random.choice(self._recent)
        elif self._random.random() >= 0.1:
            video_id = self._upload(self._content.library, at)
        else:
            video_id = self._upload(self._content.library, at, "private")
            heapq.heappush(self._to_publish, (at + self._random.uniform(5, 30), video_id))
        at_top = self._random.random() < 0.1
        self._world.add_to_playlist(playlist_id, video_id, at=float(int(at)), at_top=at_top)
        return video_id


async def generate_traffic(traffic: Traffic, rate: float, now: Callable[[], float]) -> None:
    """`rate` new items a second until cancelled; items that a pause delayed are created after it."""
    started = now()
    while True:
        due = int((now() - started) * rate)
        while traffic.made < due:
            traffic.step(now())
        traffic.publish_due(now())
        await asyncio.sleep(TICK)


def _ages(random: Random, number: int) -> list[float]:
    """Ages in seconds, oldest first, hours to days apart."""
    gaps = [HOUR, *(random.uniform(6, 240) * HOUR for _ in range(number))]
    return list(accumulate(gaps))[:number][::-1]
