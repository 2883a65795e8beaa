"""`csi db backup`: a copy that was checked, and only as many as are wanted."""

import sqlite3

import pytest
from click.testing import CliRunner

from csi.cli.db import db_group
from csi.errors import StoreError
from csi.store import backups, db
from csi.store.backups import Backup
from csi.worker_lock import hold_worker_lock


@pytest.fixture
def box(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text(f"csi: {{state_dir: {tmp_path / 'state'}}}\n")
    monkeypatch.setenv("CSI_CONFIG_PATH", str(tmp_path / "config.yaml"))
    assert run("migrate").exit_code == 0
    (tmp_path / "copies").mkdir()
    yield tmp_path
    db.database.close()


def run(*arguments):
    return CliRunner().invoke(db_group, [str(argument) for argument in arguments])


def test_a_copy_in_a_directory_is_named_by_the_time_and_private(box):
    done = run("backup", box / "copies")
    (copy,) = (box / "copies").iterdir()
    assert done.output == f"wrote {copy} ({copy.stat().st_size:,} bytes), checked\n"
    assert copy.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(copy) as opened:
        assert opened.execute("SELECT count(*) FROM events").fetchone() == (0,)
    opened.close()


def test_a_copy_is_private_while_it_is_written(box, monkeypatch):
    seen = []

    def watched(sql, *arguments):
        if "VACUUM" in sql:
            seen.append((box / "one.db").stat().st_mode & 0o777)
        return execute(sql, *arguments)

    execute = db.database.obj.execute_sql
    monkeypatch.setattr(type(db.database.obj), "execute_sql", lambda _, *rest: watched(*rest))
    with monkeypatch.context():
        db.backup(box / "one.db")
    assert seen == [0o600]


def test_a_lock_file_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "worker.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match="cannot be opened"):
        hold_worker_lock(tmp_path)
    assert (tmp_path / "victim").read_text() == "kept"


def test_only_the_newest_are_kept_and_nothing_of_others_is_touched(box):
    for day in ("20260101", "20260102", "20260103"):
        (box / "copies" / f"csi-{day}T030000Z.db").touch()
    for name in ("before-upgrade.db", "csi-notes.txt"):
        (box / "copies" / name).touch()
    run("backup", box / "copies", "--keep", "2")
    left = sorted(path.name for path in (box / "copies").iterdir())
    assert left[0] == "before-upgrade.db"
    assert left[1] == "csi-20260103T030000Z.db"
    assert len(left) == 4


def test_keep_needs_a_directory(box):
    done = run("backup", box / "one.db", "--keep", "2")
    assert (done.exit_code, "directory" in done.output) == (2, True)


def test_a_copy_that_is_damaged_is_removed_and_said(box, monkeypatch):
    whole = db.database.execute_sql

    def spoiled(sql, params=None, *rest):
        done = whole(sql, params, *rest)
        if sql.startswith("VACUUM INTO"):
            with open(params[0], "r+b") as file:
                file.seek(4096)
                file.write(b"\xff" * 4096)
        return done

    monkeypatch.setattr(db.database.obj, "execute_sql", spoiled)
    with pytest.raises(StoreError, match="damaged"):
        db.backup(box / "copies" / "one.db")
    assert list((box / "copies").iterdir()) == []


def test_each_backup_is_recorded_with_size_and_duration(box):
    run("backup", box / "copies")
    good = backups.record().last_good
    (copy,) = (box / "copies").iterdir()
    assert (good.target, good.bytes, good.error) == (str(copy), copy.stat().st_size, None)
    assert good.seconds > 0


def test_a_failure_is_recorded_and_over_with_the_next_good_one(box):
    done = run("backup", box / "nowhere" / "one.db")
    assert isinstance(done.exception, StoreError)
    run("backup", box / "nowhere" / "one.db")
    found = backups.record()
    assert "No such file" in found.last_failed.error
    assert found.failing_since < found.last_failed.at
    run("backup", box / "copies")
    assert backups.record().last_failed is None


def test_a_backup_on_a_schema_that_is_not_up_to_date_is_made_and_not_recorded(box):
    db.run("DROP TABLE backups")
    db.run("DELETE FROM schema_migration WHERE name = '0019_backups_and_removals'")
    assert run("backup", box / "copies").exit_code == 0


def test_a_backup_that_was_killed_is_recorded_by_the_unit_and_one_that_failed_is_not_recorded_twice(box):
    assert run("backup-failed", "csi-backup.service failed: timeout").output == "recorded\n"
    assert backups.record().last_failed.error == "csi-backup.service failed: timeout"
    run("backup", box / "nowhere" / "one.db")
    assert "already" in run("backup-failed", "csi-backup.service failed: exit-code").output
    assert "No such file" in backups.record().last_failed.error


def test_the_newest_good_backup_is_kept_however_many_fail_after_it(box):
    backups.note_expected(5.0)
    backups.note_expected(6.0)
    backups.note(Backup(10.0, "/b/a.db", 1.0, 9, None))
    for second in range(250):
        backups.note(Backup(20.0 + second, "/b/a.db", 1.0, None, "no"))
    found = backups.record()
    assert (found.known_since, found.last_good.at, found.last_failed.at) == (5.0, 10.0, 269.0)
    assert db.number("SELECT COUNT(*) FROM backups") <= backups.KEPT + 2
