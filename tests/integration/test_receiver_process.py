"""`csi receiver` as a real process on loopback: raw bytes, signals, kill -9."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from csi.ingester.event import CreatorSignalEvent
from csi.ingester.signature import canonical, headers

SECRET = "canary-process-secret-0123456789"
EVENT: dict[str, Any] = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])  # type: ignore[index, arg-type]
COMMAND = [sys.executable, "-m", "csi.cli.main", "receiver"]
ROOT = Path(__file__).parents[2]
CAP = 8 * 1024 * 1024


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UA_", "CSI_"))}
    return kept | {"UA_SIGNALS_INGEST_SHARED_SECRET": SECRET} | changes


class Process:
    """One receiver, stopped by its own pid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.errors = (folder / "stderr").open("ab")
        self.process = subprocess.Popen(
            [*COMMAND, "--port", "0", "--db", str(folder / "r.db"), "--ledger", str(folder / "ledger.jsonl")],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment(),
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().decode()
        self.advice = [self.process.stdout.readline().decode() for _ in range(2)]
        self.url = self.line.rpartition(" ")[2].strip()
        self.host, self.port = urlsplit(self.url).hostname or "", urlsplit(self.url).port or 0

    def send(self, *names: str) -> httpx.Response:
        body = body_of(*names)
        return httpx.post(self.url, content=body, headers=signed(body), timeout=10)

    def raw(self, request: bytes) -> tuple[int, bytes]:
        """What comes back on a plain socket until the other side is done; (0, …) when nothing did."""
        with socket.create_connection((self.host, self.port), timeout=10) as wire:
            wire.sendall(request)
            answer = b"".join(iter(lambda: wire.recv(65536), b""))
        return (int(answer.split(b" ", 2)[1]) if answer else 0), answer

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=15)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
        return code

    def logged(self) -> str:
        return (self.folder / "stderr").read_text()


def body_of(*names: str) -> bytes:
    events = [EVENT | {"event_id": name} for name in names]
    envelope = {"csi_version": "1.0.0", "csi_instance_id": "csi-1", "batch_id": "b1", "events": events}
    return canonical(envelope)


def signed(body: bytes) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRET}"} | headers(SECRET, body, now=time.time())


def request_of(body: bytes, *extra: tuple[str, bytes], **changes: bytes | None) -> bytes:
    """A request as bytes; `changes` replace headers by name (None drops one), `extra` adds more."""
    fields: dict[str, bytes | None] = {name.lower(): value.encode() for name, value in signed(body).items()}
    fields |= {"host": b"x", "connection": b"close", "content-length": b"%d" % len(body)}
    fields |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [(name, value) for name, value in [*fields.items(), *extra] if value is not None]
    head = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in lines)
    return b"POST /api/v1/signals/ingest HTTP/1.1\r\n" + head + b"\r\n" + body


def stored(folder: Path) -> set[str]:
    with sqlite3.connect(folder / "r.db") as db:
        found = {row[0] for row in db.execute("SELECT event_id FROM signals")}
    db.close()
    return found


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("receiver"))
    yield process
    process.stop()


def test_it_says_where_it_listens_and_accepts(receiver: Process) -> None:
    assert receiver.line == f"receiver listening on http://127.0.0.1:{receiver.port}/api/v1/signals/ingest\n"
    assert receiver.advice == [
        f"to point CSI at it: CSI_UA_ENDPOINT={receiver.url}\n",
        "  CSI_UA_SHARED_SECRET=the value of UA_SIGNALS_INGEST_SHARED_SECRET; then: csi delivery test\n",
    ]
    assert receiver.send("hello").json() == {"ok": True, "accepted": 1, "rejected": 0, "errors": []}
    answer = httpx.get(f"http://127.0.0.1:{receiver.port}/readyz")
    assert (answer.json(), "server" in answer.headers) == ({"ok": True}, False)


@pytest.mark.parametrize("name", ["authorization", "x_csi_signature", "x_csi_timestamp", "x_csi_request_id"])
@pytest.mark.parametrize("value", [b"", b"\xff\xfe", "Bearer ü€".encode(), b"Bearer " + b"x" * 100_000, b"7" * 5000])
def test_strange_credentials_are_401(receiver: Process, name: str, value: bytes) -> None:
    assert receiver.raw(request_of(body_of("strange"), **{name: value}))[0] == 401


@pytest.mark.parametrize("name", ["authorization", "x-csi-signature", "x-csi-timestamp", "x-csi-request-id"])
def test_doubled_headers_are_401(receiver: Process, name: str) -> None:
    body = body_of("doubled")
    assert receiver.raw(request_of(body, (name, signed(body)["Authorization"].encode())))[0] == 401


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /api/v1/signals/ingest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"x" * 10**6 + b"\r\n\r\n",
        request_of(b"{}", content_length=b"-1"),
        request_of(b"{}", ("content-length", b"7")),
        request_of(b"{}", content_length=None, transfer_encoding=b"nonsense"),
        b"\x16\x03\x01\x00\x00",
        b"POST /api/v1/signals/ingest HTTP/9.9\r\nConnection: close\r\n\r\n",
    ],
    ids=[
        "long header",
        "negative length",
        "two lengths",
        "unknown encoding",
        "TLS",
        "HTTP/9.9",
    ],  # the same in each process
)
def test_broken_http_never_is_a_500(receiver: Process, request_bytes: bytes) -> None:
    try:
        status, _ = receiver.raw(request_bytes)
    except ConnectionError:
        status = 0  # hung up on, which is an answer too
    assert status == 0 or 400 <= status < 500 or status == 501
    assert httpx.get(f"http://127.0.0.1:{receiver.port}/healthz").status_code == 200


def test_the_sender_of_a_long_body_sees_413_not_a_reset(receiver: Process) -> None:
    body = b"x" * (CAP + 1)
    answer = httpx.post(receiver.url, content=body, headers=signed(b""), timeout=20)
    assert (answer.status_code, answer.json()["error"]) == (413, "body_too_large")


def test_a_long_body_without_a_length_is_cut_off(receiver: Process) -> None:
    chunk = b"x" * 65536
    answer = httpx.post(receiver.url, content=iter([chunk] * 130), headers=signed(b""), timeout=20)
    assert (answer.status_code, answer.json()["error"]) == (413, "body_too_large")


def test_the_sender_of_a_refused_body_sees_401_not_a_reset(receiver: Process) -> None:
    body = b"x" * (4 * 1024 * 1024)
    answer = httpx.post(receiver.url, content=body, headers={"Authorization": "Bearer wrong"}, timeout=20)
    assert (answer.status_code, answer.json()["error"]) == (401, "missing_header")


def test_a_refused_expect_request_gets_no_100_continue(receiver: Process) -> None:
    request = request_of(b"", content_length=b"999999999", expect=b"100-continue")
    status, answer = receiver.raw(request)
    assert (status, b"100 Continue" in answer) == (413, False)


def test_slow_strangers_do_not_take_the_places_of_senders(receiver: Process) -> None:
    """Forty connections that promise a body and never send it; without the token none holds a slot."""
    wires = [socket.create_connection((receiver.host, receiver.port), timeout=10) for _ in range(40)]
    for wire in wires:
        wire.sendall(request_of(b"", authorization=b"Bearer wrong", content_length=b"1000"))
    assert receiver.send("beside-strangers").status_code == 200
    for wire in wires:
        wire.close()


def test_identical_batches_at_once_are_accepted_once(receiver: Process) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: receiver.send("twin-a", "twin-b"), range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]


def test_no_secret_in_what_it_said(receiver: Process) -> None:
    receiver.send("quiet")
    assert SECRET not in receiver.logged() + receiver.line
    assert "Traceback" not in receiver.logged()


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    first = Process(tmp_path)
    acknowledged: set[str] = set()
    enough = threading.Event()

    def keep_sending(lane: int) -> None:
        for number in range(10_000):
            name = f"lane{lane}-{number}"
            try:
                if first.send(name).status_code == 200:
                    acknowledged.add(name)
            except httpx.HTTPError:
                return
            if len(acknowledged) >= 30:
                enough.set()

    lanes = [threading.Thread(target=keep_sending, args=(lane,)) for lane in range(3)]
    for lane in lanes:
        lane.start()
    assert enough.wait(20)
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    for lane in lanes:
        lane.join(20)
    lost = acknowledged - stored(tmp_path)
    extra = stored(tmp_path) - acknowledged
    assert not lost, f"lost={len(lost)} acknowledged={len(acknowledged)}"
    assert len(extra) <= 3  # at most one per lane: committed, but its answer did not get out
    second = Process(tmp_path)
    known = sorted(acknowledged)[:10]
    assert second.send(*known).status_code == 409
    assert second.send("fresh").status_code == 200
    assert second.stop() == 0
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert acknowledged <= {line["event_id"] for line in lines if line["verdict"] == "accepted"}


def test_term_finishes_the_request_in_hand(tmp_path: Path) -> None:
    process = Process(tmp_path)
    body = body_of("in-hand")
    request = request_of(body)
    with socket.create_connection((process.host, process.port), timeout=10) as wire:
        wire.sendall(request[:-10])
        assert process.send("before").status_code == 200  # the first request is being read by now
        process.process.send_signal(signal.SIGTERM)
        _wait_until_closed(process)
        wire.sendall(request[-10:])
        answer = wire.recv(65536)
    assert b"200 OK" in answer
    assert process.stop() == 0
    assert stored(tmp_path) == {"before", "in-hand"}


def _wait_until_closed(process: Process) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            socket.create_connection((process.host, process.port), timeout=1).close()
        except OSError:
            return
        threading.Event().wait(0.01)
    pytest.fail("still accepting connections after TERM")


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**changes),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], code: int, word: str) -> bool:
    """One sentence on stderr, nothing on stdout, no traceback, no secret."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert SECRET not in done.stderr
    return word in done.stderr


@pytest.mark.parametrize("value", ["", "your-secret-here", "has\nnewline-secret"])
def test_no_real_secret_no_start(tmp_path: Path, value: str) -> None:
    done = run("--db", str(tmp_path / "r.db"), UA_SIGNALS_INGEST_SHARED_SECRET=value)
    assert refused(done, 4, "UA_SIGNALS_INGEST_SHARED_SECRET")
    assert not (tmp_path / "r.db").exists()


def test_a_taken_port_is_said(tmp_path: Path, receiver: Process) -> None:
    done = run("--port", str(receiver.port), "--db", str(tmp_path / "r.db"))
    assert refused(done, 8, f"127.0.0.1:{receiver.port} is in use")


def test_a_foreign_address_is_said(tmp_path: Path) -> None:
    done = run("--host", "192.0.2.1", "--port", "0", "--db", str(tmp_path / "r.db"))
    assert refused(done, 3, "192.0.2.1")


def test_an_unusable_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_text("not a database " * 500)
    assert refused(run("--port", "0", "--db", str(tmp_path / "r.db")), 7, "r.db")
