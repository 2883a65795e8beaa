"""A year in seconds: channels, a playlist, 404 nights, edits, private items: each item once (fault case 49)."""

import random

from csi.simulator.youtube.app import YouTubeOptions
from csi.store import counters, db
from csi.store.models import Event, Watch
from csi.worker import retention
from tests.rigs.in_process import PollingPipeline, polling_pipeline

DAY = 86_400.0
STEP = DAY


def _night(number: int) -> str:
    """Every month the feeds are away for two days, and every six weeks the API for one."""
    return "feed:404" if number % 31 in (0, 1) else "playlistItems:500" if number % 42 == 20 else ""


class Year:
    """What happens on YouTube, and what should come of it."""

    def __init__(self, yt: PollingPipeline, seed: int) -> None:
        self.yt, self.world, self.clock = yt, yt.world, yt.clock
        self.quiet, self.busy = yt.channels[:2]
        self.list = yt.playlists[0]
        self.random = random.Random(seed)
        self.expected: set[str] = set()
        self.later: list[tuple[float, str]] = []
        self.hidden: dict[str, float] = {}

    def pass_a_day(self, number: int) -> None:
        self.clock.move(STEP)
        self._publish(number)
        self._collect(number)
        self._change()
        self.yt.site.set_faults(_night(number))
        self.yt.run()
        if number % 5 == 0:
            retention.prune(self.yt.rt, rest=lambda seconds: None)

    def end(self) -> None:
        """The last things become visible, and are read."""
        for _, video in self.later:
            self.world.set_privacy(video, "public", at=self.clock())
        self.yt.site.set_faults("")
        for _ in range(6):
            self.clock.move(DAY)
            self.yt.run()

    def _publish(self, number: int) -> None:
        if number % 45 == 5:
            self._upload(self.quiet, "Rare")
        for _ in range(self.random.randrange(0, 3)):
            self._upload(self.busy, "Often")
        if number % 90 == 30:  # more than a window's worth between two reads
            for _ in range(20):
                self._upload(self.busy, "A whole album")

    def _upload(self, channel: str, title: str) -> str:
        at = self.clock() - self.random.uniform(0, STEP - 60)
        video = self.world.upload(channel, title, at=at, kind=self.random.choice(("video", "short"))).id
        self.expected.add(f"youtube:video:{video}")
        return video

    def _collect(self, number: int) -> None:
        """About one addition in two days; some are private for weeks, some go and come back."""
        if number % 2:
            return
        private = self.random.random() < 0.25
        video = self.world.upload(
            self.yt.library, "Collected", at=self.clock(), privacy="private" if private else "public"
        ).id
        self.world.add_to_playlist(self.list, video, at=self.clock())
        self.expected.add(f"youtube:video:{video}:{self.list}")
        if private:
            self.later.append((self.clock() + self.random.uniform(2, 60) * DAY, video))
        elif self.random.random() < 0.2:
            self.hidden[video] = self.clock() + 10 * DAY

    def _change(self) -> None:
        now = self.clock()
        for at, video in [entry for entry in self.later if entry[0] <= now]:
            self.world.set_privacy(video, "public", at=now)
            self.later.remove((at, video))
        for video, at in list(self.hidden.items()):
            if at <= now and self.world.video(video).privacy == "public":
                self.world.set_privacy(video, "private", at=now)
                self.hidden[video] = now + 40 * DAY
            elif at <= now:
                self.world.set_privacy(video, "public", at=now)
                del self.hidden[video]
        for video in self.world.newest(self.quiet, 2) + self.world.newest(self.busy, 2):
            self.world.edit(video.id, at=now, title=f"{video.title[:80]}!")


def test_a_year_emits_every_item_once(tmp_path, clock):
    feeds = {"first_poll": "mark_seen"}
    site = YouTubeOptions(now=clock, etags=True)
    with polling_pipeline(tmp_path, clock, channels=2, playlists=1, videos=12, feeds=feeds, site=site) as yt:
        year = Year(yt, seed=49)
        yt.run()
        for number in range(365):
            year.pass_a_day(number)
        year.end()
        emitted = [row.dedupe_key for row in Event.select(Event.dedupe_key)]
        lost, extra = year.expected - set(emitted), set(emitted) - year.expected
        counted = counters.all_of("events")
        again = sum(count for (_, label), count in counted.items() if label == "duplicate")
        polls = counters.all_of("polls")
        failed = sum(count for (_, label), count in polls.items() if label == "error")
        print(f"emitted={len(emitted)} unique={len(set(emitted))} lost={len(lost)} extra={len(extra)} again={again}")
        assert (lost, extra, again) == (set(), set(), 0)
        assert len(emitted) == len(set(emitted)) == len(year.expected) > 550
        assert failed > 50
        assert db.number("SELECT COUNT(*) FROM inbox") == 0
        # Old keys are gone, and those of what can still be seen are not.
        assert db.number("SELECT COUNT(*) FROM dedupe_keys") < len(emitted)
        assert {(row.state, row.health, row.note) for row in Watch.select()} == {("active", "healthy", None)}
        assert counters.all_of("gaps").keys() == {("youtube_channel_rss", "filled")}
