"""Workers that start at the same moment on one database."""

import sqlite3
import subprocess
import sys
from contextlib import closing

from csi.store import db, watches
from csi.store.models import Watch

WANTED = watches.WantedWatch("youtube_channel_rss", "UCxxx", None, None, (), "standard", 300.0, "mark_seen")


def test_a_watch_that_another_worker_has_just_made_is_no_error(store, monkeypatch):
    watches.sync([WANTED], now=100.0)
    monkeypatch.setattr(Watch, "get_or_none", lambda **_: None)  # looked before the other one had committed
    watches.sync([WANTED], now=101.0)
    (watch,) = Watch.select()
    assert (watch.ref, watch.state, watch.next_poll_at) == ("UCxxx", "active", 100.0)


LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT COUNT(*) FROM watches").fetchone()
connection.close()
"""


def test_opening_the_database_again_leaves_the_locks_of_open_connections_alone(tmp_path):
    """Without its lock, the log that a connection still reads is deleted by the next process that looks in."""
    path = tmp_path / "csi.db"
    db.open_database(str(path))
    db.migrate()
    with closing(sqlite3.connect(path)) as ours:
        ours.execute("SELECT COUNT(*) FROM watches").fetchone()
        db.open_database(str(path))
        subprocess.run([sys.executable, "-c", LOOK, str(path)], check=True, timeout=30)
        assert path.with_name("csi.db-wal").exists()
