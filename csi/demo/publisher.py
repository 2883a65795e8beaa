"""Creators at work: new items in the simulated YouTube, at a steady rate, through its control API."""

import json
from collections import deque
from random import Random
from typing import Any

from csi.demo.configuration import SimulatorInfo
from csi.errors import CsiError
from csi.net import Net
from csi.simulator.youtube.traffic import new_title

SHORTEST_LIST = 40
LIST_SECONDS = 60.0
BURST = 100
"""At most this many in one go: a demo that lags behind must still look at its signals."""


class Publisher:
    """Every channel and playlist gets its turn, in an order that changes from round to round."""

    def __init__(self, net: Net, site: SimulatorInfo, rate: float, seed: int | None = None) -> None:
        self._net, self._site, self._rate = net, site, rate
        self._random = Random(seed)
        self._round: list[str] = []
        self._uploads: deque[str] = deque(maxlen=50)
        self._lists: dict[str, deque[str]] = {ref: deque() for ref in site.playlists}
        homes = len(site.channels) + len(site.playlists)
        # A list that grew for ever would cost more pages with every poll; what leaves it was there for a minute.
        self._longest = max(SHORTEST_LIST, int(LIST_SECONDS * rate / homes))
        self.made = 0

    def catch_up(self, elapsed: float) -> None:
        """Publish what is due after so many seconds."""
        due = min(int(elapsed * self._rate), self.made + BURST)
        while self.made < due:
            self.publish()

    def publish(self) -> None:
        home = self._next_home()
        if home in self._lists:
            self._add_item(home)
        else:
            self._upload(home)
        self.made += 1

    def end_faults(self) -> None:
        self._post("faults", script="")

    def _next_home(self) -> str:
        if not self._round:
            self._round = [*self._site.channels, *self._site.playlists]
            self._random.shuffle(self._round)
        return self._round.pop()

    def _upload(self, channel: str) -> None:
        kind = self._random.choices(("video", "short", "live", "upcoming"), (80, 12, 4, 4))[0]
        made = self._post("upload", channel=channel, title=new_title(self._random), kind=kind)
        self._uploads.append(made["video_id"])

    def _add_item(self, playlist: str) -> None:
        """One in ten is a video that a watched feed shows, too: two events, for it happened in two places."""
        held, known = self._lists[playlist], self._uploads and self._random.random() < 0.1
        choice = {"video": self._uploads.popleft()} if known else {"title": new_title(self._random)}
        held.append(self._post("playlist/add", playlist=playlist, **choice)["video_id"])
        if len(held) > self._longest:
            self._post("playlist/remove", playlist=playlist, video=held.popleft())

    def _post(self, path: str, **fields: str) -> dict[str, Any]:
        url, body = f"{self._site.base_url}/sim/{path}", json.dumps(fields).encode()
        answer = self._net.post(url, body=body, headers={"Content-Type": "application/json"})
        if answer.status != 200:
            raise CsiError(
                f"the simulator refused {path}: {answer.status} {answer.body[:200].decode(errors='replace')}"
            )
        made: dict[str, Any] = json.loads(answer.body)
        return made
