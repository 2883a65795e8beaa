"""`csi db backup`: a copy that was checked, and only as many as are wanted."""

import sqlite3

import pytest
from click.testing import CliRunner

from csi.cli.db import db_group
from csi.errors import StoreError
from csi.store import db


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
