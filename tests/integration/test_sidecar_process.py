"""`python -m csi.main` as a real process on loopback: start, serve, end."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from csi import main
from tests.fakes.youtube import simulated_youtube

ROOT = Path(__file__).parents[2]
SIDECAR = [sys.executable, "-m", "csi.main"]
CONSUMER = str(Path(sys.executable).parent / "huey_consumer")
WORKER = [CONSUMER, "huey_config.huey", "-w4", "-kthread", "-d0.05", "-m0.5", "-s1", "-gTERM", "-t10"]
HEADS = (b"GET /metrics HT", b"\x16\x03\x01\x00\xff", b"POST /admin/x HTTP/1.1\r\nHost: x\r\n")
TOKEN, SECRET = "canary-admin-token-0123", "canary-shared-secret-0123"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
POLL = "/admin/adapters/youtube_playlist/poll"


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def environment(folder: Path, **changes: str | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CSI_", "YOUTUBE_"))}
    ours = {
        "CSI_CONFIG_PATH": str(folder / "config.yaml"),
        "CSI_STATE_DIR": str(folder / "state"),
        "CSI_UA_ENDPOINT": "http://127.0.0.1:9/ingest",
        "CSI_UA_SHARED_SECRET": SECRET,
        "CSI_ADMIN_TOKEN": TOKEN,
        "YOUTUBE_API_KEY": "demo-key",
    }
    return kept | {name: value for name, value in {**ours, **changes}.items() if value is not None}


def write_config(folder: Path, text: str = "web: {host: 127.0.0.1}\n") -> None:
    (folder / "config.yaml").write_text(text)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)


class Process:
    """One sidecar (or worker), stopped by its own pid."""

    def __init__(self, folder: Path, command: list[str], **changes: str | None) -> None:
        self.folder, self.port = folder, free_port()
        self.output = (folder / f"out-{self.port}").open("w+b")
        self.errors = (folder / f"err-{self.port}").open("w+b")
        self.process = subprocess.Popen(
            command,
            stdout=self.output,
            stderr=self.errors,
            env=environment(folder, **{"PORT": str(self.port)} | changes),
            cwd=ROOT,
        )

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.text(self.errors)
        try:
            return httpx.get(self.url("/healthz"), timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60), time.monotonic() - started

    def text(self, file: object) -> str:
        return Path(file.name).read_text()  # type: ignore[attr-defined]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=10)
        self.output.close()
        self.errors.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(command: list[str] = SIDECAR, **changes: str | None) -> Process:
        started.append(Process(tmp_path, command, **changes))
        return started[-1]

    write_config(tmp_path)
    yield begin
    for process in started:
        process.close()


@pytest.fixture
def main_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """`main()` in this process, for the ways in which it does not even start."""

    def begin(config: str, **changes: str | None) -> tuple[int, str]:
        write_config(tmp_path, config + "\n")
        for name in set(os.environ) | set(changes):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment(tmp_path, **changes).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            main.main()
        output = capsys.readouterr()
        assert output.out == ""
        return int(end.value.code or 0), output.err

    monkeypatch.setattr(sys, "argv", ["csi.main"])
    monkeypatch.setattr(main.server, "leave_on_signals", lambda: None)
    return begin


def test_it_serves_without_a_worker_and_ends_on_term(start: Callable[..., Process]) -> None:
    sidecar = start()
    wait_for(sidecar.is_up)
    answer = httpx.get(sidecar.url("/healthz"))
    assert answer.json()["status"] == "healthy"
    assert "server" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
    ready = httpx.get(sidecar.url("/readyz"))
    assert (ready.status_code, ready.json()["database"]["ok"]) == (503, True)
    assert httpx.get(sidecar.url("/admin/events"), headers=ADMIN).json() == {"events": [], "next": None}
    assert "csi_events_total" in httpx.get(sidecar.url("/metrics")).text
    code, seconds = sidecar.stop()
    assert (code, seconds < 10) == (0, True)
    assert sidecar.text(sidecar.output) == ""
    log = sidecar.text(sidecar.errors)
    assert "sidecar listens" in log
    assert "Traceback" not in log
    assert TOKEN not in log
    assert SECRET not in log


def _polled(body: dict[str, Any]) -> bool:
    return bool(body["adapters"]) and all(adapter["polling"] for adapter in body["adapters"].values())


def test_worker_and_sidecar_at_once_on_an_empty_directory(start: Callable[..., Process], tmp_path: Path) -> None:
    with simulated_youtube(playlists=1, channels=1, videos=2) as youtube:
        playlist = f"{{api_base_url: {youtube.api_base_url}, playlists: [{{id: {youtube.playlists[0]}}}]}}"
        feed, watchlist = youtube.feed_url_template, f"[{{channel_id: {youtube.channels[0]}}}]"
        channel = f"{{feed_url_template: '{feed}', watchlist: {watchlist}}}"
        write_config(tmp_path, f"sources:\n  youtube_playlist: {playlist}\n  youtube_channel_rss: {channel}\n")
        worker, sidecar = start(command=WORKER), start()
        wait_for(sidecar.is_up)
        # Not the status: no receiver runs here, which the test of the destination at start reports.
        wait_for(lambda: _polled(httpx.get(sidecar.url("/readyz")).json()))
        body = httpx.get(sidecar.url("/readyz")).json()
        assert {name: adapter["polling"] for name, adapter in body["adapters"].items()} == {
            "youtube_playlist": True,
            "youtube_channel_rss": True,
        }
        assert httpx.get(sidecar.url("/livez")).status_code == 200
        assert (sidecar.stop()[0], worker.stop()[0]) == (0, 0)


def test_a_taken_port_is_one_sentence_and_exit_8(start: Callable[..., Process], tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        sidecar = start(PORT=str(port))
        assert sidecar.process.wait(timeout=60) == 8
    sentence = f"csi: 127.0.0.1:{port} is in use by another program: stop it, or choose another port"
    assert sidecar.text(sidecar.errors) == f"{sentence} with web.port or PORT\n"
    assert sidecar.text(sidecar.output) == ""
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("config", "changes", "code", "words"),
    [
        ("web: {host: 0.0.0.0}", {"CSI_ADMIN_TOKEN": None}, 3, "set CSI_ADMIN_TOKEN"),
        ("web: {host: '::'}", {"CSI_ADMIN_TOKEN": None}, 3, "set CSI_ADMIN_TOKEN"),
        ("web: {host: 'no such host'}", {}, 3, "web.host"),
        ("web: {hots: x}", {}, 3, "hots"),
        ("{}", {"CSI_UA_SHARED_SECRET": None}, 4, "CSI_UA_SHARED_SECRET"),
        ("{}", {"CSI_UA_ENDPOINT": None}, 4, "CSI_UA_ENDPOINT"),
        ("{}", {"PORT": "seven"}, 3, "PORT"),
        ("{}", {"CSI_CONFIG_PATH": "/nothing/here.yaml"}, 3, "/nothing/here.yaml"),
        ("{}", {"CSI_DB_PATH": "/proc/nothing/csi.db", "PORT": "0"}, 7, "/proc/nothing"),
    ],
)
def test_it_refuses_to_start_with_a_sentence(
    main_in: Callable[..., tuple[int, str]],
    config: str,
    changes: dict[str, str | None],
    code: int,
    words: str,
) -> None:
    ended, text = main_in(config, **changes)
    assert (ended, text.startswith("csi: ")) == (code, True), text
    assert words in text
    assert "Traceback" not in text
    assert SECRET not in text


def test_arguments_are_refused(main_in: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["csi.main", "--port", "80"])
    code, text = main_in("{}")
    assert (code, text.count("\n")) == (3, 1)
    assert "takes no arguments" in text


def test_term_does_not_wait_for_a_source_that_hangs(start: Callable[..., Process], tmp_path: Path) -> None:
    with (
        simulated_youtube(playlists=1, videos=1, faults="api:hang") as youtube,
        ThreadPoolExecutor(1) as pool,
    ):
        source = f"{{api_base_url: {youtube.api_base_url}, playlists: [{{id: {youtube.playlists[0]}}}]}}"
        write_config(tmp_path, f"sources:\n  youtube_playlist: {source}\n")
        sidecar = start()
        wait_for(sidecar.is_up)
        asked = pool.submit(httpx.post, sidecar.url(POLL), headers=ADMIN, timeout=60)
        wait_for(lambda: 'last_poll": "20' in httpx.get(sidecar.url("/readyz")).text)
        code, seconds = sidecar.stop()
        assert (code, seconds < 10) == (0, True)
        with pytest.raises((httpx.TransportError, AssertionError)):
            assert asked.result(timeout=5).status_code == 200
    # Its lease was given back, so that the next process may read the watch at once.
    again = start()
    wait_for(again.is_up)
    assert httpx.post(again.url(POLL), headers=ADMIN, timeout=60).json()["busy"] == 0


def test_hostile_bytes_and_a_crowd_leave_healthz_answering(start: Callable[..., Process]) -> None:
    sidecar = start()
    wait_for(sidecar.is_up)
    crowd = [socket.create_connection(("127.0.0.1", sidecar.port), timeout=10) for _ in range(300)]
    try:
        for number, wire in enumerate(crowd):
            wire.sendall(HEADS[number % len(HEADS)])
        assert httpx.get(sidecar.url("/healthz"), timeout=10).status_code == 200
    finally:
        for wire in crowd:
            wire.close()
    assert httpx.post(sidecar.url(POLL), content=bytes(20 * 1024 * 1024), timeout=20).status_code == 401
    assert httpx.get(sidecar.url("/healthz")).status_code == 200
    assert sidecar.stop()[0] == 0
    assert "Traceback" not in sidecar.text(sidecar.errors)
