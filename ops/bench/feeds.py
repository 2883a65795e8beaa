"""What reading a feed costs: the fast reader beside feedparser, and a round of 500 channels in CPU seconds.

Run: python -m ops.bench.feeds [FEED.xml …]   (without files: a feed of 15 entries made up for this)
"""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from csi.adapters.base import Position, Tools
from csi.adapters.youtube import atom, feed_guard
from csi.adapters.youtube_channel_rss import YouTubeChannelRSSAdapter
from csi.net import HttpHeaders, HttpResponse
from csi.simulator.youtube.atom_feed import channel_feed
from csi.simulator.youtube.world import World

CHANNELS = 500
INTERVAL = 300.0


class OneAnswer:
    """A network that always has the same feed at hand, so that only our own work is measured."""

    def __init__(self, body: bytes) -> None:
        self.answer = HttpResponse(
            200, HttpHeaders({"cache-control": "public, max-age=900"}), body, "http://127.0.0.1/"
        )

    def get(self, url: str, **_: object) -> HttpResponse:
        return self.answer


def made_up() -> tuple[str, bytes]:
    """A feed of 15 entries with descriptions of 3,000 characters, in three scripts."""
    world = World(7)
    channel = world.add_channel("A channel", at=0.0)
    text = "Über diese Folge 🚀 これは説明です https://example.org/?a=1&b=2\n" * 50
    for number in range(15):
        world.upload(channel.id, f"Folge {number}: “So geht's” & mehr", at=float(number), description=text)
    return channel.id, channel_feed(channel, world.newest(channel.id, 15), 1_000_000.0)


def cpu(work: Callable[[], object], seconds: float = 1.0) -> float:
    """CPU seconds of one call, averaged over about a second."""
    started, calls = time.process_time(), 0
    while time.process_time() - started < seconds:
        work()
        calls += 1
    return (time.process_time() - started) / calls


def measure(name: str, channel: str, body: bytes) -> None:
    adapter = YouTubeChannelRSSAdapter(config={}, tools=Tools(net=OneAnswer(body)))  # type: ignore[arg-type]
    fast = cpu(lambda: atom.fast_entries(body))
    slow = cpu(lambda: atom.slow_entries(feed_guard.checked(body)))
    whole = cpu(lambda: [adapter.item_key(raw) for raw in adapter.read(Position(channel)).items])
    share = CHANNELS * whole / INTERVAL * 100
    used = "fast" if atom.fast_entries(body) is not None else "feedparser"
    print(f"{name}: {len(body):,} bytes, read by {used}")
    print(f"  fast {fast * 1e3:.2f} ms, guard and feedparser {slow * 1e3:.2f} ms ({slow / fast:.0f} times)")
    print(f"  read and keyed {whole * 1e3:.2f} ms; {CHANNELS} channels every {INTERVAL:g} s: {share:.2f} % of a core")


def main(files: list[str]) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    if not files:
        measure("made up", *made_up())
    for file in files:
        measure(Path(file).name, "UCsXVk37bltHxD1rDPwtNM8Q", Path(file).read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
