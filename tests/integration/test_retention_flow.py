"""Retention beside the running line: months pass, nothing pending goes, nothing that is still visible is sent twice."""

import pytest

from csi.store import db, events
from csi.store.models import Event
from csi.worker import retention
from tests.fakes.scripted_receiver import ScriptedReceiver, accept
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline

DAY = 86_400.0


@pytest.fixture
def yt(clock):
    with simulated_youtube(playlists=1, now=clock) as site:
        yield site


@pytest.fixture
def make_line(tmp_path, clock, yt):
    def build(ua: ScriptedReceiver) -> InProcessPipeline:
        source = {"first_poll": "all", "poll_interval_seconds": 3600, "priority": "urgent", "quota_limit": 1_000_000}
        playlists = {"api_base_url": yt.api_base_url, "playlists": [{"id": ref} for ref in yt.playlists], **source}
        return InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": playlists})

    with db.connection():
        yield build


def live(line: InProcessPipeline, days: int) -> None:
    """Each day is one poll and one run of retention."""
    for _ in range(days):
        line.clock.move(DAY)
        line.run()
        retention.prune(line.rt, rest=lambda seconds: None)


def test_over_four_months_each_item_is_sent_once_and_rows_do_not_pile_up(make_line, yt):
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        for number in range(12):
            yt.add(yt.playlists[0], f"Number {number}")
            live(line, 10)
    sent = ua.event_ids
    print(f"items=12 sent={len(sent)} unique={len(set(sent))} events={Event.select().count()}")
    assert (len(sent), len(set(sent))) == (12, 12)
    assert Event.select().count() <= 4
    assert db.number("SELECT COUNT(*) FROM delivery_attempts WHERE batch_id IS NOT NULL") <= 4
    assert db.number("SELECT COUNT(*) FROM dedupe_keys") == 12, "all are still visible, so all are still known"


def test_what_could_not_be_delivered_for_months_is_still_there(make_line, yt):
    with ScriptedReceiver(then=503) as ua:
        line = make_line(ua)
        yt.add(yt.playlists[0])
        yt.add(yt.playlists[0])
        live(line, 95)
        waiting = events.counts()
        assert sum(waiting.values()) == 2
        assert not waiting.get("delivered")
        ua.then = accept
        line.wait(120)
    assert events.counts() == {"delivered": 2}
    assert len({event.event_id for event in Event.select()}) == 2
