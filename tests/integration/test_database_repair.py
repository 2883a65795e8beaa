"""A damaged SQLite file: found by a check, refused at the start, reported by health at once, repaired by a command."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from csi.cli.main import cli
from csi.doctor.local_checks import check_database
from csi.errors import StoreError
from csi.runtime import Runtime, open_runtime
from csi.status.facts import gather
from csi.status.storage import storage_status
from csi.status.storage_problems import problems
from csi.store import damage, db

CONFIG = """
csi: {instance_id: csi-test}
delivery: {ua_endpoint: "http://127.0.0.1:9/hook"}
sources: {youtube_channel_rss: {enabled: true, watchlist: [{channel_id: UC0000000000000000000001}]}}
"""
PAGE = 4096
KEYS = 3_000


class Home:
    """An installation whose database has many rows."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.yaml").write_text(CONFIG)
        self.env = {
            "CSI_CONFIG_PATH": str(folder / "config.yaml"),
            "CSI_STATE_DIR": str(folder / "state"),
            "CSI_UA_SHARED_SECRET": "3f9a" * 16,
        }
        self.path = folder / "state" / "csi.db"
        self.rt = self.open()
        with db.connection(), db.writing():
            for number in range(KEYS):
                row = (f"key-{number:06}", "2099-01-01T00:00:00Z", "first_poll", 1.0)
                db.run("INSERT INTO dedupe_keys (key, expires_at, reason, first_seen_at) VALUES (?, ?, ?, ?)", *row)
        db.close_writer()
        self.sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def open(self) -> Runtime:
        return open_runtime(Path(self.env["CSI_CONFIG_PATH"]), self.env, refuse_damaged=True)

    def sql(self, text: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(text).fetchall()

    def damage(self) -> None:
        """Overwrite one leaf page of the table of dedupe keys, as a failing disk does."""
        pages = self.path.read_bytes()
        found = [
            at
            for at in range(PAGE, len(pages), PAGE)
            if pages[at] == 0x0D and b"key-001500" in pages[at : at + PAGE]  # 0x0D: a leaf of a table
        ]
        with self.path.open("r+b") as file:
            file.seek(found[0])
            file.write(os.urandom(PAGE))

    def csi(self, *arguments: str):
        return CliRunner().invoke(cli, arguments, env=self.env)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_worker_does_not_start_on_a_damaged_file(home):
    assert damage.find_damage(home.path) is None
    home.damage()
    with pytest.raises(StoreError, match=r"is damaged: .*csi db repair"):
        home.open()
    assert damage.damage_file(home.path.parent).stat().st_mode & 0o777 == 0o600


def test_a_file_of_another_program_is_refused_and_its_directory_stays_as_it_was(home, tmp_path):
    """A wrong setting must not leave files of CSI beside it."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "Procfile").write_text("worker: something else entirely\n" * 60)
    env = home.env | {"CSI_DB_PATH": str(other / "Procfile")}
    with pytest.raises(StoreError, match="is damaged: file is not a database"):
        open_runtime(Path(env["CSI_CONFIG_PATH"]), env, refuse_damaged=True)
    assert [path.name for path in other.iterdir()] == ["Procfile"]
    assert damage.damage_file(home.path.parent).exists()


def test_a_link_in_the_place_of_the_note_is_not_followed(home, tmp_path):
    target = tmp_path / "precious"
    target.write_text("kept")
    damage.damage_file(home.path.parent).symlink_to(target)
    damage.note_damage(home.path.parent, "malformed")
    assert target.read_text() == "kept"


def test_doctor_finds_damage_that_no_statement_has_met(home):
    home.damage()
    found = check_database(home.rt.settings)
    assert (found.level, "csi db repair" in (found.remedy or "")) == ("fail", True)
    assert "malformed" in home.csi("db", "status").output or "damage" in home.csi("db", "status").output


def test_damage_that_the_worker_met_is_reported_by_the_next_health_check(home):
    with db.reading():
        facts = gather(home.rt)
        assert storage_status(home.rt, facts.worker).fault is None
        damage.note_damage(home.path.parent, "database disk image is malformed")
        facts = gather(home.rt)
        (problem,) = problems(facts)
    assert (problem.id, "ready" in problem.fails, "is damaged" in problem.what_and_why) == ("storage", True, True)


def test_a_sound_database_is_not_changed_by_repair(home):
    before = home.sql("SELECT count(*) FROM dedupe_keys")
    done = home.csi("db", "repair", "--yes")
    assert (done.exit_code, "no damage found" in done.output) == (0, True)
    assert home.sql("SELECT count(*) FROM dedupe_keys") == before
    assert not list(home.path.parent.glob("*damaged*"))


def test_repair_saves_what_can_be_read_and_reads_the_sources_again(home):
    home.sql("INSERT INTO outbox (event_pk, destination, tier, watch_id, seq, due_at) VALUES (77,'ua','urgent',1,1,1)")
    home.sql("UPDATE watches SET etag = 'W/1', next_poll_at = 4e9, wake_at = 4e9")
    home.damage()
    tried = home.csi("db", "repair", "--dry-run", "--json")
    assert tried.exception is None, tried.exception
    assert json.loads(tried.stdout)["kept"] is None
    assert damage.find_damage(home.path) is not None
    repaired = home.csi("db", "repair", "--yes", "--json")
    assert repaired.exception is None, repaired.exception
    done = json.loads(repaired.stdout)
    keys = next(one for one in done["tables"] if one["table"] == "dedupe_keys")
    (saved,) = home.sql("SELECT count(*) FROM dedupe_keys")[0]
    assert saved == keys["rows"] == KEYS - keys["lost"]
    assert 0 < keys["lost"] < 200
    assert len(keys["gaps"]) == 1
    assert home.sql("SELECT count(*) FROM outbox WHERE event_pk = 77") == [(0,)]
    assert home.sql("SELECT DISTINCT etag, next_poll_at FROM watches") in ([(None, 0.0)], [])
    assert Path(done["kept"]).exists()
    assert home.path.stat().st_mode & 0o777 == 0o600
    home.open()
    assert damage.find_damage(home.path) is None


def test_repair_needs_a_list_of_tables(home):
    home.path.write_bytes(b"not a database at all " * 500)
    done = home.csi("db", "repair", "--yes")
    assert isinstance(done.exception, StoreError)
    assert "restore the last backup" in str(done.exception)
    assert not home.path.with_name("csi.db.repaired").exists()
