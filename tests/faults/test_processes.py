"""Fault cases 1–12, 29, 31 and 79 with real processes: killed anywhere, stopped, doubled, poisoned. The oracle counts.

What tests/acceptance/test_worker.py shows in `make test` anyway is here with its numbers, in `make faults`.
"""

import os
import pickle
import random
import signal
import sqlite3
import sys
import time

import pytest

from tests.fakes.doomed_worker import EVERY_POINT, LOCK_RELEASED
from tests.fakes.scripted_receiver import ScriptedReceiver, Slow, accept, json_reply
from tests.faults.oracle import Bounds
from tests.rigs.processes import (
    CONSUMER,
    Installation,
    drained,
    handles,
    installation,
    leaks,
    memory,
    moments,
    publish,
    read_process_ledgers,
    tracebacks,
    wait_until,
    wal_size,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def box(tmp_path):
    with installation(tmp_path) as built:
        yield built


def killed_at_random(case, box: Installation, seed: int, *, kills: int, events: int) -> None:
    """Publish, kill, publish, kill …; then let it drain. One kill in five comes while the worker still starts."""
    rng, total, in_flight = random.Random(seed), publish(box, events // 3), 0
    share = (events - total) // kills
    for number, seconds in enumerate(moments(rng, kills, 0.0, 1.2)):
        worker = box.start()
        if number % 5:
            box.wait_for(lambda worker=worker: is_working(box, worker))
        wait_until(lambda worker=worker: worker.poll() is not None, seconds)
        in_flight += box.kill(worker)
        total += publish(box, share)
    total += publish(box, events - total)
    box.start()
    began = time.monotonic()
    box.wait_for(drained(box, total), seconds=240)
    case.close(
        read_process_ledgers(box),
        Bounds(in_flight_at_crashes=in_flight),
        kills=kills,
        seed=seed,
        back=f"{time.monotonic() - began:.0f}s",
        leaks=leaks(box),
    )
    assert leaks(box) == 0


def is_working(box: Installation, worker) -> bool:
    return box.rows(f"SELECT 1 FROM heartbeats WHERE name = 'worker' AND pid = {worker.pid}") != []


def test_case_1_random_kills_in_short(case, box, seed):
    killed_at_random(case, box, seed, kills=5, events=60)


@pytest.mark.faults
def test_case_1_sixty_random_kills(case, tmp_path, seed):
    with installation(tmp_path, channels=0, playlists=8) as box:
        killed_at_random(case, box, seed, kills=60, events=1500)


@pytest.mark.faults
def test_case_2_the_poller_is_killed_between_pages(case, tmp_path, seed):
    """Lists of several short pages that grow while they are read, each page slow enough to be killed in."""
    rng, total, in_flight = random.Random(seed), 0, 0
    with installation(tmp_path, channels=0, playlists=2, site={"short_pages": True}) as box:
        total += publish(box, 160)
        box.yt.set_faults("api:slow=150ms")
        for seconds in moments(rng, 12, 0.8, 2.2):
            worker = box.start()
            wait_until(lambda worker=worker: worker.poll() is not None, seconds)
            total += publish(box, 10)
            in_flight += box.kill(worker)
        box.yt.set_faults("")
        box.start()
        box.wait_for_delivered(total, seconds=120)
        case.close(read_process_ledgers(box), Bounds(in_flight_at_crashes=in_flight), kills=12, seed=seed)


REFUSING = ("bury", "malformed-commit")


@pytest.mark.faults
@pytest.mark.parametrize("point", EVERY_POINT)
def test_case_3_sigkill_at(case, tmp_path, seed, point):
    """Each failpoint: the worker dies there, another one takes over."""

    def picky(request):
        return (
            json_reply(400) if any("BAD" in event["subject"]["title"] for event in request.events) else accept(request)
        )

    with installation(tmp_path) as box, ScriptedReceiver(then=picky) as ua:
        box.ua_url = ua.url
        total, in_flight = publish(box, 24) + publish(box, 2, title="BAD {}"), 0
        if point.startswith("malformed"):
            total += malformed(box)
        if point.startswith("recover"):
            in_flight += box.kill(start_and_wait(box))
        doomed = box.start_doomed(point, nth=1 if point.startswith(("recover", *REFUSING)) else 2)
        assert doomed.wait(40) == -signal.SIGKILL, f"{point} was never reached\n{box.log.read_text()[-2000:]}"
        in_flight += box.in_flight(doomed)
        began = time.monotonic()
        box.start()
        box.wait_for(drained(box, total), seconds=90)
        back = time.monotonic() - began
        case.close(
            read_process_ledgers(box, ua),
            Bounds(in_flight_at_crashes=in_flight),
            back=f"{back:.0f}s<=90s",
            tracebacks=tracebacks(box),
        )
        assert tracebacks(box) == 0


def malformed(box: Installation) -> int:
    """An item whose title is nothing: a dead letter with its raw payload."""
    box.yt.upload(box.yt.channels[0], "\x00")
    return 1


def start_and_wait(box: Installation):
    worker = box.start()
    box.wait_for(lambda: box.delivered() > 0)
    return worker


@pytest.mark.faults
def test_case_4_sigterm_while_requests_hang(case, tmp_path, seed):
    """They finish, no lease is left, nothing is sent twice."""
    with (
        installation(tmp_path) as box,
        ScriptedReceiver(then=lambda request: accept(request).on(Slow(seconds=1.5))) as ua,
    ):
        box.ua_url = ua.url
        total = publish(box, 6)
        worker = box.start()
        box.wait_for(lambda: ua.requests)
        began = time.monotonic()
        worker.terminate()
        code = worker.wait(30)
        took = time.monotonic() - began
        left = box.rows("SELECT COUNT(*) FROM batches WHERE state = 'sending'")[0][0]
        box.start()
        box.wait_for(drained(box, total))
        account = case.close(
            read_process_ledgers(box, ua), code=code, out_after=f"{took:.1f}s<=30s", leases_left=left, seed=seed
        )
        assert (code, left, account.extra) == (0, 0, 0)


@pytest.mark.faults
def test_case_5_a_receiver_that_never_answers_at_shutdown(case, tmp_path, seed):
    with (
        installation(tmp_path) as box,
        ScriptedReceiver(then=lambda request: accept(request).on(Slow(120, arrives=False))) as ua,
    ):
        box.ua_url = ua.url
        total = publish(box, 2)
        worker = box.start(*CONSUMER[:-1], "3")
        box.wait_for(lambda: ua.requests)
        began = time.monotonic()
        worker.terminate()
        worker.wait(30)
        took = time.monotonic() - began
        outcomes = {row[0] for row in box.rows("SELECT outcome FROM delivery_attempts")}
        ua.then = accept
        box.start()
        box.wait_for(drained(box, total))
        case.close(
            read_process_ledgers(box, ua), out_after=f"{took:.1f}s<=10s", outcomes=",".join(sorted(outcomes)), seed=seed
        )
        assert took < 10
        assert outcomes == {"interrupted"}


@pytest.mark.faults
def test_case_6_killed_right_after_dequeue(case, box, seed):
    """The task is gone from the queue and was not run: its row is woken again within seconds."""
    total, in_flight, back = publish(box, 30), 0, []
    for nth in (3, 9, 17, 25):
        doomed = box.start_doomed("dequeue:after", nth=nth)
        assert doomed.wait(40) == -signal.SIGKILL
        in_flight += box.in_flight(doomed)
        began = time.monotonic()
        total += publish(box, 5)
        worker = box.start()
        box.wait_for(drained(box, total), seconds=60)
        back.append(time.monotonic() - began)
        in_flight += box.kill(worker)
        total += publish(box, 5)
    box.start()
    box.wait_for(drained(box, total), seconds=60)
    case.close(
        read_process_ledgers(box), Bounds(in_flight_at_crashes=in_flight), slowest=f"{max(back):.1f}s<=30s", seed=seed
    )
    assert max(back) < 30


@pytest.mark.faults
def test_case_7_a_lock_right_after_the_schedule_was_read(case, tmp_path, seed):
    """Huey deletes due rows, then enqueues them: a lock in between loses the tasks, and the rows come all the same."""
    with installation(tmp_path) as box, ScriptedReceiver(*[503] * 6) as ua:
        box.ua_url = ua.url
        total = publish(box, 12)
        box.start_doomed("lock-after-schedule", nth=12)
        box.wait_for(lambda: LOCK_RELEASED in box.log.read_text(), seconds=90)
        began = time.monotonic()
        box.wait_for(lambda: box.delivered() >= total, seconds=90)
        back = time.monotonic() - began
        case.close(read_process_ledgers(box, ua), Bounds(timed=False), back=f"{back:.1f}s<=90s", lock="12s", seed=seed)


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["deleted", "corrupted"])
def test_case_8_the_queue_file_is(case, box, seed, fault):
    box.start()
    total = publish(box, 6)
    box.wait_for_delivered(total)
    for path in box.state.glob("queue.db*"):
        path.unlink() if fault == "deleted" else path.write_bytes(os.urandom(8192))
    total += publish(box, 6)
    began = time.monotonic()
    box.wait_for_delivered(total)
    case.close(read_process_ledgers(box), back=f"{time.monotonic() - began:.1f}s", seed=seed)
    assert (box.state / "queue.db").exists()


def test_case_8_the_queue_file_was_corrupted_before_the_start(case, box, seed):
    worker = box.start()
    total = publish(box, 6)
    box.wait_for_delivered(total)
    in_flight = box.kill(worker)
    for path in box.state.glob("queue.db*"):
        path.write_bytes(random.Random(seed).randbytes(8192))
    total += publish(box, 6)
    worker = box.start()
    wait_until(lambda: worker.poll() is not None or box.delivered() >= total, 30)
    case.close(
        read_process_ledgers(box), Bounds(in_flight_at_crashes=in_flight), alive=int(worker.poll() is None), seed=seed
    )
    assert box.delivered() >= total


class Foreign:
    """A pickle that runs code where it is opened."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.faults
def test_case_9_garbage_and_a_foreign_pickle(case, box, seed):
    box.start()
    total = publish(box, 3)
    box.wait_for_delivered(total)
    trap = box.home / "trap"
    rows = [random.Random(seed).randbytes(40) for _ in range(3000)] + [pickle.dumps(Foreign(str(trap)))] * 5
    with sqlite3.connect(box.state / "queue.db", timeout=10) as queue:
        queue.executemany("INSERT INTO task (queue, data, priority) VALUES ('csi', ?, 100)", [(row,) for row in rows])
    total += publish(box, 6)
    box.wait_for_delivered(total)
    case.close(read_process_ledgers(box), ran=int(trap.exists()), tracebacks=tracebacks(box), seed=seed)
    assert not trap.exists()
    assert tracebacks(box) == 0


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["poison-item", "poison-send"])
def test_case_10_an_item_that_kills_the_process(case, box, seed, kind):
    """Set aside after three, and everything else flows."""
    total, deaths, in_flight = publish(box, 10), 0, 0
    box.yt.add(box.yt.playlists[0], "POISON")
    for _ in range(12):
        worker = box.start_doomed(kind)
        if wait_until(lambda worker=worker: worker.poll() is not None or drained(box, total + 1)(), 45) and (
            worker.poll() is None
        ):
            break
        deaths += 1
        in_flight += box.in_flight(worker)
    box.wait_for(drained(box, total + 1), seconds=60)
    causes = box.rows("SELECT cause, COUNT(*) FROM dead_letter WHERE state = 'open' GROUP BY cause")
    case.close(read_process_ledgers(box), Bounds(in_flight_at_crashes=in_flight), deaths=deaths, seed=seed)
    assert causes == [("crash", 1)]
    assert deaths <= 7, "three for the batch, three for the event that stood alone, one to spare"
    assert box.delivered() == total


@pytest.mark.parametrize("rounds", [pytest.param(2, id="short"), pytest.param(40, id="long", marks=pytest.mark.faults)])
def test_case_11_killed_during_a_migration(case, tmp_path, seed, rounds):
    """After each kill the schema is an old one or the new one, and the next start finishes it."""
    rng, between, deaths = random.Random(seed), 0, 0
    with installation(tmp_path) as box:
        statements = count_statements(box)
        names = applied(box)
        finished = schema(box)
        versions = schemas_of(box, names)
        for number in range(rounds):
            for path in box.state.glob("csi.db*"):
                path.unlink()
            # One in each part of all statements: every migration is hit.
            nth = 1 + int(statements * (number + rng.random()) / rounds)
            doomed = box.start_doomed("migrate:before", nth, "db", "migrate")
            deaths += doomed.wait(40) == -signal.SIGKILL
            between += schema(box) not in versions
        assert box.csi("db", "migrate").returncode == 0
        done = int(schema(box) == finished)
        case.note(statements=statements, kills=deaths, between=between, finished=done, seed=seed)
        assert (between, schema(box)) == (0, finished)
        assert deaths == rounds


COUNTING = """
import sys
from peewee import SqliteDatabase
statements, execute = [], SqliteDatabase.execute_sql
SqliteDatabase.execute_sql = lambda self, sql, *rest: statements.append(sql) or execute(self, sql, *rest)
from csi.cli.main import run
sys.argv = ["csi", "db", "migrate"]
try:
    run()
finally:
    print("statements:", len(statements))
"""


def count_statements(box: Installation) -> int:
    """Migrate for the first time; how many statements that takes."""
    done = box.run(sys.executable, "-c", COUNTING)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("statements:")[1])


def applied(box: Installation) -> list[str]:
    return [row[0] for row in box.rows("SELECT name FROM schema_migration ORDER BY name")]


def schema(box: Installation) -> frozenset[str]:
    """Everything but the table of migrations itself, which comes first."""
    found = box.rows("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name <> 'schema_migration'")
    return frozenset(row[0] for row in found)


def schemas_of(box: Installation, names: list[str]) -> set[frozenset[str]]:
    """The schema after each migration: those are the only ones a kill may leave."""
    program = (
        "import sys; from csi.store import db; from csi.store.models import database\n"
        "db.open_database(sys.argv[1]); db.runner().up(sys.argv[2])"
    )
    found = {frozenset()}
    for name in names:
        target = box.home / f"until-{name}.db"
        done = box.run(sys.executable, "-c", program, str(target), name)
        assert done.returncode == 0, done.stderr
        connection = sqlite3.connect(target)
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name <> 'schema_migration'"
        ).fetchall()
        connection.close()
        found.add(frozenset(row[0] for row in rows))
    return found


@pytest.mark.faults
def test_case_12_two_workers_on_one_state(case, box, seed):
    first = box.start()
    box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats"))
    total = publish(box, 6)
    second = box.run(*CONSUMER)
    box.wait_for_delivered(total)
    case.close(read_process_ledgers(box), code=second.returncode, seed=seed)
    assert (second.returncode, "another worker" in second.stderr) == (9, True)
    assert first.poll() is None


@pytest.mark.faults
def test_case_29_recovery_ramps_up(case, tmp_path, seed):
    """A receiver that was away gets one request, then two at once, then four; never more than configured."""
    at_once: list[int] = []

    def slowly(request):
        at_once.append(ua.in_flight)
        time.sleep(0.25)  # how long this receiver takes: what is under way at once is measured meanwhile
        return accept(request)

    with installation(tmp_path, channels=0, playlists=4) as box, ScriptedReceiver(then=503) as ua:
        box.ua_url = ua.url
        box.change(batches_of_ten)
        total = publish(box, 400)
        box.start(*CONSUMER[:5], "20", *CONSUMER[6:])
        box.wait_for(lambda: box.rows("SELECT 1 FROM destinations WHERE circuit = 'open'"), seconds=90)
        box.wait_for(lambda: (box.rows("SELECT COUNT(*) FROM events") or [(0,)])[0][0] >= total, seconds=90)
        ua.then = slowly
        box.wait_for_delivered(total, seconds=120)
        case.close(
            read_process_ledgers(box, ua),
            at_once="/".join(map(str, at_once[:12])),
            peak=f"{max(at_once)}<=4",
            seed=seed,
        )
        assert at_once[0] == 1
        assert max(at_once[:3]) <= 2
        assert 2 <= max(at_once) <= 4


def batches_of_ten(config: dict) -> None:
    """Of the tier that is not kept in order, so that several requests may be under way."""
    config["sources"]["youtube_playlist"]["priority"] = "high_volume"
    config["delivery"] = {
        "max_events_per_request": 10,
        "max_concurrent_requests": 4,
        "priority_behavior": {"high_volume": {"batch_size": 10, "max_delay_seconds": 0.2}},
    }


@pytest.mark.faults
def test_case_31_a_slow_receiver_and_five_thousand_events(case, tmp_path, seed):
    """Memory, handles and WAL stay flat; what is urgent is still fast."""

    def slow(request):
        urgent = request.events and request.events[0]["source"] == "youtube_channel_rss"
        return accept(request) if urgent else accept(request).on(Slow(seconds=4))

    with installation(tmp_path, channels=1, playlists=5) as box, ScriptedReceiver(then=slow) as ua:
        box.ua_url = ua.url
        box.change(urgent_feeds)
        for index in range(5000):
            box.yt.add(box.yt.playlists[index % 5], f"Item {index}")
        worker = box.start(*CONSUMER[:5], "16", *CONSUMER[6:])
        box.wait_for(lambda: box.delivered() > 50, seconds=120)
        early, total, peak, wal = handles(worker.pid), 5000, 0.0, 0.0
        while box.delivered() < 4900:
            box.yt.upload(box.yt.channels[0], "urgent")
            total += 1
            peak, wal = max(peak, memory(worker.pid)), max(wal, wal_size(box))
            box.wait_for(lambda total=total: urgent_waiting(box) == 0 or box.delivered() >= 5000, seconds=60)
            wait_until(lambda: box.delivered() >= 5000, 2.0)
            assert total < 5300, "it takes too long"
        box.wait_for(lambda: box.delivered() >= len(read_process_ledgers(box).served), seconds=240)
        late = handles(worker.pid)
        fast = sorted(row[0] for row in box.rows(URGENT_TIMES))
        p95 = fast[int(len(fast) * 0.95)]
        case.close(
            read_process_ledgers(box, ua),
            urgent_p95=f"{p95:.2f}s<=2s",
            urgent=len(fast),
            memory=f"{peak:.0f}MB<512MB",
            wal=f"{wal:.0f}MB<64MB",
            handles=f"{early}->{late}",
            seed=seed,
        )
        assert p95 < 2
        assert peak < 512
        assert wal < 64
        assert late <= early + 20


URGENT_TIMES = "SELECT delivered_at - first_seen_at FROM events WHERE tier = 'urgent' AND state = 'delivered'"


def urgent_waiting(box: Installation) -> int:
    return box.rows("SELECT COUNT(*) FROM outbox WHERE tier = 'urgent'")[0][0]


def urgent_feeds(config: dict) -> None:
    config["sources"]["youtube_channel_rss"]["priority"] = "urgent"
    config["sources"]["youtube_playlist"] |= {"priority": "high_volume", "poll_interval_seconds": 20}
    tiers = {"high_volume": {"batch_size": 500, "max_delay_seconds": 1}, "standard": {"max_delay_seconds": 1}}
    config["delivery"] = {"priority_behavior": tiers}  # nobody waits by design: whoever waits, waits for the flood


@pytest.mark.faults
def test_case_79_one_source_dumps_ten_thousand(case, tmp_path, seed):
    """99 other feeds are read and served in the same round, while the flood is worked off."""
    with installation(tmp_path, channels=99, playlists=2) as box:
        box.change(standard_lists)
        for index in range(10_000):
            box.yt.add(box.yt.playlists[index % 2], f"Flood {index}")
        for channel in box.yt.channels:
            box.yt.upload(channel, "One of the others")
        box.start()
        box.wait_for(lambda: others(box) >= 99, seconds=120)
        flood = box.delivered() - 99
        waits = sorted(row[0] for row in box.rows(OTHERS_TIMES))
        box.wait_for_delivered(10_099, seconds=420)
        case.close(
            read_process_ledgers(box), slowest_other=f"{waits[-1]:.1f}s", flood_delivered_by_then=flood, seed=seed
        )
        assert flood < 9_000, "the others had to wait for the flood"


OTHERS_TIMES = "SELECT delivered_at - first_seen_at FROM events WHERE source = 'youtube_channel_rss'"


def others(box: Installation) -> int:
    found = box.rows("SELECT COUNT(*) FROM events WHERE source = 'youtube_channel_rss' AND state = 'delivered'")
    return found[0][0] if found else 0


def standard_lists(config: dict) -> None:
    config["sources"]["youtube_playlist"] |= {"priority": "high_volume", "poll_interval_seconds": 60}
    config["sources"]["youtube_channel_rss"] |= {"poll_interval_seconds": 20}
    tiers = {"high_volume": {"batch_size": 500, "max_delay_seconds": 1}, "standard": {"max_delay_seconds": 1}}
    config["delivery"] = {"priority_behavior": tiers}  # nobody waits by design: whoever waits, waits for the flood
