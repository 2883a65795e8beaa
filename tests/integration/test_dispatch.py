"""Wake-ups as Huey tasks: at their very time, not at the second before."""

import sqlite3
import subprocess
import sys

import pytest

from csi.adapters.base import RawEvent
from csi.pipeline.new_items import with_keys
from tests.rigs.processes import ROOT

CODE = """
import huey_config
from csi.pipeline.wake import Wake
from tasks.dispatch import dispatch
dispatch([Wake("poll", 1, at=4102444800.75)])
[task] = huey_config.huey.scheduled()
print(task.eta.isoformat())
"""


@pytest.fixture
def env(tmp_path):
    (tmp_path / "config.yaml").write_text(f"csi: {{state_dir: {tmp_path}/state}}\n")
    return {
        "CSI_CONFIG_PATH": str(tmp_path / "config.yaml"),
        "CSI_UA_ENDPOINT": "http://127.0.0.1:9/",
        "CSI_UA_SHARED_SECRET": "a-secret-of-some-length",
        "PYTHONPATH": str(ROOT),
    }


def test_a_wake_up_keeps_the_fraction_of_its_second(env):
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "2100-01-01T00:00:00.750000", done.stderr


class Keyless:
    newest_first = False

    def item_key(self, raw):
        raise ValueError("no key")


def test_an_item_without_a_key_is_the_same_one_when_its_numbers_change():
    first = {"id": "yt:video:../x", "title": "Odd", "updated": "2026-01-01", "views": 1}
    later = first | {"updated": "2026-01-02", "views": 2}
    seen = [RawEvent("feeds", "upload", payload, "2026-01-01T00:00:00Z") for payload in (first, later)]
    assert len(with_keys(Keyless(), seen)) == 1
    other = RawEvent("feeds", "upload", first | {"id": "other"}, "2026-01-01T00:00:00Z")
    assert len(with_keys(Keyless(), [*seen, other])) == 2


def test_a_database_in_trouble_is_a_sentence_and_not_a_traceback(env, tmp_path):
    csi = [sys.executable, "-m", "csi.cli.main"]
    subprocess.run([*csi, "db", "migrate"], env=env, check=True, capture_output=True, timeout=60)
    (tmp_path / "state" / "csi.db").write_bytes(b"no database" * 1000)
    done = subprocess.run([*csi, "sources", "list"], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (7, False), done.stderr


def test_any_other_error_shows_where_it_was(monkeypatch):
    from csi.cli import main

    def broken(**_):
        raise sqlite3.ProgrammingError("a bug")

    monkeypatch.setattr(main, "cli", broken)
    with pytest.raises(sqlite3.ProgrammingError):
        main.run()
