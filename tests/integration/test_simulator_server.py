"""The simulated YouTube on real sockets: broken connections, concurrency, and the command."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from csi.errors import PortInUse
from csi.simulator.http_server import listen
from tests.fakes.youtube import simulated_youtube

BRIEF = httpx.Timeout(5, read=0.05)


def test_world_and_counters_are_readable_from_the_test() -> None:
    with simulated_youtube(channels=2, playlists=1, videos=3) as yt, httpx.Client() as http:
        video = yt.upload(yt.channels[0], "fresh")
        answer = http.get(yt.feed_url(yt.channels[0]))
        assert f"<yt:videoId>{video}</yt:videoId>" in answer.text
        added = yt.add(yt.playlists[0])
        items = http.get(
            f"{yt.api_base_url}/playlistItems",
            params={"part": "contentDetails", "playlistId": yt.playlists[0]},
            headers={"X-Goog-Api-Key": yt.api_key},
        ).json()["items"]
        assert items[-1]["contentDetails"]["videoId"] == added
        yt.wait_for(lambda: yt.requests.count() == 2)
        assert yt.requests.count("videos.xml", 200, yt.channels[0]) == 1
        assert yt.requests.count("playlistItems") == 1


def test_uvicorn_adds_no_header_of_its_own() -> None:
    with simulated_youtube(channels=1) as yt:
        answer = httpx.get(yt.feed_url(yt.channels[0]))
    assert answer.headers.get_list("server", split_commas=False) == ["YouTube RSS Feeds server"]
    assert len(answer.headers.get_list("date", split_commas=False)) == 1


@pytest.mark.parametrize("fault", ["reset", "cut"])
def test_a_broken_connection_is_an_error_and_not_in_the_ledger(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "served.jsonl"
    with simulated_youtube(channels=1, videos=15, ledger_path=path, faults=f"feed:{fault}") as yt:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            httpx.get(yt.feed_url(yt.channels[0]))
        yt.wait_for(lambda: yt.requests.count(status=0) == 1)
        assert path.read_text() == ""
        yt.set_faults("")
        assert httpx.get(yt.feed_url(yt.channels[0])).status_code == 200
        yt.wait_for(lambda: len(path.read_text().splitlines()) == 15)


def test_a_client_that_disconnected_was_not_served(tmp_path: Path) -> None:
    path = tmp_path / "served.jsonl"
    with simulated_youtube(channels=1, videos=2, ledger_path=path, faults="feed:slow=400ms") as yt:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(yt.feed_url(yt.channels[0]), timeout=BRIEF)
        yt.wait_for(lambda: yt.requests.count(status=0) == 1)
        assert path.read_text() == ""


def test_a_dripping_response_is_complete_only_without_a_client_timeout(tmp_path: Path) -> None:
    path = tmp_path / "served.jsonl"
    with simulated_youtube(channels=1, videos=3, ledger_path=path, faults="feed:drip=0.1ms") as yt:
        assert httpx.get(yt.feed_url(yt.channels[0])).text.endswith("</feed>\n")
        yt.wait_for(lambda: len(path.read_text().splitlines()) == 3)
        yt.set_faults("feed:drip=20ms")
        with httpx.stream("GET", yt.feed_url(yt.channels[0])) as answer:
            next(answer.iter_raw())
        yt.wait_for(lambda: yt.requests.count(status=0) == 1)


def test_stopping_does_not_wait_for_hanging_responses() -> None:
    with simulated_youtube(channels=1, faults="feed:hang") as yt:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(yt.feed_url(yt.channels[0]), timeout=BRIEF)
        yt.set_faults("feed:slow=1h")
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(yt.feed_url(yt.channels[0]), timeout=BRIEF)
        begun = time.monotonic()
    assert time.monotonic() - begun < 2


def test_hundreds_of_requests_wait_for_the_latency_concurrently() -> None:
    with simulated_youtube(channels=300, videos=1, latency=0.3) as yt:
        lines = asyncio.run(get_all(yt.base_url, yt.channels))
        assert lines == {b"HTTP/1.1 200 OK\r\n"}
        assert yt.requests.peak > 20


async def get_all(base_url: str, refs: tuple[str, ...]) -> set[bytes]:
    """Status lines, read without a client library: its own work would take most of the time."""
    port = int(base_url.rpartition(":")[2])

    async def get_one(ref: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /feeds/videos.xml?channel_id={ref} HTTP/1.1\r\nHost: sim\r\n\r\n".encode())
        line = await reader.readline()
        writer.close()
        return line

    return set(await asyncio.gather(*map(get_one, refs)))


def test_a_taken_port_is_an_error() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(PortInUse, match="is taken by another program"):
        listen("127.0.0.1", taken.getsockname()[1])


# The command


@contextmanager
def command(*options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "csi.cli.main", "simulate", "youtube", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def announced(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    sentence = process.stdout.readline()
    facts: dict[str, Any] = json.loads(process.stdout.readline())
    assert sentence == f"simulated YouTube listening on {facts['base_url']}\n"
    return facts


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_address_serves_and_stops(sign: signal.Signals, tmp_path: Path) -> None:
    ledger = tmp_path / "served.jsonl"
    options = [
        "--channels",
        "2",
        "--playlists",
        "1",
        "--rate",
        "50",
        "--api-key",
        "k",
        "--ledger",
        str(ledger),
    ]
    with command(*options) as process:
        facts = announced(process)
        assert (len(facts["channels"]), len(facts["playlists"])) == (2, 1)
        feed = httpx.get(facts["feed_url_template"].format(channel_id=facts["channels"][0]))
        assert feed.text.count("<entry>") == 15
        params = {"part": "id", "playlistId": facts["playlists"][0]}
        items = httpx.get(f"{facts['api_base_url']}/playlistItems", params=params, headers={"x-goog-api-key": "k"})
        assert items.json()["pageInfo"]["totalResults"] >= 15
        before = httpx.get(f"{facts['base_url']}/sim/state").json()["videos"]
        end = time.monotonic() + 5
        while httpx.get(f"{facts['base_url']}/sim/state").json()["videos"] <= before:
            assert time.monotonic() < end
        begun = time.monotonic()
        process.send_signal(sign)
        assert process.wait(5) == 0
        assert time.monotonic() - begun < 3
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert len(ledger.read_text().splitlines()) >= 15


def test_the_command_refuses_a_taken_port_and_a_bad_script_in_one_line() -> None:
    with listen("127.0.0.1", 0) as taken, command("--port", str(taken.getsockname()[1])) as process:
        _, said = process.communicate(timeout=10)
        assert process.returncode == 8
        assert said.startswith("csi: 127.0.0.1:")
    with command("--faults", "feed:boom") as process:
        _, said = process.communicate(timeout=10)
        assert process.returncode == 2
        assert said.startswith("csi: fault 'feed:boom': no action 'boom'")


def test_the_command_stops_after_its_seconds() -> None:
    with command("--seconds", "0.2", "--channels", "0", "--playlists", "0", "--rate", "1") as process:
        announced(process)
        assert process.wait(5) == 0
