"""Reading slows down while much waits, stops at the limit, and is back to normal when the backlog has shrunk."""

from csi.pipeline import backpressure
from csi.status import facts, verdict
from csi.store import db
from csi.store.models import Watch
from tests.rigs.in_process import PollingPipeline, polling_pipeline

LIMIT = 20


def test_reading_slows_down_by_backlog_and_recovers(tmp_path, clock):
    feeds = {"first_poll": "all", "poll_interval_seconds": 100, "enrich": False}
    with polling_pipeline(tmp_path, clock, channels=1, videos=6, feeds=feeds, csi={"max_backlog_events": LIMIT}) as s:
        s.run()
        assert _wait_until_due(s) < 111, "6 of 20 wait: the interval stays"
        for _ in range(8):
            s.upload(s.channels[0])
        s.go(220)  # a read counts what waits before its own items are stored
        waiting = backpressure.measure(s.rt)
        assert (waiting.waiting, round(waiting.factor or 0, 6)) == (14, 3.8)
        assert 300 < _wait_until_due(s) < 430
        assert [one.id for one in _problems(s)] == ["reading_slowed"]
        for _ in range(12):
            s.upload(s.channels[0])
        s.go(500)
        assert backpressure.measure(s.rt).factor is None
        read_at = Watch.get().last_success_at
        s.upload(s.channels[0])
        s.go(3600)
        assert Watch.get().last_success_at == read_at, "nothing is read at the limit"
        assert "nothing is read" in _problems(s)[0].what
        with db.writing():
            db.run("UPDATE events SET state = 'delivered', delivered_at = ?", clock())
        s.go(120)
        assert Watch.get().last_success_at > read_at
        s.go(300)
        assert backpressure.measure(s.rt) == backpressure.Pressure(1, LIMIT, 1.0), (
            "what was published meanwhile is there"
        )
        assert Watch.get().planned_interval == 100


def _wait_until_due(s: PollingPipeline) -> float:
    return Watch.get().next_poll_at - Watch.get().last_success_at


def _problems(s: PollingPipeline):
    return [one for one in verdict.judge(facts.gather(s.rt)).problems if one.id == "reading_slowed"]
