"""Cases 115 and 116: a worker that is stopped for minutes, and one that gets no more memory."""

import signal
import time

import pytest

from tests.faults.oracle import Bounds
from tests.faults.test_storage import ask, sidecar
from tests.rigs.memory_limit import memory_limit
from tests.rigs.processes import (
    Redis,
    fleet,
    installation,
    leaks,
    publish,
    read_process_ledgers,
    tracebacks,
    wait_until,
)

LONGER_THAN_ANY_LEASE = 75.0
TEN_MINUTES = 600.0


@pytest.fixture
def redis_server():
    server = Redis()
    yield server
    server.kill()


@pytest.mark.faults
@pytest.mark.parametrize("seconds", [LONGER_THAN_ANY_LEASE, TEN_MINUTES])
def test_case_115_sigstop(case, tmp_path, seed, seconds):
    """Reported while it lasts; then everything that was published meanwhile is read, once, without a burst of polls."""
    with installation(tmp_path) as box, sidecar(box) as port:
        worker = box.start()
        total = publish(box, 20)
        box.wait_for(lambda: box.delivered() > 0 and ask(box, port, "readyz")[0] == 200, 60)
        total += publish(box, 20)
        worker.send_signal(signal.SIGSTOP)
        in_flight = box.in_flight(worker)
        stopped, said = time.monotonic(), 0.0
        while time.monotonic() - stopped < seconds:
            if not said and ask(box, port, "readyz")[0] == 503:
                said = time.monotonic() - stopped
            wait_until(lambda: False, 1)
            if time.monotonic() - stopped < 60:
                total += publish(box, 1)
        worker.send_signal(signal.SIGCONT)
        began = time.monotonic()
        box.wait_for_delivered(total, seconds=90)
        box.wait_for(lambda: ask(box, port, "readyz")[0] == 200, seconds=90)
        case.close(
            read_process_ledgers(box),
            Bounds(in_flight_at_crashes=in_flight),
            stopped=f"{seconds:.0f}s",
            said=f"{said:.0f}s<=45s",
            back=f"{time.monotonic() - began:.0f}s<=90s",
            tracebacks=tracebacks(box),
            seed=seed,
        )
        assert (worker.poll(), tracebacks(box), leaks(box)) == (None, 0, 0)
        assert 0 < said <= 45


@pytest.mark.faults
def test_case_115_the_leader_of_two_workers_is_stopped(case, tmp_path, postgres_url, redis_server, seed):
    """The other worker takes its rows when their leases expire; when it goes on, it settles nothing of them."""
    with fleet(tmp_path, postgres_url, redis_server.url, workers=2) as box:
        total = publish(box, 60)
        box.wait_for(lambda: box.delivered() > 0 and box.planner() is not None)
        stopped = box.planner()
        stopped.send_signal(signal.SIGSTOP)
        in_flight = box.in_flight(stopped)
        end = time.monotonic() + LONGER_THAN_ANY_LEASE
        while time.monotonic() < end:
            total += publish(box, 1) if time.monotonic() < end - 20 else 0
            wait_until(lambda: False, 1)
        by_the_other = box.delivered()
        stopped.send_signal(signal.SIGCONT)
        box.wait_for_delivered(total, seconds=90)
        wait_until(lambda: False, 5)  # what it held when it was stopped, it settles or not
        case.close(
            read_process_ledgers(box),
            Bounds(in_flight_at_crashes=in_flight),
            meanwhile=by_the_other,
            tracebacks=tracebacks(box),
            seed=seed,
        )
        assert [worker.poll() for worker in box.workers] == [None, None]
        assert by_the_other >= 60


@pytest.mark.faults
def test_case_116_the_kernel_ends_a_worker_without_memory(case, tmp_path, seed):
    """Its control group has no memory left; the service manager starts it again; nothing is lost."""
    with memory_limit("csi-case-116", 400) as limit, installation(tmp_path) as box:
        worker, in_flight, codes = box.start(), 0, []
        limit.join(worker.pid)
        total = publish(box, 20)
        box.wait_for(lambda: box.delivered() > 0)
        for _ in range(3):
            total += publish(box, 20)
            with limit.exhausted():
                box.wait_for(lambda worker=worker: worker.poll() is not None, 60)
            codes.append(worker.returncode)
            in_flight += box.in_flight(worker)
            worker = box.start()
            limit.join(worker.pid)
        began = time.monotonic()
        box.wait_for_delivered(total, seconds=90)
        case.close(
            read_process_ledgers(box),
            Bounds(in_flight_at_crashes=in_flight),
            ends="/".join(map(str, codes)),
            back=f"{time.monotonic() - began:.0f}s<=90s",
            tracebacks=tracebacks(box),
            seed=seed,
        )
        assert codes == [-signal.SIGKILL] * 3
