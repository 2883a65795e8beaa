"""Publish new items in the simulated YouTube at a steady rate, through its control API."""

import json
from collections import deque
from random import Random
from typing import Any

from csi.demo.configuration import SimulatorInfo
from csi.errors import CsiError
from csi.net import Net
from csi.simulator.youtube.content import new_title
from csi.simulator.youtube.world import KINDS

MIN_PLAYLIST_ITEMS = 40
PLAYLIST_SECONDS = 60.0
MAX_BURST = 100
"""Items published in one call at most, so that a slow machine still updates the view."""


class Publisher:
    """Publishes to every channel and playlist once per round, in random order."""

    def __init__(self, net: Net, simulator: SimulatorInfo, rate: float, seed: int | None = None) -> None:
        self._net, self._simulator, self._rate = net, simulator, rate
        self._random = Random(seed)
        self._round: list[str] = []
        self._uploads: deque[str] = deque(maxlen=50)
        self._playlists: dict[str, deque[str]] = {ref: deque() for ref in simulator.playlists}
        # A playlist that grew without limit would need more pages with every poll. Each item stays for a minute.
        watches = len(simulator.channels) + len(simulator.playlists)
        self._max_items = max(MIN_PLAYLIST_ITEMS, int(PLAYLIST_SECONDS * rate / watches))
        self.published = 0

    def publish_due(self, elapsed: float) -> None:
        """Publish the items that are due after `elapsed` seconds."""
        due = min(int(elapsed * self._rate), self.published + MAX_BURST)
        while self.published < due:
            self.publish()

    def publish(self) -> None:
        if not self._round:
            self._round = [*self._simulator.channels, *self._simulator.playlists]
            self._random.shuffle(self._round)
        ref = self._round.pop()
        if ref in self._playlists:
            # One item in ten is a video that is also in a watched feed: it leads to two events.
            items, reuse = self._playlists[ref], self._uploads and self._random.random() < 0.1
            choice = {"video": self._uploads.popleft()} if reuse else {"title": new_title(self._random)}
            items.append(self._post("playlist/add", playlist=ref, **choice)["video_id"])
            if len(items) > self._max_items:
                self._post("playlist/remove", playlist=ref, video=items.popleft())
        else:
            kind = self._random.choices(KINDS, (80, 12, 4, 4))[0]
            created = self._post("upload", channel=ref, title=new_title(self._random), kind=kind)
            self._uploads.append(created["video_id"])
        self.published += 1

    def end_faults(self) -> None:
        self._post("faults", script="")

    def _post(self, path: str, **fields: str) -> dict[str, Any]:
        url, body = f"{self._simulator.base_url}/sim/{path}", json.dumps(fields).encode()
        answer = self._net.post(url, body=body, headers={"Content-Type": "application/json"})
        if answer.status != 200:
            reason = answer.body[:200].decode(errors="replace")
            raise CsiError(f"the simulator refused {path}: {answer.status} {reason}")
        created: dict[str, Any] = json.loads(answer.body)
        return created
