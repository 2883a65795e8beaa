"""The server of sidecar and receiver on loopback: head timeout, connection cap, accept errors."""

import asyncio
import errno
import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from loguru import logger
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from csi import server
from csi.server import LimitedServer, ServerLimits
from tests.fuzz import mutated

HEAD_SECONDS = 0.3
HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def slow(request: Request) -> Response:
    """Takes three times as long as a head may."""
    try:
        size = len(await request.body())
    except ClientDisconnect:
        return PlainTextResponse("cut", 400)
    await asyncio.sleep(3 * HEAD_SECONDS)
    return PlainTextResponse(str(size))


async def client(request: Request) -> Response:
    return PlainTextResponse(request.client.host if request.client else "")


@contextmanager
def running(limits: ServerLimits, trusted_proxies: tuple[str, ...] = ()) -> Iterator[int]:
    app = Starlette(routes=[Route("/", hello), Route("/client", client), Route("/slow", slow, methods=["POST"])])
    address = server.resolve("127.0.0.1", 0, setting="--host")
    with server.listen(address, setting="--port") as door:
        limited = LimitedServer(app, limits, trusted_proxies)
        thread = threading.Thread(target=limited.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield int(door.getsockname()[1])
        finally:
            limited.should_exit = True
            thread.join(10)


@pytest.fixture
def port() -> Iterator[int]:
    with running(ServerLimits(head_seconds=HEAD_SECONDS)) as port:
        yield port


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []
    sink = logger.add(lambda message: found.append(str(message.record["message"])), level="WARNING")
    yield found
    logger.remove(sink)


def connect(port: int, timeout: float = 5) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=timeout)


def read_to_end(wire: socket.socket) -> bytes:
    with suppress(ConnectionError):
        return b"".join(iter(lambda: wire.recv(65536), b""))
    return b""


def is_open(wire: socket.socket) -> bool:
    wire.settimeout(0.2)
    try:
        return wire.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("head", [b"", b"GET / HT", HALF_A_HEAD])
def test_half_a_head_is_closed_after_the_timeout(port: int, head: bytes) -> None:
    with connect(port) as wire:
        wire.sendall(head)
        assert read_to_end(wire) == b""


def test_dripping_bytes_do_not_extend_the_timeout(port: int) -> None:
    with connect(port, timeout=0.05) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(100):
            try:
                wire.sendall(b"x")
                if wire.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("the connection outlived five seconds of dripping")


def test_the_second_head_of_a_connection_has_the_same_timeout(port: int) -> None:
    with connect(port) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b"hello"):
            answer += wire.recv(65536)
        wire.sendall(HALF_A_HEAD)
        began = time.monotonic()
        assert read_to_end(wire) == b""
        assert time.monotonic() - began < 4  # less than the keep-alive timeout


def test_a_refused_body_that_never_ends_is_closed(port: int) -> None:
    with connect(port) as wire:
        wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\nxx")
        assert wire.recv(65536).startswith(b"HTTP/1.1 405")
        wire.sendall(b"x")
        read_to_end(wire)


def test_a_request_that_takes_longer_than_the_head_timeout_is_answered(port: int) -> None:
    with connect(port) as wire:
        wire.sendall(b"POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 6\r\n\r\n")
        for byte in b"slowly":
            time.sleep(HEAD_SECONDS / 4)  # the body alone takes longer than a head may
            wire.sendall(bytes([byte]))
        assert read_to_end(wire).endswith(b"\r\n\r\n6")


def test_a_connection_may_be_used_again(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert [client.get("/").status_code for _ in range(3)] == [200] * 3


def test_at_the_cap_the_oldest_idle_connection_is_closed(lines: list[str]) -> None:
    with running(ServerLimits(connections=8)) as port, ExitStack() as stack:
        wires = []
        for _ in range(10):
            wires.append(stack.enter_context(connect(port)))
            wires[-1].sendall(HALF_A_HEAD)
        assert [is_open(wire) for wire in wires] == [False] * 2 + [True] * 8
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=2).text == "hello"
        assert not is_open(wires[2])
    assert [line for line in lines if "connection limit reached" in line] == lines[:1]


def test_at_the_cap_idle_connections_are_closed_before_a_body_that_is_still_sent() -> None:
    with running(ServerLimits(connections=4)) as port, ExitStack() as stack:
        upload = stack.enter_context(connect(port))
        upload.sendall(b"POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 6\r\n\r\nsl")
        for _ in range(8):
            stack.enter_context(connect(port)).sendall(HALF_A_HEAD)
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=2).text == "hello"
        upload.sendall(b"owly")
        assert read_to_end(upload).endswith(b"\r\n\r\n6")


def test_bodies_that_are_never_sent_do_not_fill_the_cap() -> None:
    with running(ServerLimits(connections=8)) as port, ExitStack() as stack:
        for _ in range(8):
            wire = stack.enter_context(connect(port))
            wire.sendall(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nsl")
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=2).text == "hello"


def test_accept_errors_are_one_line_in_ten_seconds_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[dict[str, object]] = []
    monkeypatch.setattr(server.log, "warning", lambda message, **fields: written.append({"message": message, **fields}))
    limited, clock = LimitedServer(Starlette(), ServerLimits()), FakeLoop()
    failure = OSError(errno.EMFILE, "Too many open files")
    for clock.now in (0.0, 0.1, 9.9, 10.0, 10.1):
        context = {"message": "socket.accept() out of system resource", "exception": failure}
        limited.on_loop_error(clock, context)
    assert [line["count"] for line in written] == [1, 3]
    limited.on_loop_error(clock, {"message": "Task was destroyed but it is pending!"})
    assert clock.passed_on == ["Task was destroyed but it is pending!"]


class FakeLoop(asyncio.AbstractEventLoop):
    """An event loop with a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.passed_on: list[str] = []

    def time(self) -> float:
        return self.now

    def default_exception_handler(self, context: dict[str, str]) -> None:  # type: ignore[override]
        self.passed_on.append(context["message"])


REQUESTS = [
    b"POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
    b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\na\r\n0\r\nX: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na" * 2,
]


@pytest.mark.parametrize(
    "bad",
    [
        b"POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\0\r\n\r\n",
    ],
)
def test_bytes_that_are_not_http_behind_a_head_are_not_logged(
    port: int, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    """One request of 60 bytes was a traceback of 9 kB."""
    for wait in (False, True):  # in one piece, and when the response may have begun
        head, _, rest = bad.partition(b"\r\n\r\n")
        with connect(port) as wire:
            wire.sendall(head + b"\r\n\r\n" + (b"" if wait else rest))
            if wait:
                select.select([wire], [], [], 0.2)
                wire.sendall(rest)
            answer = read_to_end(wire)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 200"))
    assert httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).text == "hello"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_mutated_requests_are_answered_or_closed_without_an_error(port: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(16)
    for _ in range(150):
        data = mutated(rng.choice(REQUESTS), rng)[:20_000]
        cut = rng.randrange(len(data) + 1)
        with connect(port) as wire, suppress(ConnectionError):
            wire.sendall(data[:cut])
            wire.sendall(data[cut:])
            if rng.random() < 0.5:
                wire.settimeout(0.2)
                with suppress(OSError):
                    wire.shutdown(socket.SHUT_WR)
                    wire.recv(65_536)
    assert httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).text == "hello"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(("size", "status"), [(1, b"400"), (20, b"200")])
def test_a_body_in_chunks_of_a_few_bytes_is_refused(port: int, size: int, status: bytes) -> None:
    """Where the event loop is concerned, 2,000 of them are 2,000 requests."""
    chunk = b"%x\r\n%s\r\n" % (size, b"x" * size)
    head = b"POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(port) as wire:
        with suppress(ConnectionError):  # the server may close before it has read the rest
            wire.sendall(head + 2_000 * chunk + b"0\r\n\r\n")
        assert wire.recv(65_536).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    ("proxies", "forwarded", "client"),
    [
        ((), "203.0.113.7", "127.0.0.1"),
        (("10.0.0.0/8",), "203.0.113.7", "127.0.0.1"),
        (("127.0.0.1",), "203.0.113.7", "203.0.113.7"),
        (("127.0.0.0/8", "10.0.0.1"), "198.51.100.1, 203.0.113.7, 10.0.0.1", "203.0.113.7"),
        (("127.0.0.1",), None, "127.0.0.1"),
    ],
)
def test_only_a_trusted_proxy_names_the_client(proxies: tuple[str, ...], forwarded: str | None, client: str) -> None:
    """What a client writes into the header comes before what its proxy adds."""
    with running(ServerLimits(), proxies) as port:
        headers = {"X-Forwarded-For": forwarded} if forwarded else {}
        assert httpx.get(f"http://127.0.0.1:{port}/client", headers=headers, trust_env=False).text == client


def test_two_lengths_of_one_body_end_the_connection(port: int) -> None:
    """A proxy that reads the other length would take what follows the body for the request of another client."""
    smuggled = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
        wire.sendall(head % (len(smuggled) + 5) + smuggled)
        received = b""
        with suppress(ConnectionError):  # the server may close before it has read the rest
            while piece := wire.recv(65_536):
                received += piece
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1
