"""Case 121: connections whose request head is never complete, at the sidecar and at the receiver."""

import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from csi.ingester.event import CreatorSignalEvent
from csi.ingester.signature import canonical, headers
from tests.fakes.impatient_server import HEAD_SECONDS

ROOT = Path(__file__).parents[2]
SECRET = "canary-connections-secret-0123456789"
EVENT = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])
HALF_A_HEAD = b"POST /api/v1/signals/ingest HTTP/1.1\r\nHost: x\r\nAuthorization: Bear"
ANSWER_SECONDS = 2.0
LOG_BYTES_PER_MINUTE = 1_000_000
LIMITED = 'ulimit -S -n 1024; exec "$0" "$@"'
SERVERS = ["receiver", "sidecar"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_case_121_half_open_connections(case, tmp_path, name):
    attack(case, tmp_path, name, connections=1_100)


@pytest.mark.faults
@pytest.mark.parametrize("name", SERVERS)
def test_case_121_ten_thousand_half_open_connections(case, tmp_path, name):
    attack(case, tmp_path, name, connections=10_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_case_121_without_free_file_handles(case, tmp_path, name):
    """The server may open twenty more files: far fewer connections than its cap."""
    with raised_file_limit(2_000), started(name, tmp_path) as server:
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
        wires = open_half(server.port, 200)
        wait_until_closed(wires, seconds=60)
        answered = server.ask()
        lines = server.log().count("connections cannot be accepted")
        took, grown = server.seconds(), server.log_bytes()
        case.note(
            lines=f"{lines}<={took / 10 + 1:.0f}", log_bytes=grown, answered=f"{answered:.2f}s<={ANSWER_SECONDS}s"
        )
        assert 1 <= lines <= took / 10 + 1
        assert grown < LOG_BYTES_PER_MINUTE
        assert answered < ANSWER_SECONDS
        close(wires)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_case_121_a_head_of_one_byte_per_second(case, tmp_path, name):
    with started(name, tmp_path) as server:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port), timeout=1) as wire:
            wire.sendall(HALF_A_HEAD)
            while time.monotonic() - began < 3 * HEAD_SECONDS:
                try:
                    wire.sendall(b"x")
                    if wire.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
        took = time.monotonic() - began
        case.note(closed_after=f"{took:.1f}s<={HEAD_SECONDS + 2}s")
        assert HEAD_SECONDS - 0.5 < took < HEAD_SECONDS + 2


def attack(case, folder: Path, name: str, *, connections: int) -> None:
    """Valid requests are sent one after the other while the connections are opened and until all are closed."""
    with raised_file_limit(connections + 500), started(name, folder) as server:
        client = ValidClient(server)
        with client.asking():
            wires = open_half(server.port, connections)
            opened = time.monotonic()
            wait_until_closed(wires, seconds=HEAD_SECONDS + 20)
            closed_after = time.monotonic() - opened
        slowest, grown = max(client.seconds), server.log_bytes()
        bound = HEAD_SECONDS + 5
        case.note(
            connections=connections,
            answers=len(client.seconds),
            failed=len(client.failures),
            slowest=f"{slowest:.2f}s<={ANSWER_SECONDS}s",
            closed_after=f"{closed_after:.1f}s<={bound}s",
            log_bytes=f"{grown}<={LOG_BYTES_PER_MINUTE}",
            memory=f"{server.memory_mb()}MB",
        )
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft == (8192 if hard == resource.RLIM_INFINITY else min(8192, hard))
        assert client.failures == []
        assert slowest < ANSWER_SECONDS
        assert closed_after < bound
        assert grown < LOG_BYTES_PER_MINUTE
        assert "Traceback" not in server.log()
        close(wires)


@dataclass
class Server:
    """One real process. Its log is its standard error."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log_path: Path
    began: float = field(default_factory=time.monotonic)
    _number: int = 0

    def ask(self) -> float:
        """Seconds until a valid request on a new connection is answered."""
        began = time.monotonic()
        if self.name == "receiver":
            self._number += 1
            events = [EVENT | {"event_id": f"case-121-{self._number}"}]
            body = canonical({"csi_version": "1", "csi_instance_id": "c", "batch_id": "b", "events": events})
            signed = {"Authorization": f"Bearer {SECRET}"} | headers(SECRET, body, now=time.time())
            url = f"http://127.0.0.1:{self.port}/api/v1/signals/ingest"
            answer = httpx.post(url, content=body, headers=signed, timeout=10)
        else:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=10)
        assert answer.status_code == 200, answer.text
        return time.monotonic() - began

    def log(self) -> str:
        return self.log_path.read_text()

    def log_bytes(self) -> int:
        return self.log_path.stat().st_size

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def memory_mb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) // 1024


class ValidClient:
    """Sends valid requests from a thread and records how long each took."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.seconds: list[float] = []
        self.failures: list[str] = []

    @contextmanager
    def asking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(20)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            try:
                self.seconds.append(self._server.ask())
            except (httpx.HTTPError, AssertionError) as error:
                self.failures.append(repr(error))


@contextmanager
def started(name: str, folder: Path) -> Iterator[Server]:
    """The real server with a head timeout of seconds, and the usual soft limit of 1,024 open files."""
    port, log_path = free_port(), folder / "stderr"
    (folder / "config.yaml").write_text("web: {host: 127.0.0.1}\n")
    arguments = ["--port", str(port), "--db", str(folder / "r.db")] if name == "receiver" else []
    with log_path.open("wb") as errors:
        process = subprocess.Popen(
            ["/bin/sh", "-c", LIMITED, sys.executable, "-m", "tests.fakes.impatient_server", name, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment(folder, port),
            cwd=ROOT,
        )
    try:
        server = Server(name, process, port, log_path)
        wait_until_answered(server)
        yield server
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=10)


def environment(folder: Path, port: int) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CSI_", "UA_", "YOUTUBE_"))}
    return kept | {
        "CSI_CONFIG_PATH": str(folder / "config.yaml"),
        "CSI_STATE_DIR": str(folder / "state"),
        "CSI_UA_ENDPOINT": "http://127.0.0.1:9/ingest",
        "CSI_UA_SHARED_SECRET": SECRET,
        "UA_SIGNALS_INGEST_SHARED_SECRET": SECRET,
        "PORT": str(port),
    }


@contextmanager
def raised_file_limit(files: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        pytest.skip(f"the hard limit of open files is {hard}; this case needs {files}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def wait_until_answered(server: Server) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.process.poll() is None, server.log()
        try:
            server.ask()
            return
        except httpx.TransportError:
            time.sleep(0.05)
    pytest.fail("the server did not answer within a minute")


def open_half(port: int, number: int) -> list[socket.socket]:
    wires = []
    for _ in range(number):
        wire = socket.create_connection(("127.0.0.1", port), timeout=30)
        wires.append(wire)
        try:
            wire.sendall(HALF_A_HEAD)
        except ConnectionError:
            continue  # closed by the server already
    return wires


def wait_until_closed(wires: list[socket.socket], *, seconds: float) -> None:
    """A closed connection is readable; the server sends nothing on a connection without a request."""
    poll, end = select.poll(), time.monotonic() + seconds
    for wire in wires:
        poll.register(wire, select.POLLIN)
    waiting = {wire.fileno() for wire in wires}
    while waiting:
        assert time.monotonic() < end, f"{len(waiting)} of {len(wires)} connections are still open"
        for descriptor, _ in poll.poll(1000):
            poll.unregister(descriptor)
            waiting.discard(descriptor)


def close(wires: list[socket.socket]) -> None:
    for wire in wires:
        wire.close()
