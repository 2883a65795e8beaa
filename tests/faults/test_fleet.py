"""Past one machine (91–95): workers that share PostgreSQL and a queue are killed, and so are the servers."""

import random
import time

import pytest

from tests.faults.oracle import Bounds
from tests.rigs.processes import (
    CONSUMER,
    Fleet,
    Redis,
    drained,
    fleet,
    leaks,
    moments,
    on_hosts,
    pick,
    publish,
    read_process_ledgers,
    restart_postgres,
    wait_until,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def redis_server():
    server = Redis()
    yield server
    server.kill()


def settle(case, box: Fleet, total: int, in_flight: int, **numbers) -> None:
    """Let it drain; then the oracle."""
    began = time.monotonic()
    box.wait_for(drained(box, total), seconds=150)
    back = time.monotonic() - began
    found = leaks(box)
    case.close(
        read_process_ledgers(box),
        Bounds(in_flight_at_crashes=in_flight),
        back=f"{back:.0f}s<=90s",
        leaks=found,
        **numbers,
    )
    assert found == 0
    assert back <= 90


def killed_at_random(case, box: Fleet, seed: int, *, kills: int, events: int) -> None:
    """One of those that work is killed, another takes its place; the planner as often as anybody."""
    rng, total, in_flight, planners = random.Random(seed), publish(box, events // 3), 0, 0
    box.wait_for(box.planner)
    for seconds in moments(rng, kills, 0.1, 1.5):
        wait_until(lambda: False, seconds)
        victim = pick(rng, box.workers)
        planners += victim is box.planner()
        in_flight += box.kill_worker(victim)
        box.start_worker()
        total += publish(box, (events - events // 3) // kills)
    settle(case, box, total, in_flight, kills=kills, planners=planners, workers=len(box.workers), seed=seed)


def test_case_91_the_planner_is_killed_and_another_plans(case, tmp_path, postgres_url, redis_server, seed):
    """In a quiet moment: leases of the dead would run out within a minute, as in the longer cases."""
    with fleet(tmp_path, postgres_url, redis_server.url, workers=2, interval=3.0) as box:
        total = publish(box, 12)
        box.wait_for(drained(box, total))
        first = box.planner()
        box.wait_for(box.is_idle)
        assert first is not None
        in_flight = box.kill_worker(first)
        began = time.monotonic()
        box.wait_for(box.planner)
        took = time.monotonic() - began
        total += publish(box, 12)
        settle(case, box, total, in_flight, taken_over=f"{took:.1f}s<=10s", seed=seed)
        assert took <= 10


@pytest.mark.faults
def test_case_91_three_workers_killed_at_random(case, tmp_path, postgres_url, redis_server, seed):
    with fleet(tmp_path, postgres_url, redis_server.url, workers=3) as box:
        killed_at_random(case, box, seed, kills=12, events=600)


@pytest.mark.faults
def test_case_92_the_same_with_the_queue_in_postgresql(case, tmp_path, postgres_url, seed):
    """The workers start at the same instant on a queue without tables."""
    with fleet(tmp_path, postgres_url, postgres_url, workers=4) as box:
        assert [worker.poll() for worker in box.workers] == [None] * 4
        killed_at_random(case, box, seed, kills=10, events=300)


@pytest.mark.faults
@pytest.mark.parametrize("queue", ["redis", "postgresql"])
def test_case_93_the_database_is_restarted_under_load(case, tmp_path, postgres_url, redis_server, seed, queue):
    rng, in_flight = random.Random(seed), 0
    with fleet(tmp_path, postgres_url, redis_server.url if queue == "redis" else postgres_url, workers=2) as box:
        total = publish(box, 120)
        box.wait_for(lambda: box.delivered() > 0)
        for how in ("fast", "immediate", "immediate"):
            total += publish(box, 60)
            wait_until(lambda: False, rng.uniform(0.3, 1.5))
            restart_postgres(postgres_url, how=how)
            in_flight += box.unsettled_since(time.time())
        alive = [worker.poll() for worker in box.workers]
        settle(case, box, total, in_flight, restarts=3, ended=sum(code is not None for code in alive), seed=seed)
        assert alive == [None, None]


@pytest.mark.faults
def test_case_94_redis_is_killed_and_emptied_under_load(case, tmp_path, postgres_url, redis_server, seed):
    rng = random.Random(seed)
    with fleet(tmp_path, postgres_url, redis_server.url, workers=2) as box:
        total = publish(box, 120)
        box.wait_for(lambda: box.delivered() > 0)
        for _ in range(3):
            total += publish(box, 40)
            wait_until(lambda: False, rng.uniform(0.2, 1.0))
            redis_server.forget()
            total += publish(box, 40)
            wait_until(lambda: False, rng.uniform(0.2, 1.0))
            redis_server.kill()
            wait_until(lambda: False, rng.uniform(0.2, 2.0))
            redis_server.start()
        alive = [worker.poll() for worker in box.workers]
        settle(case, box, total, 0, emptied=3, killed=3, ended=sum(code is not None for code in alive), seed=seed)
        assert alive == [None, None]


CUT_SECONDS = 20.0
"""Longer than a batch's lease, which is 15 s with a request's deadline of 5: what the lost host held is taken up."""


@pytest.mark.faults
def test_case_95_the_planners_host_is_cut_off_and_comes_back(case, tmp_path, postgres_url, redis_server, seed):
    """Two hosts. One loses the database, the queue, the source and the receiver at once, and nothing tells it so: first
    at rest, and the other does all of the work; then in the middle of it."""
    with (
        fleet(tmp_path, postgres_url, redis_server.url, workers=0) as box,
        on_hosts(box, redis_server, 2) as places,
    ):
        homes = {box.start_worker(*place.command(*CONSUMER)).pid: place for place in places}
        total = publish(box, 24)
        box.wait_for(lambda: drained(box, total)() and box.is_idle() and box.planner())
        lost = box.planner()
        assert lost is not None
        homes[lost.pid].cut()
        in_flight, began = box.in_flight(lost), time.monotonic()
        box.wait_for(lambda: box.planner() not in (None, lost))
        took = time.monotonic() - began
        total += publish(box, 48)
        box.wait_for(drained(box, total), seconds=90)
        alone = time.monotonic() - began - took
        homes[lost.pid].mend()
        total += publish(box, 60)
        box.wait_for(lambda: box.delivered() > total - 60)
        lost = box.planner()
        assert lost is not None
        homes[lost.pid].cut()
        in_flight += box.in_flight(lost)
        wait_until(lambda: False, CUT_SECONDS)
        homes[lost.pid].mend()
        total += publish(box, 24)
        alive = [worker.poll() for worker in box.workers]
        numbers = {"cuts": 2, "taken_over": f"{took:.1f}s<=10s", "alone": f"{alone:.1f}s", "seed": seed}
        settle(case, box, total, in_flight, ended=sum(code is not None for code in alive), **numbers)
        assert took <= 10
        assert alive == [None, None]
