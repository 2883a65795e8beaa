"""`csi db copy`: everything from SQLite into PostgreSQL, proven row by row, whatever happens on the way."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from csi.cli.main import cli
from csi.errors import StoreError
from csi.store import copy_tables, db
from csi.worker_lock import without_worker

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "Über 🚀 “quotes” \u202e\u2028 </script> 日本語 \\ ' \" \t\n"


@pytest.fixture
def box(tmp_path, monkeypatch):
    """A stopped installation with something of everything in it."""
    (tmp_path / "config.yaml").write_text(f"csi: {{state_dir: {tmp_path / 'state'}}}\n")
    monkeypatch.setenv("CSI_CONFIG_PATH", str(tmp_path / "config.yaml"))
    assert run("db", "migrate").exit_code == 0
    with opened(tmp_path) as file:
        fill(file)
    yield tmp_path
    if not db.database.is_closed():
        db.database.close()


def opened(home: Path) -> closing:
    return closing(sqlite3.connect(home / "state" / "csi.db", isolation_level=None))


def fill(file: sqlite3.Connection, events: int = 2_500) -> None:
    file.execute("BEGIN")
    file.execute(
        "INSERT INTO watches (id, source, ref, tier, interval_seconds, next_poll_at, wake_at, created_at) "
        "VALUES (7, 'youtube_playlist', 'PL1', 'urgent', 30, 1.5, 1771761600.123456, '2026-02-22T12:00:00Z')"
    )
    file.executemany(
        "INSERT INTO events (event_id, dedupe_key, source, event_type, occurred_at, received_at, subject_json, "
        "routing_json, metadata_json, delivered, contract_version, watch_id, seq, tier, first_seen_at) "
        "VALUES (?, ?, 's', 't', 'o', 'r', ?, '{}', '{}', ?, '1.0', 7, ?, 'urgent', ?)",
        [(f"src:{n}", f"key:{n}", HOSTILE, n % 2, n, n / 7) for n in range(events)],
    )
    file.executemany(
        "INSERT INTO outbox (event_pk, destination, tier, watch_id, seq, due_at) "
        "VALUES (?, 'default', 'urgent', 7, ?, 0)",
        [(n, n) for n in range(1, events + 1)],
    )
    keys = ["a", "B", "ä", "Z", "z", "🚀", "_", "a b", "a-b", "A", "\uffff", "é"]
    file.executemany("INSERT INTO dedupe_keys (key, expires_at) VALUES (?, '2026-05-01')", [(key,) for key in keys])
    file.execute("INSERT INTO counters (name, source, label, value) VALUES ('n', '', 'ß', 0.1)")
    file.execute("INSERT INTO channels (id, tracked_since) VALUES ('UC1', 0)")
    file.execute(
        "INSERT INTO channel_stats (id, channel_id, captured_at, captured_on) VALUES ('s', 'UC1', 5, '2025-12-31')"
    )
    file.execute(
        "INSERT INTO inbox (watch_id, item_key, event_type, occurred_at, payload_json, seen_at, wake_at) "
        "VALUES (7, 'gone', 't', 'o', '{}', 0, 0)"
    )
    file.execute("UPDATE sqlite_sequence SET seq = 900 WHERE name = 'inbox'")
    file.execute("DELETE FROM inbox")
    file.execute("COMMIT")


def run(*arguments: str):
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=True)


def code(done) -> int:
    return getattr(done.exception, "exit_code", done.exit_code)


def said(done) -> str:
    return done.output + str(done.exception or "")


def copied(url: str, *options: str) -> dict:
    done = run("db", "copy", "--to", url, "--json", *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def ask(url: str, sql: str) -> list[tuple]:
    with psycopg.connect(url) as connection:
        return connection.execute(sql).fetchall()


def written(report: dict) -> dict[str, int]:
    return {it["table"]: it["written"] + it["removed"] for it in report["tables"] if it["written"] + it["removed"]}


def test_everything_is_there_and_the_next_ids_are_new(box, postgres_url):
    report = copied(postgres_url)
    rows = {it["table"]: it["rows"] for it in report["tables"]}
    assert (rows["events"], rows["outbox"], rows["dedupe_keys"], rows["channel_stats"]) == (2_500, 2_500, 12, 1)
    assert (report["complete"], report["mended_texts"]) == (True, 0)
    assert ask(postgres_url, "SELECT DISTINCT subject_json FROM events") == [(HOSTILE,)]
    assert ask(postgres_url, "SELECT wake_at FROM watches") == [(1771761600.123456,)]
    assert ask(postgres_url, "SELECT delivered, count(*) FROM events GROUP BY 1 ORDER BY 1") == [
        (False, 1250),
        (True, 1250),
    ]
    # No id is ever given twice, also of rows that are gone: the order of a watch's items rests on it.
    assert ask(postgres_url, "SELECT nextval(pg_get_serial_sequence('inbox', 'id'))") == [(901,)]
    assert ask(postgres_url, "SELECT nextval(pg_get_serial_sequence('events', 'id'))") == [(2501,)]


def test_a_second_run_writes_only_what_changed(box, postgres_url):
    copied(postgres_url)
    with opened(box) as file:
        file.execute("UPDATE events SET state = 'delivered' WHERE id = 3")
        file.execute("DELETE FROM outbox WHERE event_pk IN (3, 4)")
        # The same unique value under another id: an event that goes out again.
        file.execute(
            "INSERT INTO outbox (event_pk, destination, tier, seq, due_at) VALUES (4, 'default', 'urgent', 4, 9)"
        )
    assert written(copied(postgres_url)) == {"events": 1, "outbox": 3}
    assert written(copied(postgres_url)) == {}


def test_a_month_that_came_later_finds_its_place(box, postgres_url):
    copied(postgres_url)
    with opened(box) as file:
        file.execute(
            "INSERT INTO channel_stats (id, channel_id, captured_at, captured_on) VALUES ('t', 'UC1', 6, '2026-01-01')"
        )
        file.execute(
            "INSERT INTO videos (id, channel_id, published_at, first_seen_at) VALUES ('v', 'UC1', 1771761600, 0)"
        )
        file.execute("INSERT INTO video_stats (id, video_id, captured_at) VALUES ('s', 'v', 1771761600.5)")
    assert written(copied(postgres_url)) == {"channel_stats": 1, "videos": 1, "video_stats": 1}


def test_a_snapshot_is_copied_while_the_worker_runs_and_ended_when_it_rests(box, postgres_url):
    with without_worker(box / "state", ""):  # stands for a worker that runs
        refused = run("db", "copy", "--to", postgres_url)
        assert (code(refused), "--live" in said(refused)) == (9, True)
        assert copied(postgres_url, "--live")["complete"] is False
        assert [path.name for path in (box / "state").glob("copy-*")] == []
        db.open_database(postgres_url)
        with db.connection(), pytest.raises(StoreError, match="not finished"):
            copy_tables.take_into_use()
    with opened(box) as file:
        file.execute("UPDATE watches SET errors = 2")
    assert written(copied(postgres_url)) == {"watches": 1}


def test_a_database_that_is_in_use_is_never_copied_over(box, postgres_url):
    copied(postgres_url)
    db.open_database(postgres_url)
    with db.connection():
        copy_tables.take_into_use()
    refused = run("db", "copy", "--to", postgres_url)
    assert code(refused) == 7
    assert "not written by a copy" in said(refused)


def test_another_installation_is_not_mixed_in(box, postgres_url):
    db.open_database(postgres_url)
    db.migrate()
    with db.connection():
        copy_tables.begin_copy("/elsewhere/csi.db", 0.0, is_empty=True)
    assert "a copy of /elsewhere/csi.db" in said(run("db", "copy", "--to", postgres_url))


def test_a_write_to_the_source_during_the_last_copy_is_refused(box, postgres_url):
    def meddle(done: int, total: int) -> None:
        with opened(box) as file:
            file.execute("UPDATE watches SET errors = errors + 1")

    path = box / "state" / "csi.db"
    with pytest.raises(StoreError, match="another process wrote"):
        copy_tables.copy(path, postgres_url, origin="x", now=lambda: 0.0, notice=meddle)
    assert ask(postgres_url, "SELECT state FROM copies") == [("begun",)]


def test_a_copy_killed_in_the_middle_is_continued_by_the_next_run(box, postgres_url):
    program = (
        "import sys, os, signal; from pathlib import Path; from csi.store import copy_tables\n"
        "calls = []\n"
        "def doom(name):\n"
        "    whole = getattr(copy_tables.PostgresTarget, name)\n"
        "    def doomed(self, table, rows):\n"
        "        whole(self, table, rows)\n"
        "        calls.append(table.name)\n"
        "        if calls.count('events') == int(sys.argv[3]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "    setattr(copy_tables.PostgresTarget, name, doomed)\n"
        "doom('append'); doom('write')\n"
        "copy_tables.copy(Path(sys.argv[1]), sys.argv[2], origin=sys.argv[1], now=lambda: 0.0)\n"
    )
    path = str((box / "state" / "csi.db").resolve())
    for nth in ("1", "1"):
        line = [sys.executable, "-c", program, path, postgres_url, nth]
        done = subprocess.run(line, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    there = ask(postgres_url, "SELECT count(*) FROM events")[0][0]
    assert there == 2_000
    report = copied(postgres_url)
    assert written(report).get("events", 0) == 2_500 - there
    assert report["complete"]


def test_what_postgresql_cannot_hold_is_mended_and_counted(box, postgres_url):
    with opened(box) as file:
        file.execute("UPDATE watches SET last_error = 'a' || char(0) || 'b'")
        file.execute(
            "UPDATE events SET raw_ref = CAST(X'61EDA08062' AS TEXT) WHERE id = 1"
        )  # a lone surrogate, as bytes
    assert copied(postgres_url)["mended_texts"] == 2
    assert ask(postgres_url, "SELECT last_error FROM watches") == [("a\ufffdb",)]
    assert ask(postgres_url, "SELECT raw_ref FROM events WHERE id = 1")[0][0].startswith("a\ufffd")
    assert written(copied(postgres_url)) == {}


def test_a_key_that_cannot_be_kept_is_named(box, postgres_url):
    with opened(box) as file:
        file.executemany("INSERT INTO dedupe_keys (key, expires_at) VALUES ('k' || char(?), '2026')", [(0,), (1,)])
    done = run("db", "copy", "--to", postgres_url)
    assert code(done) == 7
    assert "dedupe_keys: a key has NUL" in said(done)


def test_an_unexpected_difference_is_found(box, postgres_url, monkeypatch):
    monkeypatch.setattr(copy_tables.PostgresTarget, "append", lambda self, table, rows: None)
    assert "do not agree" in said(run("db", "copy", "--to", postgres_url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param(
            "postgresql://csi:pa55word-x@127.0.0.1:9/csi", "copy to postgresql://csi:********@", id="no-server"
        ),
        pytest.param("postgresql://csi:pa55word-x@[127.0.0.1:9/csi", "csi:********@", id="wrong-address"),
        pytest.param("sqlite.db", "expected postgresql://", id="not-postgresql"),
    ],
)
def test_trouble_is_a_sentence_without_the_password(box, url, words):
    done = run("db", "copy", "--to", url)
    assert code(done) in (2, 7)
    assert words in said(done)
    assert "pa55word" not in said(done)
    assert "Traceback" not in said(done)


def test_a_user_that_the_server_does_not_know(box, postgres_url):
    done = run("db", "copy", "--to", postgres_url.replace("postgres:@", "nobody:pa55word-x@"))
    assert code(done) == 7
    assert "nobody" in said(done)
    assert "pa55word" not in said(done)


def test_a_target_of_a_newer_version_is_refused(box, postgres_url):
    copied(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("INSERT INTO schema_migration (name, applied) VALUES ('9999_later', now())")
    assert "newer csi" in said(run("db", "copy", "--to", postgres_url))


def test_an_installation_on_postgresql_is_sent_to_its_own_tools(box, postgres_url, monkeypatch):
    monkeypatch.setenv("CSI_DATABASE_URL", postgres_url)
    assert "pg_dump" in said(run("db", "copy", "--to", postgres_url))
