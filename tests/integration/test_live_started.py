"""`live_started`: a second event when an announced stream begins, also after the death of a process."""

import json

import pytest

from csi.store import awaited_streams, db
from csi.store.models import Event
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline

HOUR = 3600.0


@pytest.fixture
def yt(clock):
    with simulated_youtube(channels=1, playlists=1, now=clock) as site:
        yield site


@pytest.fixture
def build(tmp_path, clock, yt):
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
                more = {"enrich": True, "live_started": True} | common
                block |= {"api_base_url": yt.api_base_url, "poll_interval_seconds": 10, **more}
            return InProcessPipeline(tmp_path, clock, ua.url, sources=blocks)

        yield make


def emitted(video: str) -> list[tuple[str, str, str]]:
    """Type, kind and dedupe key of the events of this video."""
    found = [
        (row.event_type, json.loads(row.subject_json), row.dedupe_key) for row in Event.select().order_by(Event.id)
    ]
    return [(kind, subject["kind"], key) for kind, subject, key in found if subject["video_id"] == video]


def test_an_announced_stream_makes_a_second_event_when_it_begins(build, yt, clock):
    line = build()
    line.run()
    line.wait(20)
    video = yt.upload(yt.channels[0], "Premiere", kind="upcoming")
    line.wait(HOUR - 60, step=20)
    first = ("channel_new_upload", "upcoming", f"youtube:video:{video}")
    assert emitted(video) == [first]
    yt.world.start_live(video, at=clock())
    began = clock()
    line.wait(150, step=10)
    assert emitted(video) == [first, ("live_started", "live", f"youtube:live:{video}")]
    row = Event.get(Event.event_type == "live_started")
    assert (row.event_id, row.state) == (f"src:yt:live:{video}:{int(began)}", "delivered")
    assert json.loads(row.subject_json)["started_at"] == row.occurred_at
    line.wait(HOUR, step=60)
    assert len(emitted(video)) == 2
    assert awaited_streams.due_sources(clock() + 1e9) == []


def test_a_process_that_dies_with_the_check_loses_no_start(build, yt, clock):
    line = build()
    line.run()
    line.wait(20)
    video = yt.add(yt.playlists[0], "Premiere", kind="upcoming")
    line.wait(30, step=10)
    yt.world.start_live(video, at=clock())
    clock.move(120)
    with db.writing():
        claimed = awaited_streams.claim("youtube_playlist", clock())  # a process claims the row and is killed
    assert [row.video_id for row in claimed] == [video]
    line.wait(20, step=5)
    assert [kind for kind, *_ in emitted(video)] == ["video_added_to_playlist"], "its lease holds"
    line.wait(60, step=5)
    assert emitted(video)[1:] == [("live_started", "live", f"youtube:live:{video}:{yt.playlists[0]}")]


def test_a_stream_that_began_and_ended_while_no_worker_ran_is_told_late(build, yt, clock):
    line = build()
    line.run()
    line.wait(20)
    video = yt.upload(yt.channels[0], "Premiere", kind="upcoming")
    line.wait(30, step=10)
    yt.world.start_live(video, at=clock() + 100)
    yt.world.end_live(video, at=clock() + 200)
    clock.move(5 * HOUR)
    line.wait(120, step=10)
    assert [kind for kind, *_ in emitted(video)] == ["channel_new_upload", "live_started"]


def test_without_the_setting_there_is_one_event(build, yt, clock):
    line = build(live_started=False)
    line.run()
    line.wait(20)
    video = yt.upload(yt.channels[0], "Premiere", kind="upcoming")
    line.wait(30, step=10)
    yt.world.start_live(video, at=clock())
    line.wait(300, step=20)
    assert [kind for kind, *_ in emitted(video)] == ["channel_new_upload"]


def test_a_deleted_stream_is_forgotten_and_an_api_in_trouble_is_asked_again(build, yt, clock):
    line = build()
    line.run()
    line.wait(20)
    gone = yt.upload(yt.channels[0], "Cancelled", kind="upcoming")
    later = yt.upload(yt.channels[0], "Later", kind="upcoming")
    line.wait(30, step=10)
    yt.world.delete(gone, at=clock())
    yt.set_faults("api:500@0-1800", from_now=True)
    line.wait(1800, step=60)
    assert len(db.fetch("SELECT 1 FROM awaited_streams")) == 2
    yt.world.start_live(later, at=clock())
    line.wait(2 * HOUR, step=60)
    assert [kind for kind, *_ in emitted(later)] == ["channel_new_upload", "live_started"]
    assert [kind for kind, *_ in emitted(gone)] == ["channel_new_upload"]
    assert db.fetch("SELECT 1 FROM awaited_streams") == []
