"""`dedupe_across: video`: a video in several watches is sent once."""

import json

import pytest

from csi.status import timeline
from csi.store import db
from csi.store.models import Event
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline


@pytest.fixture
def yt(clock):
    with simulated_youtube(channels=1, playlists=2, now=clock) as site:
        yield site


@pytest.fixture
def build(tmp_path, clock, yt):
    """A pipeline over two playlists and a channel, which keeps its database when it is built again."""
    with ScriptedReceiver() as ua, db.connection():

        def make(**common):
            blocks = {
                "youtube_playlist": {"playlists": [{"id": ref} for ref in yt.playlists]},
                "youtube_channel_rss": {
                    "feed_url_template": yt.feed_url_template,
                    "watchlist": [{"channel_id": yt.channels[0]}],
                },
            }
            for block in blocks.values():
                block |= {"api_base_url": yt.api_base_url, "poll_interval_seconds": 10, **common}
            return InProcessPipeline(tmp_path, clock, ua.url, sources=blocks)

        yield make


def events_of(video: str) -> int:
    return sum(json.loads(row.subject_json)["video_id"] == video for row in Event.select())


def upload_and_list(yt, clock) -> str:
    """A video of the channel that is in both playlists."""
    video = yt.upload(yt.channels[0], "Everywhere")
    for ref in yt.playlists:
        yt.world.add_to_playlist(ref, video, at=clock())
    return video


def test_a_video_in_three_watches_makes_one_event(build, yt, clock):
    line = build(dedupe_across="video")
    line.run()
    line.wait(20)
    video = upload_and_list(yt, clock)
    line.wait(60)
    assert events_of(video) == 1
    found = timeline.trace(line.rt, video).timelines
    assert sorted(one.state for one in found) == ["delivered", "other_watch", "other_watch"]
    assert db.number("SELECT SUM(value) FROM counters WHERE name = 'events' AND label = 'duplicate'") == 2


def test_without_the_setting_each_watch_makes_its_event(build, yt, clock):
    line = build()
    line.run()
    line.wait(20)
    video = upload_and_list(yt, clock)
    line.wait(60)
    assert events_of(video) == 3


def test_a_video_that_was_only_marked_as_seen_is_sent_by_another_watch(build, yt, clock):
    video = yt.add(yt.playlists[0], "Old")
    line = build(dedupe_across="video")
    line.run()
    line.wait(20)
    yt.world.add_to_playlist(yt.playlists[1], video, at=clock())
    line.wait(60)
    assert events_of(video) == 1


def test_events_from_before_the_setting_count(build, yt, clock):
    line = build()
    line.run()
    line.wait(20)
    video = yt.add(yt.playlists[0], "Sent before")
    line.wait(30)
    later = build(dedupe_across="video")
    yt.add(yt.playlists[0], "The next one")
    later.wait(60)
    yt.world.add_to_playlist(yt.playlists[1], video, at=clock())
    later.wait(60)
    assert events_of(video) == 1
