"""`csi receiver doctor`, and the migration of a database of schema 1."""

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from csi.cli.receiver import receiver
from csi.receiver import store as store_module
from csi.receiver.app import INGEST_PATH, create_app
from csi.receiver.settings import ReceiverSettings
from csi.receiver.store import SignalStore
from tests.fakes.background_server import serve_in_background
from tests.integration.test_receiver_store import arrival, batch_of

SECRET = "csi-test-secret-0123456789-0123456789"


def doctor(*options: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
    given = {"UA_SIGNALS_INGEST_SHARED_SECRET": SECRET, **(env or {})}
    result = CliRunner().invoke(receiver, ["doctor", "--json", *options], env=given)
    return result.exit_code, {row["what"]: row["state"] for row in json.loads(result.output)}


def test_a_healthy_receiver_is_well(tmp_path):
    path = tmp_path / "r.db"
    settings = ReceiverSettings(secret=SECRET, previous_secret="the-old-secret-1", db_path=path)
    with serve_in_background(create_app(settings)) as url:
        env = {"UA_SIGNALS_INGEST_PREVIOUS_SECRET": "the-old-secret-1"}
        code, found = doctor("--db", str(path), "--url", url + INGEST_PATH, env=env)
    assert code == 0
    assert found["signed with the secret"] == found["signed with the previous secret"] == found["unsigned"] == "ok"
    assert (found["database"], found["integrity"], found["permissions"]) == ("ok", "ok", "ok")


@pytest.mark.parametrize(
    ("env", "what"),
    [({"UA_SIGNALS_INGEST_ENABLED": "0"}, "ingest"), ({"UA_SIGNALS_DB_PATH": f"{__file__}/r.db"}, "database")],
    ids=["switched off", "no access"],
)
def test_what_would_stop_a_batch_is_ill(tmp_path, env, what):
    code, found = doctor(env={"UA_SIGNALS_DB_PATH": str(tmp_path / "r.db"), **env})
    assert (code, found[what]) == (1, "ill")


def test_a_wrong_secret_and_an_unreachable_receiver_are_ill(tmp_path):
    other = ReceiverSettings(secret="another-secret-0123456789", db_path=tmp_path / "r.db")
    with serve_in_background(create_app(other)) as url:
        code, found = doctor("--db", str(tmp_path / "r.db"), "--url", url + INGEST_PATH)
    assert (code, found["signed with the secret"]) == (1, "ill")
    code, found = doctor("--db", str(tmp_path / "r.db"), "--url", "http://127.0.0.1:9/x")
    assert (code, found["unsigned"]) == (1, "ill")


def test_a_file_of_another_program_is_ill_and_left_alone(tmp_path):
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE x (y)")
    before = path.read_bytes()
    code, found = doctor("--db", str(path))
    assert (code, found["database"], path.read_bytes()) == (1, "ill", before)


def test_doctor_creates_nothing(tmp_path):
    assert doctor("--db", str(tmp_path / "new" / "r.db"))[0] == 0
    assert list(tmp_path.iterdir()) == []


VERSION_1 = """
CREATE TABLE signals (event_id TEXT PRIMARY KEY, dedupe_key TEXT NOT NULL, source TEXT NOT NULL,
    event_type TEXT NOT NULL, occurred_at TEXT NOT NULL, received_by_csi_at TEXT NOT NULL,
    first_received_at REAL NOT NULL, batch_id TEXT NOT NULL, instance_id TEXT NOT NULL, pipeline TEXT,
    event_json TEXT NOT NULL, deliveries INTEGER NOT NULL DEFAULT 1);
CREATE INDEX signals_dedupe_key ON signals (dedupe_key);
CREATE INDEX signals_first_received_at ON signals (first_received_at);
CREATE TABLE requests (request_id TEXT PRIMARY KEY, received_at REAL NOT NULL, batch_id TEXT NOT NULL,
    status INTEGER NOT NULL, events INTEGER NOT NULL, body_sha256 TEXT NOT NULL);
CREATE INDEX requests_received_at ON requests (received_at);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO signals VALUES ('late', 'k', 's', 't', 'o', 'r', 20, 'b', 'i', NULL, '{}', 3);
INSERT INTO signals VALUES ('early', 'k', 's', 't', 'o', 'r', 10, 'b', 'i', 'p', '{}', 1);
PRAGMA user_version = 1;
"""


def old_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.executescript(VERSION_1 + f"PRAGMA application_id = {store_module.APPLICATION_ID};")
    db.close()


def test_a_database_of_version_1_keeps_its_signals_and_gets_numbers(tmp_path):
    old_database(tmp_path / "r.db")
    opened = SignalStore(tmp_path / "r.db")
    assert opened.accept(batch_of("late", "new"), arrival("r1")) == ["duplicate", "accepted"]
    opened.close()
    with sqlite3.connect(tmp_path / "r.db") as db:
        rows = db.execute("SELECT seq, event_id, deliveries FROM signals ORDER BY seq").fetchall()
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    db.close()
    assert [(name, count) for _, name, count in rows] == [("early", 1), ("late", 4), ("new", 1)]
    assert [seq for seq, _, _ in rows] == sorted(seq for seq, _, _ in rows)


def test_an_upgrade_that_fails_leaves_version_1(tmp_path, monkeypatch):
    old_database(tmp_path / "r.db")
    monkeypatch.setattr(
        store_module, "_FROM_VERSION_1", store_module._FROM_VERSION_1 + "; SELECT nonsense FROM nowhere"
    )
    with pytest.raises(store_module.StoreError):
        SignalStore(tmp_path / "r.db")
    with sqlite3.connect(tmp_path / "r.db") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM signals").fetchone() == (2,)
    db.close()
