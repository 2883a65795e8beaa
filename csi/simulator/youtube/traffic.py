"""Life in the simulated YouTube: a world to begin with, and new items at a steady rate."""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from csi.simulator.youtube.world import Kind, Privacy, World

HOUR = 3600.0
DAY = 24 * HOUR
TICK = 0.05  # seconds between two looks at how many items are due

_TOPICS = (
    "sourdough",
    "bridges",
    "tide pools",
    "old radios",
    "night trains",
    "maps",
    "chess endings",
    "beehives",
    "small engines",
    "lighthouses",
    "soldering",
    "mountain weather",
)
_FORMS = (
    "Why {} work the way they do",
    "{}: what nobody tells you",
    "A quiet hour with {}",
    "{} in ten minutes",
    "I was wrong about {}",
)
# What titles do to careless code: other scripts, other directions, markup, odd spaces, quotes.
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
_KINDS: tuple[tuple[Kind, int], ...] = (("video", 70), ("short", 18), ("live", 6), ("upcoming", 6))


@dataclass(frozen=True)
class ContentIds:
    """Who lives in a fresh world. `library` owns what playlists collect; nobody watches its feed."""

    channels: tuple[str, ...]
    playlists: tuple[str, ...]
    library: str


def populate(world: World, *, channels: int, playlists: int, videos: int, at: float) -> ContentIds:
    """A world to begin with: everything in it happened before `at`, the oldest long ago."""
    random = Random(channels * 1_000_003 + playlists * 1_009 + videos)
    born = at - 2000 * DAY
    refs = [world.add_channel(_channel_name(n), at=born + n).id for n in range(channels)]
    library = world.add_channel("The Lending Library", at=born, handle="@lendinglibrary").id
    for ref in refs:
        for age in _ages(random, videos):
            world.upload(ref, new_title(random), at=at - age, kind=_new_kind(random))
    lists = [_settle_list(world, random, library, n, videos, at) for n in range(playlists)]
    return ContentIds(tuple(refs), tuple(lists), library)


def new_title(random: Random) -> str:
    """Plain four times out of five."""
    if random.random() < 0.2:
        return random.choice(_ODD_TITLES)
    return random.choice(_FORMS).format(random.choice(_TOPICS)).capitalize()


class Traffic:
    """Makes new items, one `step` each, and now and then changes old ones. Seeded; time is handed in."""

    def __init__(self, world: World, cast: ContentIds, seed: int = 0) -> None:
        self._world = world
        self._cast = cast
        self._random = Random(seed)
        self._to_publish: list[tuple[float, str]] = []
        self._recent: list[str] = []
        self.made = 0

    def step(self, at: float) -> None:
        """One new item in a feed or a playlist, every one of them equally likely to get it."""
        homes = self._cast.channels + self._cast.playlists
        home = self._random.choice(homes) if homes else ""
        self.made += 1
        if not self._can_grow(home):
            return
        video_id = self._list_item(home, at) if home in self._cast.playlists else self._upload(home, at)
        self._recent = [*self._recent[-50:], video_id]
        self._stir(at)

    def catch_up(self, at: float) -> None:
        """Videos that were private long enough go public."""
        while self._to_publish and self._to_publish[0][0] <= at:
            _, video_id = heapq.heappop(self._to_publish)
            video = self._world.video(video_id)
            if video and video.privacy == "private":
                self._world.set_privacy(video_id, "public", at=at)

    def _can_grow(self, home: str) -> bool:
        """Somebody may have deleted the channel meanwhile; then its turn is lost."""
        source = self._cast.library if home in self._cast.playlists else home
        return self._world.channel(source) is not None

    def _upload(self, channel_id: str, at: float, privacy: Privacy = "public") -> str:
        title, kind = new_title(self._random), _new_kind(self._random)
        return self._world.upload(channel_id, title, at=float(int(at)), kind=kind, privacy=privacy).id

    def _list_item(self, playlist_id: str, at: float) -> str:
        """Most come from the library; some are in a watched feed too; some are private at first."""
        video_id = self._borrowed() or self._from_library(at)
        at_top = self._random.random() < 0.1
        self._world.add_to_playlist(playlist_id, video_id, at=float(int(at)), at_top=at_top)
        return video_id

    def _from_library(self, at: float) -> str:
        if self._random.random() >= 0.1:
            return self._upload(self._cast.library, at)
        video_id = self._upload(self._cast.library, at, "private")
        heapq.heappush(self._to_publish, (at + self._random.uniform(5, 30), video_id))
        return video_id

    def _borrowed(self) -> str | None:
        if self._recent and self._random.random() < 0.1:
            return self._random.choice(self._recent)
        return None

    def _stir(self, at: float) -> None:
        """Old items change: a title, only `updated`, or they are deleted."""
        chance, video_id = self._random.random(), self._random.choice(self._recent)
        if chance < 0.04:
            self._world.edit_title(video_id, new_title(self._random) + " (edited)", at=at)
        elif chance < 0.10:
            self._world.touch(video_id, at=at)
        elif chance < 0.12 and len(self._recent) > 10:
            self._world.delete(self._recent.pop(0), at=at)


async def generate_traffic(traffic: Traffic, rate: float, now: Callable[[], float]) -> None:
    """`rate` new items a second until cancelled; behind after a pause, it makes up for it."""
    started = now()
    while True:
        due = int((now() - started) * rate)
        while traffic.made < due:
            traffic.step(now())
        traffic.catch_up(now())
        await asyncio.sleep(TICK)


def _settle_list(world: World, random: Random, library: str, number: int, size: int, at: float) -> str:
    playlist = world.add_playlist(f"Collection {number + 1}", owner=library, at=at - 1000 * DAY)
    for age in _ages(random, size):
        video = world.upload(library, new_title(random), at=at - age - HOUR)
        world.add_to_playlist(playlist.id, video.id, at=at - age)
    return playlist.id


def _ages(random: Random, number: int) -> list[float]:
    """Oldest first, hours to weeks apart."""
    ages, age = [], HOUR
    for _ in range(number):
        ages.append(age)
        age += random.uniform(6, 240) * HOUR
    return ages[::-1]


def _new_kind(random: Random) -> Kind:
    kinds = [kind for kind, _ in _KINDS]
    return random.choices(kinds, [weight for _, weight in _KINDS])[0]


def _channel_name(number: int) -> str:
    return f"{_TOPICS[number % len(_TOPICS)].title()} Channel {number + 1}"
