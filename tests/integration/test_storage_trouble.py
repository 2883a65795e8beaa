"""Fault cases 44–52: what the operator is shown of a full, locked, read-only, damaged, newer or older database."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from loguru import logger

from csi.cli.main import cli
from csi.doctor.local_checks import check_database
from csi.pipeline import disk_guard, rescue, schedule
from csi.runtime import Runtime, open_runtime
from csi.status.storage import StorageStatus, storage_status
from csi.status.worker import worker_status
from csi.store import database_faults, db, disk, heartbeats
from csi.web.app import create_app
from csi.worker import maintenance
from tests.fakes.scripted_receiver import accept
from tests.rigs.in_process import ledger_pipeline

CONFIG = "web: {allowed_hosts: [test]}\nsources: {youtube_channel_rss: {enabled: false}}\n"
WORDS = [
    ("database or disk is full", "full"),
    ("could not extend file: No space left on device", "full"),
    ("database is locked", "locked"),
    ("the database did not answer within 5 s", "locked"),
    ("attempt to write a readonly database", "read_only"),
    ("/var/lib/csi/csi.db cannot be opened for writing: Read-only file system", "read_only"),
    ("unable to open database file", "read_only"),
    ("file is not a database", "damaged"),
    ("disk I/O error", "failing"),
    ("database disk image is malformed", "damaged"),
    ("the database was made by a newer csi (it has 9999_future)", "newer"),
    ("connection failed: connection refused", "away"),
    ("no such table: watches", "emptied"),
    ("something else", "unusable"),
]


@pytest.mark.parametrize(("words", "kind"), WORDS, ids=[words[:30] for words, _ in WORDS])
def test_trouble_has_one_name_and_a_remedy_that_gives_nothing_away(words: str, kind: str) -> None:
    named = database_faults.identify(words)
    assert named.kind == kind
    assert named.remedy
    assert "/var" not in named.text + named.remedy


def test_the_error_of_a_full_database_is_not_hidden_by_the_rollback_that_follows(sqlite_store) -> None:
    """SQLite ends the transaction itself; ROLLBACK then fails with `cannot rollback - no transaction is active`."""
    with db.connection():
        with db.writing():
            pages = db.number("PRAGMA page_count")
            db.run(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(db.DatabaseError, match="full"), db.writing():
            for number in range(200):
                heartbeats.write(f"{number}" * 200, 1.0, 1.0)
        assert heartbeats.last_beat("0" * 200) is None


class Home:
    """An installation with a database that can be harmed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "config.yaml").write_text(CONFIG)
        self.path = folder / "state" / "csi.db"
        self.rt = self.open()

    def open(self) -> Runtime:
        return open_runtime(self.folder / "config.yaml", {"CSI_STATE_DIR": str(self.folder / "state")})

    def sql(self, text: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(text)

    def damage(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.path.write_bytes(b"not a database at all " * 500)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield

    def wants_free(self, megabytes: int) -> None:
        own = self.rt.settings.csi.model_copy(update={"min_free_mb": megabytes})
        self.rt.settings = self.rt.settings.model_copy(update={"csi": own})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


EVERYTHING = 900_000
"""MB: more than any disk here has free."""


def test_a_sound_database_is_good_news(home: Home) -> None:
    assert check_database(home.rt.settings).level == "ok"


def test_a_schema_that_does_not_fit_is_found_with_a_remedy(home: Home) -> None:
    home.sql("DELETE FROM schema_migration WHERE name = '0003_delivery'")
    found = check_database(home.rt.settings)
    assert (found.level, "lacks 0003_delivery" in found.text, "csi db migrate" in found.remedy) == ("fail", True, True)
    home.sql("INSERT INTO schema_migration (name, applied) VALUES ('9999_future', '2030-01-01')")
    found = check_database(home.rt.settings)
    assert (found.level, "install the newer version" in found.remedy) == ("fail", True)


def test_a_command_names_the_path_of_a_damaged_database_and_what_to_do(home: Home) -> None:
    home.damage()
    env = {"CSI_CONFIG_PATH": str(home.folder / "config.yaml"), "CSI_STATE_DIR": str(home.folder / "state")}
    result = CliRunner().invoke(cli, ["status"], env=env)
    said = str(result.exception)
    assert f"the database {home.path} cannot be used: file is not a database" in said
    assert "restore the last backup" in said


def test_a_damaged_file_is_found_with_a_remedy(home: Home) -> None:
    home.damage()
    found = check_database(home.rt.settings)
    assert (found.level, "put the last backup in its place" in found.remedy) == ("fail", True)


def test_a_file_without_tables_is_not_a_schema_to_migrate(home: Home) -> None:
    db.close_writer()
    for file in home.path.parent.glob("csi.db*"):
        file.unlink()
    home.path.touch()
    found = check_database(home.rt.settings)
    assert (found.level, "its file was removed" in found.text, "csi db restore" in found.remedy) == ("fail", True, True)


def test_a_database_that_is_not_there_is_not_made_by_looking(home: Home) -> None:
    for file in home.path.parent.glob("csi.db*"):
        file.unlink()
    assert "there is no database" in check_database(home.rt.settings).text
    assert not home.path.exists()


def test_a_deleted_write_ahead_log_is_healed_by_the_next_write(home: Home) -> None:
    with db.connection():
        for number in range(3):
            with db.writing():
                heartbeats.write(f"before-{number}", 1.0, 1.0)
        log = Path(f"{home.path}-wal")
        log.unlink()
        with db.writing():
            heartbeats.write("after", 2.0, 1.0)
    assert log.stat().st_size > 0
    with closing(sqlite3.connect(home.path)) as other:
        names = {name for (name,) in other.execute("SELECT name FROM heartbeats")}
        assert {"before-0", "before-1", "before-2", "after"} <= names
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# ── /readyz ─────────────────────────────────────────────────────────────────────────────────────────────


async def readyz(home: Home, open_runtime: Any = None) -> tuple[int, dict[str, Any]]:
    app = create_app(open_runtime or (lambda: home.rt))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        answer = await client.get("/readyz")
        return answer.status_code, answer.json()


@pytest.mark.asyncio
async def test_readyz_is_good_and_shows_the_room(home: Home) -> None:
    with db.connection():
        heartbeats.write("worker", home.rt.now(), home.rt.now())
    status, body = await readyz(home)
    assert (status, body["reasons"], body["database"]["ok"], body["database"]["note"]) == (200, [], True, None)
    assert body["database"]["free_mb"] > 0


@pytest.mark.asyncio
async def test_readyz_says_that_the_disk_is_nearly_full_before_it_is(home: Home) -> None:
    home.wants_free(EVERYTHING)
    status, body = await readyz(home)
    assert (status, body["database"]["ok"]) == (503, False)
    assert any(reason.startswith("the disk is nearly full (") for reason in body["reasons"])


@pytest.mark.asyncio
async def test_readyz_names_the_lock_when_the_worker_has_fallen_silent(home: Home) -> None:
    with db.connection():
        heartbeats.write("worker", home.rt.now() - 31, home.rt.now() - 100)
    with home.locked():
        status, body = await readyz(home)
    assert (status, database_faults.LOCKED.text in body["reasons"]) == (503, True)


@pytest.mark.asyncio
async def test_readyz_names_a_long_reader_without_being_unready_for_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LONG_LOG", -1)
    with db.connection():
        heartbeats.write("worker", home.rt.now(), home.rt.now())
    status, body = await readyz(home)
    assert (status, "another process keeps reading" in body["database"]["note"]) == (200, True)


@pytest.mark.asyncio
@pytest.mark.parametrize("harm", ["newer", "damaged"])
async def test_readyz_names_what_keeps_the_sidecar_from_opening(home: Home, harm: str) -> None:
    if harm == "damaged":
        home.damage()
    else:
        home.sql("INSERT INTO schema_migration (name, applied) VALUES ('9999_future', '2030-01-01')")
    status, body = await readyz(home, home.open)
    expected = database_faults.NEWER if harm == "newer" else database_faults.DAMAGED
    assert (status, body["reasons"]) == (503, [f"{expected.text}: {expected.remedy}"])
    assert str(home.folder) not in str(body)


# ── the walk ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def said() -> Iterator[list[tuple[str, str]]]:
    lines: list[tuple[str, str]] = []
    sink = logger.add(lambda message: lines.append((message.record["level"].name, message.record["message"])))
    yield lines
    logger.remove(sink)


def test_polling_stops_before_the_disk_is_full_and_delivery_does_not(tmp_path: Path, said) -> None:
    with ledger_pipeline(tmp_path, 503, lists=2) as s:
        s.publish(2, ref=-1)
        s.run()
        settings, roomy = s.rt.settings, s.rt.settings.csi.min_free_mb
        s.rt.settings = settings.model_copy(update={"csi": settings.csi.model_copy(update={"min_free_mb": EVERYTHING})})
        s.publish(2, ref=-1)
        reads = s.shelf.reads
        s.wait(60, step=5)
        assert (s.shelf.reads - reads, s.states()) == (0, {"delivered": 2})
        s.rt.settings = settings
        s.wait(30, step=5)
        assert (roomy, s.states()) == (64, {"delivered": 4})
    sentence = "the disk is nearly full; polling is paused until there is room"
    assert said.count(("WARNING", sentence)) == 1
    assert said.count(("INFO", "disk has room again; polling resumes")) == 1


def test_a_log_that_grows_is_said_once_and_so_is_its_end(home: Home, said, monkeypatch: pytest.MonkeyPatch) -> None:
    with db.connection():
        for limit in (-1, -1, disk.LONG_LOG, disk.LONG_LOG):
            monkeypatch.setattr(disk, "LONG_LOG", limit)
            maintenance.write_heartbeat(home.rt, home.rt.now())
    assert [text for _, text in said if "log" in text] == [
        "another process reads the database for a long time; its write-ahead log grows",
        "write-ahead log is back to its usual size",
    ]


def test_a_long_log_is_emptied_unless_somebody_reads(home: Home, said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_guard, "SHORTEN_ABOVE", 0)
    monkeypatch.setattr(disk, "LONG_LOG", 0)
    with db.connection(), closing(sqlite3.connect(home.path, isolation_level=None)) as stranger:
        heartbeats.write("worker", home.rt.now(), 0.0)
        stranger.execute("BEGIN")
        stranger.execute("SELECT * FROM heartbeats").fetchall()
        maintenance.write_heartbeat(home.rt, home.rt.now())
        rescue.rescue(home.rt)
        under_a_snapshot = disk.measure().log
        stranger.execute("ROLLBACK")
        rescue.rescue(home.rt)
        disk_guard.watch_log(home.rt)
        assert (under_a_snapshot > 0, disk.measure().log) == (True, 0)
    assert [level for level, text in said if "log" in text] == ["WARNING", "INFO"]


def test_on_postgresql_the_room_is_the_servers_business(tmp_path: Path, postgres_url: str) -> None:
    with ledger_pipeline(tmp_path, accept, database=postgres_url) as s:
        assert (disk.measure(), disk_guard.has_room(s.rt), storage_status(s.rt, worker_status(s.rt))) == (
            None,
            True,
            StorageStatus(),
        )
        assert check_database(s.rt.settings).level == "ok"
        assert schedule.plan(s.rt, horizon=0) != []
