"""Forged messages in a queue file and in a real Redis: neither the worker nor a command opens one."""

import subprocess
import sys

import pytest

from csi.errors import ConfigError, MissingSetting
from csi.processing.settings import ProcessingSettings
from csi.runtime import load_settings
from tasks import queue_inspection
from tasks.queue import create_huey, create_processing_huey, open_storage
from tests.fakes.forged import forged_messages
from tests.rigs.operator import operator_rig, queue_message
from tests.rigs.processes import ROOT

DEQUEUE = """
import huey_config
from tasks import sqlite_queue
sqlite_queue.WAIT_SECONDS = 0.1
print(huey_config.huey.dequeue(), huey_config.huey.read_schedule(), huey_config.huey.pending_count())
"""
NAMED = {"destinations": {"other": {"endpoint": "http://127.0.0.1:9/", "secret_env": "OTHER_SECRET"}}}


def put_forged(url, file) -> int:
    import datetime

    storage, messages = open_storage(url), forged_messages(file)
    for data in messages:
        storage.enqueue(data, 90)
        storage.add_to_schedule(data + b" ", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        storage.add_to_schedule(data, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    if "://" not in url:
        # SQLite keeps any type in any column; bytes() of this number would take 300 GB.
        insert = "insert into task (queue, data, priority) values ('csi', ?, ?)"
        for row in (("text", 90), (300_000_000_000, 90), (messages[0], "high"), (0.5, 1e308)):
            storage.sql(insert, row, commit=True)
        storage.sql("insert into schedule (queue, data, timestamp) values ('csi', 'text', 1)", commit=True)
    size = storage.queue_size() + storage.schedule_size()
    storage.close()
    return size


@pytest.fixture(params=["sqlite", "redis"])
def forged(request, tmp_path):
    """An installation that has named destinations only, and no secret for its queue but its own."""
    with operator_rig(tmp_path, delivery=NAMED) as built:
        for name in ("CSI_UA_ENDPOINT", "CSI_UA_SHARED_SECRET"):
            built.env[name] = None
        built.env["OTHER_SECRET"] = "the-secret-of-the-other"
        if request.param == "redis":
            built.env |= {
                "CSI_QUEUE_URL": request.getfixturevalue("redis_url"),
                "CSI_QUEUE_SECRET": "the-secret-of-the-queue",
            }
        built.url = settings(built).csi.queue_url
        built.trap = tmp_path / "executed"
        yield built


def settings(built):
    return load_settings(built.config, {name: value for name, value in built.env.items() if value is not None})


def test_a_worker_drops_them_and_takes_its_own(forged):
    put_forged(forged.url, forged.trap)
    create_huey(settings(forged)).storage.close()  # a SQLite queue has its key from here on
    env = {name: value for name, value in forged.env.items() if value is not None} | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", DEQUEUE]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "None [] 0", done.stderr
    assert not forged.trap.exists()


@pytest.mark.parametrize("command", [("tasks", "list"), ("tasks", "stats"), ("doctor", "--offline")])
@pytest.mark.parametrize("shell", ["with the key", "without the key"])
def test_commands_count_them_and_open_none(forged, command, shell):
    number = put_forged(forged.url, forged.trap)
    if shell == "with the key":
        create_huey(settings(forged)).storage.close()
    else:
        forged.env["CSI_QUEUE_SECRET"] = None
    result = forged.call(*command)
    assert f"{number} messages cannot be verified" in result.output, repr(result.exception)
    assert ("neither CSI_QUEUE_SECRET nor the worker's key" in result.output) == (shell == "without the key")
    assert not forged.trap.exists()
    assert forged.json("tasks", "stats")["unreadable"] == number
    assert forged.json("tasks", "list")["has_key"] is (shell == "with the key")


def test_a_shell_without_the_secret_shows_no_content_and_may_empty_the_queue(tmp_path, redis_url):
    with operator_rig(tmp_path) as built:
        built.env["CSI_QUEUE_URL"] = redis_url
        built.rt.settings.csi.__dict__["queue"] = redis_url
        queue_message(built, "tasks.poll.poll_watch", 1)  # signed with the shared secret, as version 1.0.0 did
        assert [one["task"] for one in built.json("tasks", "list")["tasks"]] == ["poll_watch"]
        built.env["CSI_UA_SHARED_SECRET"] = None
        assert built.json("tasks", "list")["tasks"] == []
        assert built.json("tasks", "stats")["unreadable"] == 1
        assert built.json("tasks", "purge", "--yes")["purged"] == 1


def test_a_command_creates_no_key(forged):
    put_forged(forged.url, forged.trap)
    forged.call("tasks", "list")
    forged.call("doctor", "--offline")
    assert forged.json("tasks", "purge", "--yes")["purged"] > 0
    assert not (settings(forged).csi.state_dir / "queue.key").exists()


def test_the_key_file_is_enough_for_a_shell_without_secrets(tmp_path):
    with operator_rig(tmp_path) as built:
        queue_message(built, "tasks.poll.poll_watch", 1)
        built.env["CSI_UA_SHARED_SECRET"] = None
        assert [one["task"] for one in built.json("tasks", "list")["tasks"]] == ["poll_watch"]
        assert queue_inspection.inspect(settings(built)).has_key


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/csi"])
def test_a_queue_on_a_server_needs_a_secret(forged, url):
    forged.env |= {"CSI_QUEUE_URL": url, "CSI_QUEUE_SECRET": None}
    with pytest.raises(MissingSetting, match="CSI_QUEUE_SECRET") as refused:
        create_huey(settings(forged))
    assert refused.value.exit_code == 4
    run = forged.call("run")
    assert isinstance(run.exception, MissingSetting)
    assert "CSI_QUEUE_SECRET" in forged.call("doctor", "--offline").output


@pytest.mark.parametrize("url", ["redis://192.0.2.7:6379/0", "rediss://queue.internal/0", "redis://user@192.0.2.7/0"])
def test_a_redis_elsewhere_needs_a_password_or_a_setting(tmp_path, url):
    with operator_rig(tmp_path) as built:
        built.env["CSI_QUEUE_URL"] = url
        with pytest.raises(ConfigError, match="allow_unprotected_queue"):
            create_huey(settings(built))
        assert "without a password" in built.call("doctor", "--offline").output
    with operator_rig(tmp_path, csi={"allow_unprotected_queue": True}) as built:
        built.env["CSI_QUEUE_URL"] = url
        create_huey(settings(built))


@pytest.mark.parametrize("url", ["redis://:pw@192.0.2.7:6379/0", "redis://h/0?password=pw", "redis://localhost/0"])
def test_a_redis_with_a_password_or_on_this_machine_needs_no_setting(tmp_path, url):
    with operator_rig(tmp_path) as built:
        built.env["CSI_QUEUE_URL"] = url
        create_huey(settings(built))


def test_processing_drops_forged_messages_too(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.sqlite_queue.WAIT_SECONDS", 0.01)
    monkeypatch.delenv("CSI_PROCESSING_QUEUE_SECRET", raising=False)
    trap = tmp_path / "executed"
    made = create_processing_huey(ProcessingSettings(state_dir=tmp_path / "state"))
    assert (tmp_path / "state" / "queue.key").stat().st_mode & 0o777 == 0o600
    for data in forged_messages(trap, queue="csi-processing"):
        made.storage.enqueue(data)
    assert made.dequeue() is None
    assert not trap.exists()


def test_processings_queue_on_a_server_needs_a_secret_or_the_key_file_of_1_0(tmp_path, monkeypatch):
    monkeypatch.delenv("CSI_PROCESSING_QUEUE_SECRET", raising=False)
    on_redis = ProcessingSettings(state_dir=tmp_path / "state", queue="redis://127.0.0.1:1/0")
    with pytest.raises(MissingSetting, match="CSI_PROCESSING_QUEUE_SECRET"):
        create_processing_huey(on_redis)
    create_processing_huey(ProcessingSettings(state_dir=tmp_path / "state"))
    create_processing_huey(on_redis)
    elsewhere = on_redis.model_copy(update={"queue": "redis://192.0.2.7/0"})
    with pytest.raises(ConfigError, match="allow_unprotected_queue"):
        create_processing_huey(elsewhere)
    create_processing_huey(elsewhere.model_copy(update={"allow_unprotected_queue": True}))
