"""Retention of processing's tables and of the receiver's: what is old goes, what is still needed stays."""

import json

import pytest

from csi.errors import ConfigError
from csi.processing.pipeline.retention import remove_old_hourly
from csi.processing.store.db import fetch
from csi.receiver.batch import read_batch
from csi.receiver.settings import from_env
from csi.receiver.store import PRUNED, SignalStore, VerifiedRequest
from tests.fakes.providers import FakeChat
from tests.integration.test_processing_paid import VIDEO, chat_bench
from tests.rigs.processing_bench import EXAMPLE

DAY = 86_400.0


def counts(*tables: str) -> dict[str, int]:
    return {table: fetch(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


def run_retention(bench) -> dict[str, int]:
    total: dict[str, int] = {}
    for _ in range(50):
        found = remove_old_hourly(bench.rt)
        if not found:
            return total
        total = {name: total.get(name, 0) + found.get(name, 0) for name in total | found}
    raise AssertionError("retention never ends")


def test_old_rows_of_finished_work_go_and_everything_else_stays(open_bench, clock):
    with FakeChat() as chat:
        bench = chat_bench(open_bench, chat)
        bench.drain()
        (bench.home / "transcripts" / "vid00000002.json").write_text("{broken")
        bench.deliver("vid00000002", text=None)
        bench.drain()
        before = counts("signals", "videos", "jobs", "calls")
        assert run_retention(bench) == {}
        clock.move(300 * DAY)
        bench.drain()
        clock.move(100 * DAY)
        removed = run_retention(bench)
        assert (removed["signals"], removed["calls"]) == (1, before["calls"])
        assert counts("signals", "videos", "jobs") == {name: before[name] for name in ("signals", "videos", "jobs")}
        left = dict(fetch("SELECT video_id, event_json <> '{}' FROM signals"))
        assert {name: bool(kept) for name, kept in left.items()} == {VIDEO: False, "vid00000002": True}
        assert counts("notices")["notices"] == 0
        bench.deliver(VIDEO, event_id=fetch("SELECT event_id FROM signals WHERE video_id = ?", VIDEO)[0][0])
        bench.drain()
        assert (bench.status(VIDEO), chat.billed) == ("summarized", 1)


def test_videos_go_with_everything_that_is_theirs_where_that_is_configured(open_bench, clock):
    bench = open_bench(retention={"videos_days": 30})
    for number in range(25):
        bench.deliver(f"old{number:08}")
    bench.drain()
    folder = bench.settings.artifacts / "old00000001"
    assert folder.exists()
    clock.move(31 * DAY)
    bench.deliver("new00000001")
    bench.drain()
    assert run_retention(bench)["videos"] == 25
    assert not folder.exists()
    assert bench.statuses() == {"new00000001": "summarized"}
    assert counts("jobs", "artifacts") == {"jobs": 2, "artifacts": len(list((folder.parent / "new00000001").iterdir()))}


def test_retention_rests_for_an_hour_when_nothing_is_left(open_bench, clock, monkeypatch):
    bench = open_bench()
    assert remove_old_hourly(bench.rt) == {}
    monkeypatch.setattr("csi.processing.pipeline.retention.writing", lambda: pytest.fail("it read again at once"))
    clock.move(600)
    assert remove_old_hourly(bench.rt) == {}


def deliver(store: SignalStore, number: int, at: float) -> None:
    event = {**EXAMPLE, "event_id": f"src:test:{number}", "dedupe_key": f"k:{number}"}
    body = {"csi_version": "1", "csi_instance_id": "csi-1", "batch_id": "b", "events": [event]}
    batch = read_batch(json.dumps(body).encode(), frozenset())
    store.accept(batch, VerifiedRequest(f"r{number}", str(number), at))


@pytest.mark.parametrize(("days", "left"), [(30, 1), (0, 4)])
def test_the_receiver_keeps_signals_for_its_days_and_always_the_newest(tmp_path, days, left):
    import sqlite3

    store = SignalStore(tmp_path / "r.db", retention_days=days)
    for number in range(3):
        deliver(store, number, 1_000_000.0 + number)
    deliver(store, 3, 1_000_000.0 + 60 * DAY)
    with sqlite3.connect(tmp_path / "r.db") as db:
        assert db.execute("SELECT count(*) FROM signals").fetchone()[0] == left
    assert store.counts()["accepted"] == 4
    store.close()
    assert PRUNED >= 100


@pytest.mark.parametrize("text", ["-1", "a year", "1e3", "99999"])
def test_days_that_are_none_are_refused(text):
    env = {"UA_SIGNALS_INGEST_SHARED_SECRET": "s" * 20 + "ab12", "UA_SIGNALS_RETENTION_DAYS": text}
    with pytest.raises(ConfigError, match="UA_SIGNALS_RETENTION_DAYS"):
        from_env(env)
