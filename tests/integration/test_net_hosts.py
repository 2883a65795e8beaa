"""The limit of concurrent requests per host; waiting for one host does not delay requests to another."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from csi.errors import NetError
from csi.net import HttpLimits, Net
from tests.fakes.raw_server import RawRequest, RawServer, Script, Send, answer

PATIENT = HttpLimits(total=20.0)
HASTY = HttpLimits(total=0.2)


class Gate:
    """A host that answers when the gate opens, and counts the requests inside."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.peak = 0
        self._lock = threading.Lock()

    def __call__(self, asked: RawRequest) -> Script:
        with self._lock:
            self.inside += 1
            self.peak = max(self.peak, self.inside)
        self.open.wait(10)
        with self._lock:
            self.inside -= 1
        return [Send(answer(200, b"in"))]


def until(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def waiting(net: Net) -> int:
    """Threads that wait for a slot; nothing in production asks for their number."""
    return len(net._slots._change._waiters)


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.open.set()


@pytest.fixture
def busy(gate):
    """A host with its two lanes taken, and the client that took them."""
    with RawServer(gate) as server, Net(max_per_host=2) as net, ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(net.get, server.url, limits=PATIENT) for _ in range(2)]
        until(lambda: gate.inside == 2)
        yield server, net, pool
        gate.open.set()
        assert [call.result().body for call in calls] == [b"in"] * 2


def test_a_host_never_sees_more_than_its_share_and_everybody_gets_a_turn(gate):
    with RawServer(gate) as server, Net(max_per_host=3) as net, ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(net.get, server.url, limits=PATIENT) for _ in range(12)]
        until(lambda: gate.inside == 3 and waiting(net) == 9)
        gate.open.set()
        assert [call.result().status for call in calls] == [200] * 12
        assert gate.peak == 3
        assert net._slots._open == {}


def test_sixteen_at_once_unless_told_otherwise(gate):
    with RawServer(gate) as server, Net() as net, ThreadPoolExecutor(20) as pool:
        calls = [pool.submit(net.get, server.url, limits=PATIENT) for _ in range(18)]
        until(lambda: waiting(net) == 2 and gate.inside == 16)
        gate.open.set()
        assert gate.peak == 16
        assert all(call.result().status == 200 for call in calls)


def test_who_waits_too_long_is_told_that_the_host_is_busy(busy):
    server, net, _ = busy
    started = time.monotonic()
    with pytest.raises(NetError) as caught:
        net.get(f"{server.url}/feed?key=secret", limits=HASTY)
    assert caught.value.kind == "busy"
    assert "2 requests to this host" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert 0.15 < time.monotonic() - started < 2
    assert waiting(net) == 0
    assert len(server.requests) == 2  # nothing of it was sent


def test_other_hosts_are_not_held_up(busy):
    server, net, pool = busy
    calls = [pool.submit(net.get, server.url, limits=PATIENT) for _ in range(6)]
    until(lambda: waiting(net) == 6)
    with RawServer([Send(answer(200, b"other"))]) as other:
        assert net.get(other.url, limits=HttpLimits(total=2.0)).body == b"other"
    assert not any(call.done() for call in calls)


def test_posts_have_limits_of_their_own(busy):
    server, net, pool = busy
    call = pool.submit(net.post, server.url, body=b"{}", headers={}, limits=PATIENT)
    until(lambda: len(server.requests) == 3)
    assert not call.done()


def test_a_failed_request_gives_its_turn_back():
    with RawServer([]) as gone:
        url = gone.url
    with Net(max_per_host=1) as net:
        for _ in range(3):
            with pytest.raises(NetError) as caught:
                net.get(url, limits=HttpLimits(total=2.0))
            assert caught.value.kind == "connect"
        assert net._slots._open == {}


def test_a_redirect_on_the_same_host_needs_one_turn_at_a_time():
    def hop(asked: RawRequest) -> Script:
        if asked.target == "/":
            return [Send(answer(302, b"", [("Location", "/there")]))]
        return [Send(answer(200, b"there"))]

    with RawServer(hop) as server, Net(max_per_host=1) as net:
        assert net.get(server.url, limits=HttpLimits(total=5.0)).body == b"there"
