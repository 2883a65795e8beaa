"""The receiver's database."""

import json
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from csi.errors import StoreError
from csi.ingester.event import CreatorSignalEvent
from csi.receiver.batch import ReceivedBatch, read_batch
from csi.receiver.request import RequestError
from csi.receiver.store import DeliveryLedger, SignalStore, VerifiedRequest

EVENT: dict[str, Any] = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])  # type: ignore[index, arg-type]


def batch_of(*names: str, batch_id: str = "b1") -> ReceivedBatch:
    events = [EVENT | {"event_id": name} for name in names]
    body = {"csi_version": "1", "csi_instance_id": "csi-1", "batch_id": batch_id, "events": events}
    return read_batch(json.dumps(body).encode(), frozenset())


def arrival(name: str, at: float = 1000.0, body: str = "hash") -> VerifiedRequest:
    return VerifiedRequest(name, body, at)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "receiver.db"


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as db:
        found = db.execute(query).fetchall()
    db.close()
    return found


def test_each_event_once_each_delivery_counted(path: Path) -> None:
    store = SignalStore(path)
    assert store.accept(batch_of("a", "b", "a"), arrival("r1")) == ["accepted", "accepted", "duplicate"]
    assert store.accept(batch_of("a", "c", batch_id="b2"), arrival("r2", 1001.0)) == ["duplicate", "accepted"]
    assert store.counts() == {"accepted": 3, "deliveries": 5, "invalid": 0}
    store.close()
    found = rows(path, "SELECT event_id, deliveries, batch_id, first_received_at FROM signals ORDER BY 1")
    assert found == [("a", 3, "b1", 1000.0), ("b", 1, "b1", 1000.0), ("c", 1, "b2", 1001.0)]
    assert rows(path, "SELECT status, events FROM requests ORDER BY request_id") == [(207, 3), (207, 2)]


def test_the_columns_hold_the_event(path: Path) -> None:
    store = SignalStore(path)
    store.accept(batch_of("a"), arrival("r1"))
    store.close()
    query = "SELECT dedupe_key, source, event_type, occurred_at, received_by_csi_at, instance_id, pipeline"
    ((*columns,),) = rows(path, f"{query} FROM signals")
    names = ("dedupe_key", "source", "event_type", "occurred_at", "received_at")
    assert columns == [EVENT[name] for name in names] + ["csi-1", "youtube_tutorial_explainer"]
    ((text,),) = rows(path, "SELECT event_json FROM signals")
    assert json.loads(text) == EVENT | {"event_id": "a"}


def test_memory_survives_a_restart(path: Path) -> None:
    first = SignalStore(path)
    first.accept(batch_of("a"), arrival("r1"))
    first.close()
    second = SignalStore(path)
    with pytest.raises(RequestError, match="replayed_request"):
        second.accept(batch_of("a"), arrival("r1"))
    assert second.accept(batch_of("a"), arrival("r2")) == ["duplicate"]


def test_other_bytes_under_an_old_id_are_not_called_delivered(path: Path) -> None:
    store = SignalStore(path)
    store.accept(batch_of("a"), arrival("r1"))
    with pytest.raises(RequestError, match="reused_request_id") as caught:
        store.accept(batch_of("b"), arrival("r1", body="other"))
    assert caught.value.status == 400
    assert store.counts()["accepted"] == 1


def test_request_ids_are_forgotten_when_they_cannot_be_replayed(path: Path) -> None:
    store = SignalStore(path, remember=660)
    for number in range(50):
        store.accept(batch_of(), arrival(f"r{number}", at=1000.0 + number))
    with pytest.raises(RequestError):
        store.accept(batch_of(), arrival("r49", at=1049 + 660))
    assert store.accept(batch_of(), arrival("r49", at=1049 + 661)) == []
    store.close()
    assert rows(path, "SELECT request_id FROM requests") == [("r49",)]


def test_files_are_private(path: Path) -> None:
    store = SignalStore(path)
    store.accept(batch_of("a"), arrival("r1"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"receiver.db": 0o600, "receiver.db-wal": 0o600, "receiver.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


def test_a_lock_held_elsewhere_is_503_and_nothing_is_half_written(path: Path) -> None:
    store = SignalStore(path, busy_timeout=0.05)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(RequestError, match="storage_busy") as caught:
        store.accept(batch_of("a"), arrival("r1"))
    assert (caught.value.status, caught.value.retry_after) == (503, 5)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert store.accept(batch_of("a"), arrival("r1")) == ["accepted"]


def test_a_full_disk_is_503_and_it_goes_on_when_there_is_room(path: Path) -> None:
    store = SignalStore(path)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    names = [f"{'x' * 400}{number}" for number in range(100)]
    with pytest.raises(RequestError, match="storage_full") as caught:
        store.accept(batch_of(*names), arrival("r1"))
    assert (caught.value.status, caught.value.retry_after) == (503, 60)
    assert store.counts()["accepted"] == 0
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert store.accept(batch_of(*names), arrival("r1")) == ["accepted"] * 100


def test_a_thread_that_waits_too_long_for_its_turn_is_503(path: Path) -> None:
    store = SignalStore(path, busy_timeout=0.01)
    with store._lock, pytest.raises(RequestError, match="storage_busy"):
        store.accept(batch_of("a"), arrival("r1"))


def test_many_threads_two_stores_one_file(path: Path) -> None:
    stores = [SignalStore(path), SignalStore(path)]
    names = [f"e{number}" for number in range(20)]

    def send(number: int) -> list[str]:
        return list(stores[number % 2].accept(batch_of(*names), arrival(f"r{number}")))

    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(send, range(16)))
    assert sum(row.count("accepted") for row in verdicts) == 20
    assert stores[0].counts() == {"accepted": 20, "deliveries": 320, "invalid": 0}


def test_two_receivers_may_start_on_one_new_file(path: Path) -> None:
    first, second = SignalStore(path), SignalStore(path)
    assert first.accept(batch_of("a"), arrival("r1")) == ["accepted"]
    assert second.accept(batch_of("a"), arrival("r2")) == ["duplicate"]


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE events (id)")
    db.close()
    with pytest.raises(StoreError, match="another program"):
        SignalStore(path)
    assert rows(path, "SELECT name FROM sqlite_master") == [("events",)]


def test_a_newer_schema_is_refused(path: Path) -> None:
    SignalStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="newer csi"):
        SignalStore(path)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("hello " * 1000)
    with pytest.raises(StoreError, match=r"text\.db"):
        SignalStore(tmp_path / "text.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        SignalStore(tmp_path)


def test_the_ledger_has_a_line_for_every_event(tmp_path: Path) -> None:
    ledger = DeliveryLedger(tmp_path / "ledger.jsonl")
    events = [EVENT, {"event_id": "odd", "emitted_at": 7}, None]
    body = {"csi_version": "1", "csi_instance_id": "csi-1", "batch_id": "b1", "events": events}
    batch = read_batch(json.dumps(body).encode(), frozenset())
    ledger.write(batch, arrival("r1"), ["accepted", "invalid", "invalid"])
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [line["verdict"] for line in lines] == ["accepted", "invalid", "invalid"]
    assert [line["event_id"] for line in lines] == [EVENT["event_id"], "odd", None]
    assert [line["emitted_at"] for line in lines] == [EVENT["emitted_at"], None, None]
    assert {(line["at"], line["batch_id"], line["request_id"]) for line in lines} == {(1000.0, "b1", "r1")}
    assert all(len(line["body_sha256"]) == 64 for line in lines)
    assert stat.S_IMODE((tmp_path / "ledger.jsonl").stat().st_mode) == 0o600
