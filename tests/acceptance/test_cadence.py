"""Huey carries the cadence of polls and flushes; the maintenance loop only restores what was lost."""

import sqlite3
import time
from itertools import pairwise

import pytest

from tests.rigs.processes import Installation, installation

pytestmark = pytest.mark.slow


def configure(box: Installation, *, interval: float, delay: float) -> None:
    """Playlists of the standard tier, read every `interval` seconds; batches leave after `delay` seconds."""

    def edit(config):
        config["sources"]["youtube_playlist"] |= {"poll_interval_seconds": interval, "priority": "standard"}
        del config["sources"]["youtube_channel_rss"]
        tiers = {"standard": {"batch_size": 100, "max_delay_seconds": delay}}
        config["delivery"] = {"priority_behavior": tiers}

    box.change(edit)


def reads(box: Installation) -> list[tuple[int, float]]:
    return box.rows("SELECT id, last_poll_at FROM watches WHERE last_poll_at IS NOT NULL")


def test_without_the_maintenance_loop_polls_and_flushes_are_on_time(tmp_path):
    with installation(tmp_path, playlists=3) as box:
        configure(box, interval=10, delay=5)
        box.yt.add(box.yt.playlists[0], "At the start")
        box.start_doomed("no-maintenance")
        box.wait_for(lambda: len(reads(box)) == 3, 30)
        seen: dict[int, set[float]] = {watch_id: set() for watch_id, _ in reads(box)}
        end = time.monotonic() + 34
        while time.monotonic() < end:
            for watch_id, at in reads(box):
                seen[watch_id].add(at)
            time.sleep(0.2)
        box.yt.add(box.yt.playlists[1], "Later")
        box.wait_for_delivered(2, 20)
        waits = [wait for (wait,) in box.rows("SELECT delivered_at - first_seen_at FROM events")]
    gaps = [after - before for times in seen.values() for before, after in pairwise(sorted(times))]
    print(f"gaps {min(gaps):.2f} to {max(gaps):.2f} s, flushed after {[round(wait, 2) for wait in waits]} s")
    assert len(gaps) >= 9
    assert max(gaps) < 12, "10 s, and the time that a read takes on a busy machine"
    assert all(5 <= wait < 7 for wait in waits)


def test_a_deleted_queue_is_restored_within_ten_seconds(tmp_path):
    with installation(tmp_path, playlists=3) as box:
        configure(box, interval=3, delay=3)
        box.start()
        box.wait_for(lambda: len(reads(box)) == 3, 30)
        box.yt.add(box.yt.playlists[0], "Its flush is scheduled when the queue is deleted")
        box.wait_for(lambda: box.rows("SELECT 1 FROM outbox WHERE state = 'pending'"), 20)
        for path in box.state.glob("queue.db*"):
            path.unlink()
        deleted_at, began = time.time(), time.monotonic()
        box.wait_for_delivered(1, 10)
        box.wait_for(lambda: all(at > deleted_at for _, at in reads(box)), 10)
        box.wait_for(lambda: scheduled(box) >= 3, 10)
        restored = time.monotonic() - began
    print(f"restored after {restored:.1f} s")
    assert restored < 10


def scheduled(box: Installation) -> int:
    connection = sqlite3.connect(f"file:{box.state / 'queue.db'}?mode=ro", uri=True, timeout=10)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM schedule").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # the new file is being made
    finally:
        connection.close()
