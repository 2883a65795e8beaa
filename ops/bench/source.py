"""The source of the line's benches: a simulated YouTube with items in ten playlists, and more of them at a rate.

`python -m ops.bench.source --count 10000 --rate 20` prints its API's address and its lists as one line of JSON.
"""

import argparse
import asyncio
import json
import random
import time

from csi.simulator.http_server import base_url, listen, make_server, serve_until_stopped
from csi.simulator.youtube.app import API_PATH, YouTubeOptions, create_app
from csi.simulator.youtube.world import World

LISTS = 10


class Stock:
    """What there is, and more of it."""

    def __init__(self, count: int) -> None:
        self.world, self.made = World(seed=random.getrandbits(32)), 0  # nothing that an earlier source had
        began = time.time() - count
        self.owner = self.world.add_channel("Bench", at=began).id
        self.lists = [self.world.add_playlist(f"List {n}", owner=self.owner, at=began).id for n in range(LISTS)]
        for number in range(count):
            self.publish(began + number)

    def publish(self, at: float) -> None:
        video = self.world.upload(self.owner, f"Video {self.made}", at=at)
        self.world.add_to_playlist(self.lists[self.made % LISTS], video.id, at=at)
        self.made += 1

    async def go_on(self, rate: float) -> None:
        while True:
            self.publish(time.time())
            await asyncio.sleep(1 / rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    options = parser.parse_args()
    stock, sock = Stock(options.count), listen("127.0.0.1", 0)
    print(json.dumps({"api": base_url(sock) + API_PATH, "lists": stock.lists}), flush=True)
    beside = (lambda: stock.go_on(options.rate)) if options.rate else None
    asyncio.run(serve_until_stopped(make_server(create_app(stock.world, YouTubeOptions())), sock, beside))


if __name__ == "__main__":
    main()
