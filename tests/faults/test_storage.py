"""Fault cases 44–48 and 50–53: disk full, locks, readers, writers, torn files, retention, backup, PostgreSQL."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from csi.doctor.local_checks import check_database
from csi.runtime import load_settings
from csi.store import database_faults, db
from csi.worker import retention
from tests.fakes.scripted_receiver import ScriptedReceiver, accept, json_reply
from tests.faults.oracle import Bounds
from tests.rigs.in_process import ledger_pipeline
from tests.rigs.processes import (
    CONSUMER,
    ROOT,
    Installation,
    installation,
    publish,
    read_process_ledgers,
    tracebacks,
    wait_until,
    wal_size,
)
from tests.rigs.small_disk import fill, free, remount, small_disk

DAY = 86_400.0


def ask(box: Installation, port: int, page: str) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")
    except OSError:
        return 0, {}


@contextmanager
def sidecar(box: Installation, **env: str):
    """The real sidecar beside the worker; its port."""
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    box.change(lambda config: config.update(web={"port": port}))
    process = box.start(sys.executable, "-m", "csi.main", **env)
    box.wait_for(lambda: ask(box, port, "healthz")[0] == 200)
    yield port
    process.terminate()
    process.wait(20)


@pytest.mark.faults
def test_case_44_disk_full(case, tmp_path, seed):
    """Nothing is half-written, it is said, and it goes on by itself when there is room again."""
    with small_disk(tmp_path / "state", "12m") as disk, installation(tmp_path) as box, small_reserve(box) as port:
        worker = box.start()
        total = publish(box, 10)
        box.wait_for_delivered(total)
        ballast = fill(disk)
        total += publish(box, 40)
        said = wait_until(lambda: "the disk is nearly full" in str(ask(box, port, "readyz")), 60)
        wait_until(lambda: worker.poll() is not None, 8)
        alive = worker.poll() is None
        ballast.unlink()
        began = time.monotonic()
        box.wait_for_delivered(total, seconds=90)
        back = time.monotonic() - began
        box.wait_for(lambda: ask(box, port, "readyz")[0] == 200, seconds=60)
        sound = box.rows("PRAGMA integrity_check")
        case.close(
            read_process_ledgers(box), alive=int(alive), readyz_503=int(said), back=f"{back:.1f}s<=90s", seed=seed
        )
        assert (alive, said, sound) == (True, True, [("ok",)])
        assert NEARLY_FULL in box.log.read_text()


NEARLY_FULL = "the disk is nearly full; polling is paused until there is room"


@contextmanager
def small_reserve(box: Installation):
    """On a disk of a few megabytes fewer of them are kept free."""
    box.change(lambda config: config["csi"].update(min_free_mb=2))
    with sidecar(box) as port:
        yield port


@pytest.mark.faults
def test_case_44_polling_stops_before_the_disk_is_full(case, tmp_path, seed):
    """With the reserve gone and a little room left: nothing new is read, and what was read is still delivered."""
    with small_disk(tmp_path / "state", "12m") as disk, installation(tmp_path) as box, ScriptedReceiver(then=503) as ua:
        box.ua_url = ua.url
        box.change(lambda config: config["csi"].update(min_free_mb=4))
        worker = box.start()
        first = publish(box, 10)
        box.wait_for(lambda: (box.rows("SELECT COUNT(*) FROM events") or [(0,)])[0][0] >= first)
        (disk / "ballast").write_bytes(b"x" * (free(disk) - 3 * 1_048_576))
        box.wait_for(lambda: NEARLY_FULL in box.log.read_text())
        publish(box, 10)
        ua.then = accept
        box.wait_for_delivered(first, seconds=90)
        stored = box.rows("SELECT COUNT(*) FROM events")[0][0]
        (disk / "ballast").unlink()
        began = time.monotonic()
        box.wait_for_delivered(2 * first, seconds=90)
        back = time.monotonic() - began
        case.close(read_process_ledgers(box, ua), read_meanwhile=stored - first, back=f"{back:.1f}s<=90s", seed=seed)
        assert (stored, worker.poll()) == (first, None)


@pytest.mark.faults
def test_case_44_a_disk_that_became_read_only(case, tmp_path, seed):
    """The worker says so and ends with code 7, /readyz says so; once it may be written again, everything goes on."""
    with small_disk(tmp_path / "state", "12m") as disk, installation(tmp_path) as box, small_reserve(box) as port:
        worker = box.start()
        total = publish(box, 6)
        box.wait_for_delivered(total)
        worker.terminate()
        worker.wait(30)
        box.wait_for(lambda: remount(disk, "ro"))
        refused = box.run(*CONSUMER)
        status, body = ask(box, port, "readyz")
        finding = check_database(load_settings(box.home / "config.yaml", box.env))
        found = database_faults.identify(finding.text).kind
        assert remount(disk, "rw")
        total += publish(box, 6)
        box.start()
        box.wait_for_delivered(total)
        case.close(read_process_ledgers(box), code=refused.returncode, readyz=status, found=found, seed=seed)
        assert (refused.returncode, "Traceback" in refused.stderr, status) == (7, False, 503)
        assert "cannot be opened for writing" in str(body["reasons"])
        assert (finding.level, found) == ("fail", "read_only")


HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


@pytest.mark.faults
@pytest.mark.parametrize("seconds", [3, 12])
def test_case_45_the_writer_lock_is_held(case, tmp_path, seed, seconds):
    """By another process: within the busy timeout nobody notices, beyond it the work is done again."""
    with installation(tmp_path) as box:
        worker = box.start()
        total = publish(box, 10)
        box.wait_for_delivered(total)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(box.state / "csi.db"), str(seconds)], stdout=subprocess.PIPE
        )
        box.processes.append(holder)
        assert holder.stdout is not None
        holder.stdout.readline()
        total += publish(box, 20)
        holder.wait(40)
        began = time.monotonic()
        box.wait_for_delivered(total, seconds=90)
        back = time.monotonic() - began
        in_flight = len(box.rows("SELECT 1 FROM delivery_attempts WHERE outcome = 'interrupted'"))
        case.close(
            read_process_ledgers(box),
            Bounds(in_flight_at_crashes=in_flight),
            held=f"{seconds}s",
            back=f"{back:.1f}s<=90s",
            seed=seed,
        )
        assert worker.poll() is None


@pytest.mark.faults
def test_case_46_long_readers(case, tmp_path, seed):
    """Our own readers all the time and a stranger's snapshot for ten seconds: the WAL stays small, and shrinks again.

    While a stranger holds a snapshot SQLite cannot reset the WAL at all; how long is up to the stranger.
    """
    with installation(tmp_path, channels=0, playlists=3) as box, sidecar(box) as port:
        box.change(collecting)
        worker = box.start()
        total, peak = publish(box, 60), 0.0
        box.wait_for_delivered(total, seconds=60)
        for number in range(8):
            reader = snapshot(box) if number == 4 else None
            end = time.monotonic() + 10
            total += publish(box, 60)
            while time.monotonic() < end:
                ask(box, port, "readyz")
                peak = max(peak, wal_size(box))
                wait_until(lambda: False, 0.2)
            if reader is not None:
                reader.close()
            box.wait_for_delivered(total, seconds=120)
        after = wal_size(box)
        case.close(read_process_ledgers(box), wal=f"{peak:.1f}MB<64MB", afterwards=f"{after:.1f}MB<=33MB", seed=seed)
        assert peak < 64
        assert after <= 33
        assert (worker.poll(), tracebacks(box)) == (None, 0)


def snapshot(box: Installation) -> sqlite3.Connection:
    """A stranger's read transaction, open until it is closed."""
    reader = sqlite3.connect(f"file:{box.state / 'csi.db'}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM events").fetchone()
    return reader


def collecting(config: dict) -> None:
    config["sources"]["youtube_playlist"]["priority"] = "standard"


WRITE = """
import sys, time
from csi.clock import iso
from csi.ingester.event import CreatorSignalEvent
from csi.store import counters, db, dedupe, events
db.open_database(sys.argv[1])
who, number = sys.argv[2], int(sys.argv[3])
for index in range(number):
    event = CreatorSignalEvent(event_id=f"{who}:{index}", dedupe_key=f"{who}:{index}", source="s", event_type="t",
        occurred_at=iso(0), received_at=iso(0), subject={}, routing={}, metadata={})
    with db.writing():
        dedupe.remember([event.dedupe_key], "emitted", time.time(), 90)
        events.add(event, watch_id=None, seq=index, tier="standard", first_seen_at=time.time())
        counters.add("events", source="s", label="stored")
print("done", flush=True)
"""


@pytest.mark.faults
def test_case_47_four_writer_processes(case, sqlite_store, seed):
    """Four processes write as fast as they can: no statement is lost, none gives up."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", WRITE, str(sqlite_store)]
    began = time.monotonic()
    writers = [
        subprocess.Popen([*line, f"w{number}", "250"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for number in range(4)
    ]
    failed = [writer.communicate(timeout=120)[1].decode()[-300:] for writer in writers]
    took = time.monotonic() - began
    stored = db.fetch("SELECT COUNT(*) FROM events")[0][0]
    counted = db.fetch("SELECT value FROM counters WHERE name = 'events'")[0][0]
    keys = db.fetch("SELECT COUNT(*) FROM dedupe_keys")[0][0]
    case.note(written=stored, counted=int(counted), keys=keys, failed=sum(map(bool, failed)), seconds=f"{took:.1f}")
    assert (stored, counted, keys) == (1000, 1000, 1000), failed


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(4, id="short"), pytest.param(24, id="long", marks=pytest.mark.faults)],
)
def test_case_48_the_wal_is_cut(case, tmp_path, seed, rounds):
    """A copy with its WAL cut anywhere: it opens, events and inbox agree, and the lost tail is read again."""
    rng, lost_tail = random.Random(seed), 0
    with ledger_pipeline(tmp_path, lists=2) as s:
        for _ in range(2):  # few enough that all of it is still in the log: SQLite empties one of 4 MB
            s.publish(6, ref=-1)
            s.wait(11)
        source = tmp_path / "state"
        files = {name: (source / name).read_bytes() for name in ("csi.db", "csi.db-wal")}
        shelf, total = s.shelf, s.count("SELECT COUNT(*) FROM events")
    assert len(files["csi.db-wal"]) > 50_000
    broken = 0
    for number in range(rounds):
        home = tmp_path / f"copy{number}"
        (home / "state").mkdir(parents=True)
        (home / "state" / "csi.db").write_bytes(files["csi.db"])
        # One cut in each part of the log: what hurts lies near its beginning, where the events were stored.
        end = int(len(files["csi.db-wal"]) * (number + rng.random()) / rounds)
        (home / "state" / "csi.db-wal").write_bytes(files["csi.db-wal"][:end])
        with ledger_pipeline(home, lists=2) as again:
            sound = db.fetch("PRAGMA integrity_check") == [("ok",)]
            agree = again.count(DISAGREEING) == 0
            lost_tail += total - again.count("SELECT COUNT(*) FROM events")
            again.shelf.items = shelf.items
            again.wait(120, step=5)
            everything = again.count("SELECT COUNT(*) FROM events") == total and not again.waiting()
            broken += not (sound and agree and everything)
    case.note(cuts=rounds, broken=broken, lost_tail=lost_tail, read_again=lost_tail if not broken else 0, seed=seed)
    assert broken == 0
    assert lost_tail > 0, "no cut hurt: the case proves nothing"


DISAGREEING = """
    SELECT (SELECT COUNT(*) FROM inbox i JOIN dedupe_keys k ON k.key = i.item_key)
         + (SELECT COUNT(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM dedupe_keys k WHERE k.key = e.dedupe_key))
         + (SELECT COUNT(*) FROM events e WHERE e.state IN ('pending', 'in_flight')
              AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event_pk = e.id))
"""


def test_case_50_retention_never_touches_pending(case, tmp_path, seed):
    """Old and pending, old and dead but open, old and delivered: only the last goes."""
    with ledger_pipeline(tmp_path, lists=3) as s:
        s.publish(10, ref=0)
        s.wait(15)
        s.ua.then = lambda request: json_reply(400) if "BAD" in request.body.decode() else json_reply(503)
        s.publish(2, ref=1, title="BAD {}")
        s.publish(5, ref=2)
        s.wait(120, step=5)
        kept = s.count("SELECT COUNT(*) FROM events WHERE state <> 'delivered'")
        waiting, letters = s.count("SELECT COUNT(*) FROM outbox"), s.count("SELECT COUNT(*) FROM dead_letter")
        for _ in range(120):
            s.clock.move(DAY)
            retention.prune_hourly(s.rt)
        left = s.count("SELECT COUNT(*) FROM events WHERE state <> 'delivered'")
        gone = 10 - s.count("SELECT COUNT(*) FROM events WHERE state = 'delivered'")
        still = s.count("SELECT COUNT(*) FROM outbox"), s.count("SELECT COUNT(*) FROM dead_letter")
        s.heal()
        s.wait(120, step=5)
        late = s.count("SELECT COUNT(*) FROM events WHERE state = 'delivered'")
        case.note(kept=f"{left}/{kept}", delivered_removed=f"{gone}/10", delivered_later=late, seed=seed)
        assert (left, gone, still) == (kept, 10, (waiting, letters))
        assert late >= kept - 2


KEYS = int(os.environ.get("CSI_FAULTS_KEYS", "1000000"))


@pytest.mark.faults
def test_case_51_millions_of_dedupe_keys(case, sqlite_store, seed):
    """What one more key costs must not grow with how many there are. CSI_FAULTS_KEYS=10000000 for the full size."""
    from csi.store import dedupe

    def cost(prefix: str) -> float:
        began = time.perf_counter()
        for index in range(300):
            with db.writing():
                dedupe.remember([f"youtube:video:{prefix}{index:06d}"], "emitted", 1.0, 90)
        return (time.perf_counter() - began) / 300

    empty = sorted(cost(f"a{n}") for n in range(3))[1]
    rng = random.Random(seed)
    for start in range(0, KEYS, 50_000):
        with db.writing():
            db.database.connection().executemany(
                "INSERT OR IGNORE INTO dedupe_keys (key, expires_at, reason) VALUES (?, ?, 'emitted')",
                [(f"youtube:video:{rng.randrange(16**11):011x}", "2030-01-01T00:00:00Z") for _ in range(50_000)],
            )
        assert start < KEYS
    full = sorted(cost(f"b{n}") for n in range(3))[1]
    case.note(keys=KEYS, empty_ms=f"{empty * 1000:.2f}", full_ms=f"{full * 1000:.2f}<={4 * empty * 1000 + 1:.2f}")
    assert full < 4 * empty + 0.001


@pytest.mark.faults
def test_case_52_backup_under_load(case, tmp_path, seed):
    """Copies taken while the worker writes; each is whole, and an installation restored from one goes on."""
    with installation(tmp_path) as box:
        worker = box.start()
        copies = [tmp_path / f"copy{number}.db" for number in range(3)]
        total = publish(box, 12)
        box.wait_for(lambda: box.delivered() > 0)  # before its first migration there is nothing to copy
        for copy in copies:
            total += publish(box, 12)
            done = box.csi("db", "backup", str(copy))
            assert done.returncode == 0, done.stderr
        box.wait_for_delivered(total)
        sound = [integrity(copy) for copy in copies]
        in_flight = box.kill(worker)
        held = sqlite3.connect(copies[1]).execute("SELECT COUNT(*) FROM events").fetchone()[0]
        delivered = (
            sqlite3.connect(copies[1]).execute("SELECT COUNT(*) FROM events WHERE state = 'delivered'").fetchone()[0]
        )
        for path in box.state.glob("csi.db*"):
            path.unlink()
        shutil.copy(copies[1], box.state / "csi.db")
        total += publish(box, 6)
        box.start()
        box.wait_for_delivered(total, seconds=60)
        # What was delivered after the copy was taken is delivered once more, and what was read after it is read anew.
        again = Bounds(in_flight_at_crashes=in_flight + total - delivered, changed=total - held)
        case.close(read_process_ledgers(box), again, sound=f"{sound.count('ok')}/3", events_in_copy=held, seed=seed)
        assert sound == ["ok"] * 3


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["before", "after"])
def test_case_52_a_backup_that_was_killed(case, tmp_path, seed, moment):
    """It leaves a whole copy or none, and the next backup to the same place works or says why not."""
    with installation(tmp_path) as box:
        worker = box.start()
        total = publish(box, 10)
        box.wait_for_delivered(total)
        target = tmp_path / "copy.db"
        doomed = box.start_doomed(f"backup:{moment}", 1, "db", "backup", str(target))
        doomed.wait(40)
        state = integrity(target) if target.exists() else "none"
        again = box.csi("db", "backup", str(tmp_path / "second.db"))
        case.close(read_process_ledgers(box), killed=doomed.returncode, copy=state, seed=seed)
        assert state in ("ok", "none")
        assert (again.returncode, worker.poll()) == (0, None)


PRUNING = ["prune-events:before", "prune-events:after", "prune-keys:before", "prune-keys:after"]


@pytest.mark.parametrize("point", [PRUNING[0], *(pytest.param(p, marks=pytest.mark.faults) for p in PRUNING[1:])])
def test_case_50_a_prune_that_was_killed(case, tmp_path, seed, point):
    """Half of it is gone or nothing is; what is pending is all there."""
    with installation(tmp_path) as box:
        worker = box.start()
        total = publish(box, 40)
        box.wait_for_delivered(total)
        in_flight = box.kill(worker)
        with sqlite3.connect(box.state / "csi.db") as database:
            database.execute("UPDATE events SET delivered_at = 1, first_seen_at = 1 WHERE id % 2 = 0")
            database.execute("UPDATE batches SET settled_at = 1")
            database.execute("UPDATE dedupe_keys SET expires_at = '2001-01-01T00:00:00Z' WHERE rowid % 4 = 0")
        database.close()
        before = box.rows("SELECT COUNT(*) FROM events WHERE id % 2 = 1")
        doomed = box.start_doomed(point, 1, "prune", "--yes")
        doomed.wait(40)
        done = box.csi("prune", "--yes")
        left = box.rows("SELECT COUNT(*) FROM events WHERE id % 2 = 1"), box.rows("PRAGMA integrity_check")
        gone = 20 - box.rows("SELECT COUNT(*) FROM events WHERE id % 2 = 0")[0][0]
        case.note(killed=doomed.returncode, removed=f"{gone}/20", kept=left[0][0][0], in_flight=in_flight, seed=seed)
        assert (doomed.returncode, done.returncode) == (-signal.SIGKILL, 0), done.stderr
        assert (left, gone) == ((before, [("ok",)]), 20)


@pytest.mark.parametrize(
    "script",
    [(), (503, 503), (json_reply(429, retry_after="20"),), (400,)],
    ids=["fine", "503", "429", "400"],
)
def test_case_53_the_same_on_postgresql(case, tmp_path, postgres_url, seed, script):
    """The walk's own invariants on the other engine; the store's suite runs on both anyway."""
    with ledger_pipeline(tmp_path, *script, lists=3, database=postgres_url) as s:
        s.publish(12, ref=-1)
        s.run()
        s.wait(120, step=5)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests))
        assert sum(s.states().values()) == 12
        assert s.states()["delivered"] >= 11


@pytest.mark.faults
def test_case_53_two_planners_on_postgresql(case, tmp_path, postgres_url, seed):
    """Several threads claim from one outbox: SKIP LOCKED, and each event goes once."""
    with ledger_pipeline(tmp_path, lists=8, tier="high_volume", database=postgres_url) as s:
        s.publish(400, ref=-1)
        s.run_without_delivery()
        s.clock.move(61)
        workers = [threading.Thread(target=drain, args=(s,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        s.wait(120, step=5)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests))
        assert s.states() == {"delivered": 400}


def drain(s) -> None:
    from csi.pipeline.wake import Wake

    with db.connection():
        for _ in range(3):
            wakes = [Wake("flush", "default/high_volume")]
            while wakes:
                wakes += [wake for wake in s.step(wakes.pop(0)) if wake.at is None]


def test_case_44_the_receiver_is_the_one_that_is_full(case, tmp_path, seed):
    """507 and 503 with Retry-After from a receiver without room: nothing is dead, all arrives when there is."""
    with ledger_pipeline(
        tmp_path, *[json_reply(503, {"ok": False, "error": "storage_full"}, retry_after="60")] * 5, lists=3
    ) as s:
        s.publish(9, ref=-1)
        s.run()
        s.wait(400, step=5)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests))
        assert s.states() == {"delivered": 9}
