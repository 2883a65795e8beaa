"""`csi doctor`: each fault that is put into a healthy installation is named, and its remedy works when followed."""

import gc
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from csi.cli.main import cli
from csi.doctor import local_checks
from csi.doctor.local_checks import is_mended
from csi.store import api_units, db, heartbeats
from csi.store.catalog import jobs
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver, accept
from tests.rigs.processes import Installation, installation

Fault = Generator[str, dict[str, Any], None]
AWAY = "http://127.0.0.1:9"


class Patient:
    """An installation on loopback, the environment it is looked at with, and what the doctor says of it."""

    def __init__(self, box: Installation, patch: pytest.MonkeyPatch) -> None:
        self.box, self.patch = box, patch
        self.env: dict[str, str | None] = dict.fromkeys(
            name for name in os.environ if name.startswith(("CSI_", "YOUTUBE_")) or name == "PORT"
        )
        self.env |= {name: box.env[name] for name in ("CSI_CONFIG_PATH", "CSI_UA_ENDPOINT", "YOUTUBE_API_KEY")}
        self.env |= {"CSI_UA_SHARED_SECRET": SECRET, "PORT": "9"}
        self.csi("db", "migrate")
        self.csi("sources", "list")  # takes the configuration's watches up, as the worker does at its start
        self.beat()

    @property
    def database(self) -> Path:
        return self.box.state / "csi.db"

    def beat(self) -> None:
        db.open_database(str(self.database))
        with db.connection():
            heartbeats.write("worker", time.time(), time.time())

    @property
    def state(self) -> str:
        return str(self.box.state)

    def stop_short(self) -> None:
        """Wait for a lock for a moment, not for ten seconds."""
        self.patch.setattr("csi.sql.BUSY_SECONDS", 0.2)

    def csi(self, *arguments: str) -> str:
        if db.database.obj is not None and not db.database.is_closed():
            db.database.close()
        result = CliRunner().invoke(cli, list(arguments), env=self.env)
        assert result.exit_code in (0, 6), result.output + repr(result.exception)
        return result.stdout

    def failing(self) -> dict[str, dict[str, Any]]:
        """What is at fault, by check. Every fault comes with its remedy."""
        found = [one for one in json.loads(self.csi("doctor", "--json"))["checks"] if one["level"] == "fail"]
        assert all(one["remedy"] for one in found)
        return {one["check"]: one for one in found}

    def type(self, remedy: str) -> None:
        """Do what stands in backticks, as a person would type it."""
        commands = re.findall(r"`([^`]+)`", remedy)
        assert commands, remedy
        for command in commands:
            words = shlex.split(command)
            self.csi(*words[1:]) if words[0] == "csi" else subprocess.run(words, check=True)


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patient]:
    with installation(tmp_path) as box:
        yield Patient(box, monkeypatch)


# Each fault yields the check that must name it, is given what was found, and then does what the remedy says.


def config_with_a_typo(p: Patient) -> Fault:
    path = p.box.home / "config.yaml"
    path.write_text(path.read_text() + "delivry: {}\n")
    found = yield "config"
    line = int(re.search(r"config\.yaml:(\d+):", found["text"])[1])
    path.write_text("".join(text for number, text in enumerate(path.open(), 1) if number != line))


def secret_not_set(p: Patient) -> Fault:
    p.env["CSI_UA_SHARED_SECRET"] = None
    found = yield "secrets"
    assert "CSI_UA_SHARED_SECRET not set" in found["text"]
    p.env["CSI_UA_SHARED_SECRET"] = SECRET


def env_file_for_everybody(p: Patient) -> Fault:
    path = p.box.home / "env"
    path.write_text("CSI_LOG_LEVEL=INFO\n")
    path.chmod(0o644)
    p.env["CSI_ENV_FILE"] = str(path)
    p.type((yield "secrets")["remedy"])


def state_directory_for_everybody(p: Patient) -> Fault:
    p.box.state.chmod(0o755)
    p.type((yield "state")["remedy"])


def files_of_another_user(p: Patient) -> Fault:
    if os.geteuid():
        pytest.skip("only root can give files away")
    os.chown(p.database, 65534, 65534)
    p.type((yield "state")["remedy"])


def no_database(p: Patient) -> Fault:
    db.database.close()
    for path in p.box.state.iterdir():
        path.unlink()
    p.type((yield "database")["remedy"])


def old_schema(p: Patient) -> Fault:
    with sqlite3.connect(p.database) as file:
        file.execute("DROP TABLE downtimes")
        file.execute("ALTER TABLE heartbeats DROP COLUMN first_beat_at")
        (table,) = file.execute("SELECT name FROM sqlite_master WHERE name LIKE '%migration%'").fetchone()
        file.execute(f"DELETE FROM {table} WHERE name LIKE '0006%'")
    file.close()
    found = yield "database"
    assert "lacks 0006_uptime" in found["text"]
    p.type(found["remedy"].partition(",")[0])


def damaged_database(p: Patient) -> Fault:
    p.csi("db", "backup", str(p.box.home / "backup.db"))
    p.database.write_bytes(b"this was a database once" * 1000)
    for suffix in ("-wal", "-shm"):
        Path(f"{p.database}{suffix}").unlink(missing_ok=True)
    found = yield "database"
    assert "put the last backup in its place" in found["remedy"]
    gc.collect()  # the commands above were processes of their own, had a person typed them: none holds the old file
    shutil.copy(p.box.home / "backup.db", p.database)


def locked_database(p: Patient) -> Fault:
    p.stop_short()
    holder = sqlite3.connect(p.database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    found = yield "database"
    assert f"`fuser -v {p.database}`" in found["remedy"]
    assert "backup" not in found["remedy"]
    holder.close()


HOLD_WORKER_LOCK = """
import pathlib, sys, time
from csi.worker_lock import hold_worker_lock
hold_worker_lock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def silent_worker_whose_process_runs(p: Patient) -> Fault:
    """`csi run` would end with code 9: the remedy names the process instead."""
    process = subprocess.Popen([sys.executable, "-c", HOLD_WORKER_LOCK, p.state], stdout=subprocess.PIPE)
    process.stdout.readline()
    db.open_database(str(p.database))
    with db.connection():
        heartbeats.write("worker", time.time() - 300, time.time() - 900)
    found = yield "worker"
    assert "`systemctl restart csi-worker`" in found["remedy"]
    assert "csi run" not in found["remedy"]
    subprocess.run(shlex.split(re.search(r"`(kill -9 \d+)`", found["remedy"])[1]), check=True)
    assert process.wait(10) != 0
    p.beat()


def receiver_away(p: Patient) -> Fault:
    p.env["CSI_UA_ENDPOINT"] = f"{AWAY}/ingest"
    found = yield "receiver"
    assert "correct CSI_UA_ENDPOINT" in found["remedy"]
    p.env["CSI_UA_ENDPOINT"] = p.box.ua_url


def wrong_secret(p: Patient) -> Fault:
    p.env["CSI_UA_SHARED_SECRET"] = "another-secret-than-theirs"
    found = yield "receiver"
    assert "401" in found["text"]
    assert "the same secret: CSI_UA_SHARED_SECRET" in found["remedy"]
    p.env["CSI_UA_SHARED_SECRET"] = SECRET


def wrong_path(p: Patient) -> Fault:
    p.env["CSI_UA_ENDPOINT"] = p.box.ua_url.replace("/ingest", "/nothing")
    found = yield "receiver"
    assert "correct the path in CSI_UA_ENDPOINT" in found["remedy"]
    p.env["CSI_UA_ENDPOINT"] = p.box.ua_url


def clock_of_the_receiver(p: Patient) -> Fault:
    """On its side; ours cannot be set by a test."""
    ahead = [1000.0]

    def answer(request: Any) -> Any:
        return replace(accept(request), headers=(("Date", formatdate(time.time() + ahead[0], usegmt=True)),))

    with ScriptedReceiver(then=answer) as ua:
        p.env["CSI_UA_ENDPOINT"] = ua.url
        found = yield "clock"
        assert "ahead of ours" in found["text"]
        ahead[0] = 0.0
        assert "clock" not in p.failing()


def delivery_paused_and_forgotten(p: Patient) -> Fault:
    p.csi("delivery", "pause", "--reason", "maintenance")
    p.type((yield "delivery")["remedy"])


def no_api_key(p: Patient) -> Fault:
    p.env["YOUTUBE_API_KEY"] = None
    name = re.search(r"set (\w+) in", (yield "api")["remedy"])[1]
    p.env[name] = p.box.yt.api_key


def wrong_api_key(p: Patient) -> Fault:
    p.env["YOUTUBE_API_KEY"] = "a-key-that-nobody-gave"
    found = yield "source"
    assert "the API key is not valid" in found["text"]
    p.env[re.search(r"\((\w+_KEY)\)", found["remedy"])[1]] = p.box.yt.api_key


def budget_is_spent(p: Patient) -> Fault:
    db.open_database(str(p.database))
    with db.connection():
        api_units.exhaust(10_000_000, time.time())
    found = yield "api"
    assert "raise `quota_limit`" in found["remedy"]
    p.box.change(lambda config: config["sources"]["youtube_playlist"].update(quota_limit=20_000_000))


def feed_out_of_reach(p: Patient) -> Fault:
    p.box.change(
        lambda config: config["sources"]["youtube_channel_rss"].update(feed_url_template=f"{AWAY}/{{channel_id}}")
    )
    found = yield "source"
    assert "check network, DNS and proxy" in found["remedy"]
    good = p.box.yt.feed_url_template
    p.box.change(lambda config: config["sources"]["youtube_channel_rss"].update(feed_url_template=good))


def worker_with_an_old_configuration(p: Patient) -> Fault:
    p.box.change(lambda config: config["sources"]["youtube_playlist"]["playlists"].append({"id": "PL" + "x" * 16}))
    found = yield "watches"
    assert "restart the worker" in found["remedy"]
    db.open_database(str(p.database))
    with db.connection():
        heartbeats.write("worker", time.time() - 600, time.time() - 900)
    p.csi("sources", "list")  # what a worker's start does


def broken_queue(p: Patient) -> Fault:
    (p.box.state / "queue.db").write_bytes(b"this was a queue once" * 1000)
    p.type((yield "queue")["remedy"])


def disk_full(p: Patient) -> Fault:
    usage = shutil.disk_usage(p.box.state)
    p.patch.setattr(local_checks.shutil, "disk_usage", lambda place: usage._replace(free=50 * 1024 * 1024))
    found = yield "disk"
    p.type(found["remedy"])
    p.patch.undo()


def no_worker(p: Patient) -> Fault:
    db.open_database(str(p.database))
    with db.connection():
        heartbeats.write("worker", time.time() - 600, time.time() - 900)
    found = yield "worker"
    (command,) = re.findall(r"`([^`]+)`", found["remedy"])
    assert command == "csi run"
    process = p.box.start(sys.executable, "-m", "csi.cli.main", "run", PORT="0")
    try:
        p.box.wait_for(lambda: "worker" not in p.failing(), 120)
    finally:
        process.terminate()
        assert process.wait(40) == 0


FAULTS = [
    config_with_a_typo,
    secret_not_set,
    env_file_for_everybody,
    state_directory_for_everybody,
    files_of_another_user,
    no_database,
    old_schema,
    damaged_database,
    locked_database,
    silent_worker_whose_process_runs,
    receiver_away,
    wrong_secret,
    wrong_path,
    clock_of_the_receiver,
    delivery_paused_and_forgotten,
    no_api_key,
    wrong_api_key,
    budget_is_spent,
    feed_out_of_reach,
    worker_with_an_old_configuration,
    broken_queue,
    disk_full,
    no_worker,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named_and_its_remedy_works(patient, fault):
    steps = fault(patient)
    check = next(steps)
    found = patient.failing()
    assert check in found, found
    with pytest.raises(StopIteration):
        steps.send(found[check])
    patient.beat() if fault is not no_worker else None
    assert check not in patient.failing()


def test_a_healthy_installation_has_no_fault_and_every_part_was_looked_at(patient):
    found = json.loads(patient.csi("doctor", "--json"))
    assert (found["ok"], found["counts"]["fail"]) == (True, 0)
    looked_at = {one["check"] for one in found["checks"] if one["level"] == "ok"}
    assert looked_at >= {"config", "secrets", "state", "disk", "database", "clock", "receiver", "api", "source"}
    assert looked_at >= {"delivery", "worker", "watches", "queue", "backlog", "jobs"}


def test_jobs_of_the_catalogue_that_died_or_wait_are_worth_knowing(patient):
    db.open_database(str(patient.database))
    with db.connection():
        now = time.time()
        jobs.enqueue(jobs.NewCatalogJob("REFRESH_CHANNEL_STATS", "a"), now)
        jobs.mark_dead(jobs.claim(now), "it can never work", now)
        jobs.enqueue(jobs.NewCatalogJob("REFRESH_HOT_VIDEOS", "b", scheduled_at=now - 3 * 3_600), now)
    found = [
        one for one in json.loads(patient.csi("doctor", "--offline", "--json"))["checks"] if one["check"] == "jobs"
    ]
    assert [one["level"] for one in found] == ["warn", "warn"]
    assert "1 jobs of the catalogue were given up" in found[0]["text"]
    retry = re.search(r"`csi (jobs retry \S+)`", found[0]["remedy"])[1]
    assert "due now" in patient.csi(*retry.split())
    assert "due for 3 hours" in found[1]["text"]


def test_a_dead_job_whose_work_a_newer_job_does_is_not_to_be_retried(patient):
    db.open_database(str(patient.database))
    with db.connection():
        now = time.time()
        jobs.enqueue(jobs.NewCatalogJob("REFRESH_CHANNEL_STATS", "a"), now)
        jobs.mark_dead(jobs.claim(now), "it can never work", now)
        jobs.enqueue(jobs.NewCatalogJob("REFRESH_CHANNEL_STATS", "a", scheduled_at=now + 3_600), now)
    checks = json.loads(patient.csi("doctor", "--offline", "--json"))["checks"]
    (found,) = [one for one in checks if one["check"] == "jobs" and "given up" in one["text"]]
    assert (found["level"], found["remedy"]) == ("ok", None)


def test_faults_are_exit_code_6_with_the_remedy_behind_an_arrow(patient):
    patient.env["CSI_UA_ENDPOINT"] = f"{AWAY}/ingest"
    result = CliRunner().invoke(cli, ["doctor"], env=patient.env)
    assert result.exit_code == 6
    assert re.search(r"^FAIL  receiver  default: .*\n +→ start the receiver", result.stdout, re.MULTILINE)
    assert result.stdout.splitlines()[-1].endswith("1 fault")


def test_offline_nobody_is_contacted(patient):
    with ScriptedReceiver() as ua:
        patient.env["CSI_UA_ENDPOINT"] = ua.url
        patient.csi("doctor", "--offline")
        assert ua.requests == []
        assert patient.box.yt.requests.count() == 0


def test_trying_a_source_stores_nothing_and_costs_a_playlist_one_unit(patient):
    patient.box.yt.add(patient.box.yt.playlists[0], "Not for the doctor")
    patient.csi("doctor")
    assert patient.box.rows("SELECT COUNT(*) FROM inbox") == [(0,)]
    assert patient.box.rows("SELECT COUNT(*) FROM dedupe_keys") == [(0,)]
    assert patient.box.rows("SELECT quota_used FROM api_budget") == [(1,)]


@pytest.mark.parametrize(
    ("version", "mended"),
    [
        ("3.40.1", False),
        ("3.44.5", False),
        ("3.44.6", True),
        ("3.45.0", False),
        ("3.50.7", True),
        ("3.51.2", False),
        ("3.51.3", True),
        ("3.52.0", True),
    ],
)
def test_which_sqlite_has_the_checkpoint_fault(version, mended):
    assert is_mended(tuple(map(int, version.split(".")))) is mended
