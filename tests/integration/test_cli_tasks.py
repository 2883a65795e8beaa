"""`csi tasks`: messages and the rows they serve, read without touching them."""

import os
import re
import sqlite3
from pathlib import Path

import pytest

from csi.errors import StoreError
from csi.store import batches, heartbeats, inbox
from csi.store.models import Watch
from tasks import queue_inspection
from tests.rigs.operator import filled_operator_rig, operator_rig, queue_message


@pytest.fixture
def at_work(tmp_path):
    with filled_operator_rig(tmp_path) as built:
        yield built


def queue_file(built) -> Path:
    return Path(built.rt.settings.csi.queue_url)


def test_running_pending_and_scheduled_with_their_rows(at_work):
    found = at_work.json("tasks", "list")
    shown = {(one["state"], one["task"]): one for one in found["tasks"]}
    assert set(shown) == {
        ("running", "poll_watch"),
        ("running", "deliver_batch"),
        ("pending", "poll_watch"),
        ("scheduled", "deliver_batch"),
    }
    assert shown["running", "poll_watch"]["row"] == "youtube_playlist PLone"
    assert shown["running", "poll_watch"]["holder"] == str(os.getpid())
    assert shown["pending", "poll_watch"]["why"] == "waiting for a free thread"
    assert shown["scheduled", "deliver_batch"]["why"].endswith(" is being sent")
    assert "to default, 1 events (sending)" in shown["scheduled", "deliver_batch"]["row"]
    assert found["total"] == 4


def test_a_lease_that_ran_out_is_said_to_be_a_dead_holders(at_work):
    Watch.update(lease_until=at_work.now - 5).where(Watch.lease_token.is_null(False)).execute()
    (one,) = [
        one for one in at_work.json("tasks", "list", "--state", "running")["tasks"] if one["task"] == "poll_watch"
    ]
    assert "its process died or is stuck" in one["why"]


def test_every_kind_of_task_names_its_row(at_work):
    watch = Watch.get()
    (item,) = inbox.put(watch, [inbox.NewItem("a:key", "x", "2026-02-22T12:00:00Z", {})], at_work.now)
    queue_message(at_work, "tasks.ingest.ingest_item", item)
    queue_message(at_work, "tasks.ingest.ingest_item", 999)
    queue_message(at_work, "tasks.flush.flush_tier", "default/standard")
    queue_message(at_work, "tasks.deliver.probe_receiver", "default")
    queue_message(at_work, "tasks.poll.poll_watch", 999)
    queue_message(at_work, "tasks.tick.tick", "")
    rows = {
        (one["task"], one["key"]): one["row"] for one in at_work.json("tasks", "list", "--state", "pending")["tasks"]
    }
    assert rows["ingest_item", str(item)] == "a:key"
    assert rows["ingest_item", "999"] == "the item is an event by now"
    assert rows["flush_tier", "default/standard"] == "1 pending events in default/standard"
    assert rows["probe_receiver", "default"] == "destination default"
    assert rows["poll_watch", "999"] == "the watch was removed"
    assert rows["tick", ""] is None


def test_one_task_by_the_beginning_of_its_id(at_work):
    assert at_work.json("tasks", "show", "poll_watch-")["state"] == "pending"
    nothing = at_work.call("tasks", "show", "zzz")
    assert (nothing.exit_code, "no task with the id" in nothing.stderr) == (1, True)
    queue_message(at_work, "tasks.poll.poll_watch", 2)
    assert "2 tasks begin with" in at_work.call("tasks", "show", "poll").stderr


def test_nothing_moves_without_a_worker_and_each_task_says_so(at_work):
    heartbeats.write("worker", at_work.now - 100, at_work.now - 200)
    queued = at_work.json("tasks", "list", "--state", "pending")["tasks"]
    assert queued[0]["why"].startswith("the worker's last heartbeat was 10")
    assert at_work.json("tasks", "stats")["worker_alive"] is False


def test_a_batch_that_waits_for_its_next_attempt_is_explained(at_work):
    (number,) = batches.fetch("SELECT id FROM batches WHERE state = 'sending'")[0]
    later = at_work.now + 20
    batches.run("UPDATE batches SET state = 'ready', attempts = 1, next_attempt_at = ? WHERE id = ?", later, number)
    (one,) = [one for one in at_work.json("tasks", "list")["waiting"] if one["step"] == "deliver"]
    assert re.fullmatch(r"attempt 1 of 3 failed; batch_\w+ is retried", one["why"])
    assert one["until"] is not None


def test_purge_asks_first_and_then_empties_both_queue_and_schedule(at_work):
    assert at_work.json("tasks", "purge", "--dry-run") == {"tasks": 2, "purged": 0, "dry_run": True}
    assert at_work.call("tasks", "purge").exit_code == 2
    assert len(queue_inspection.inspect(at_work.rt.settings).messages) == 2
    assert at_work.json("tasks", "purge", "--yes")["purged"] == 2
    assert queue_inspection.inspect(at_work.rt.settings).messages == ()


def test_looking_makes_no_queue_where_none_is(tmp_path):
    with operator_rig(tmp_path) as built:
        assert built.json("tasks", "list")["tasks"] == []
        assert built.json("tasks", "purge", "--yes")["purged"] == 0
        assert not queue_file(built).exists()


def test_messages_of_strangers_are_counted_and_not_opened(at_work):
    with sqlite3.connect(queue_file(at_work)) as file:
        file.execute("INSERT INTO task (queue, data, priority) VALUES ('csi', ?, 0)", (b"cos\nsystem\n(S'x'\ntR.",))
    file.close()
    assert at_work.json("tasks", "stats")["unreadable"] == 1
    (finding,) = queue_inspection.examine(at_work.rt.settings)
    assert (finding.level, "cannot be verified: another key" in finding.text) == ("warn", True)


def test_a_broken_queue_file_is_an_error_in_words_and_stays_where_it_is(at_work):
    path = queue_file(at_work)
    path.write_bytes(b"this is no database" * 100)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    result = at_work.call("tasks", "list")
    assert isinstance(result.exception, StoreError)
    assert "cannot be read" in str(result.exception)
    assert path.read_bytes().startswith(b"this is no database")


def test_other_servers_are_asked_through_huey_itself(tmp_path, postgres_url):
    with operator_rig(tmp_path) as built:
        built.env["CSI_QUEUE_URL"] = postgres_url
        built.rt.settings.csi.__dict__["queue"] = postgres_url
        queue_message(built, "tasks.poll.poll_watch", 1)
        assert [one["task"] for one in built.json("tasks", "list")["tasks"]] == ["poll_watch"]
        assert built.json("tasks", "purge", "--yes")["purged"] == 1
        built.env["CSI_QUEUE_URL"] = "redis://user:the-password@127.0.0.1:1/0"
        result = built.call("tasks", "stats")
    assert isinstance(result.exception, StoreError)
    assert "the-password" not in str(result.exception)
