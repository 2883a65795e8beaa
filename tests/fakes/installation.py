"""A whole installation on loopback: simulated YouTube, real receiver, workers that can be killed, an oracle."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from csi.demo.reconciliation import DeliverySummary, EventRecord, LedgerContents, summarize
from csi.receiver.app import INGEST_PATH, create_app
from csi.receiver.settings import ReceiverSettings
from csi.simulator.http_server import serve_in_background
from tests.fakes.receiver import SECRET
from tests.fakes.youtube import SimulatedYouTube, simulated_youtube

ROOT = Path(__file__).resolve().parents[2]
CONSUMER = [
    sys.executable,
    "-m",
    "huey.bin.huey_consumer",
    "huey_config.huey",
    *["-w", "4", "-k", "thread", "-s", "1", "-g", "TERM", "-t", "25"],
]


class Installation:
    """One state directory and everything around it. Processes it started are ended by their pid."""

    def __init__(self, home: Path, yt: SimulatedYouTube, ua_url: str, **blocks: Any) -> None:
        self.home, self.yt, self.ua_url = home, yt, ua_url
        self.state = home / "state"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.configure(**blocks)

    def configure(self, *, first_poll: str = "all", queue: str | None = None, **blocks: Any) -> None:
        common = {"first_poll": first_poll, "poll_interval_seconds": 1, "quota_limit": 10_000_000}
        config = {
            "csi": {"state_dir": str(self.state), "log_format": "json", **({"queue": queue} if queue else {})},
            "sources": {
                "youtube_playlist": {
                    "api_base_url": self.yt.api_base_url,
                    "playlists": [{"id": ref} for ref in self.yt.playlists],
                    **common,
                },
                "youtube_channel_rss": {
                    "feed_url_template": self.yt.feed_url_template,
                    "watchlist": [{"channel_id": ref} for ref in self.yt.channels],
                    **{key: value for key, value in common.items() if key != "quota_limit"},
                },
            },
            "delivery": {"priority_behavior": {"standard": {"batch_size": 100, "max_delay_seconds": 0.2}}},
        } | blocks
        (self.home / "config.yaml").write_text(yaml.safe_dump(config))

    @property
    def env(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CSI_", "UA_", "COV_"))},
            "CSI_CONFIG_PATH": str(self.home / "config.yaml"),
            "CSI_UA_ENDPOINT": self.ua_url,
            "CSI_UA_SHARED_SECRET": SECRET,
            "YOUTUBE_API_KEY": self.yt.api_key,
            "PYTHONPATH": str(ROOT),
        }

    @property
    def log(self) -> Path:
        return self.home / "worker.log"

    def start(self, *line: str, **env: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                line or CONSUMER, env=self.env | env, stdout=log, stderr=log, cwd=self.home, start_new_session=True
            )
        self.processes.append(process)
        return process

    def start_doomed(self, point: str, nth: int = 1, *command: str) -> subprocess.Popen[bytes]:
        """A worker that ends at this point, or a `csi` command that does."""
        line = [sys.executable, "-m", "tests.fakes.doomed_worker", point, str(nth)]
        return self.start(*line, *(["--", *command] if command else []))

    def kill(self, process: subprocess.Popen[bytes]) -> int:
        """SIGKILL; how many events were in its hands, as far as the database knows."""
        process.kill()
        process.wait()
        return self.in_flight(process)

    def in_flight(self, process: subprocess.Popen[bytes]) -> int:
        """Events in requests that this process has begun and not settled."""
        sending = "SELECT COUNT(*) FROM outbox o JOIN batches b ON b.id = o.batch_id WHERE b.state = 'sending'"
        return (self.rows(f"{sending} AND b.lease_token LIKE '{process.pid}-%'") or [(0,)])[0][0]

    def change(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Another configuration for the next process."""
        path = self.home / "config.yaml"
        config = yaml.safe_load(path.read_text())
        edit(config)
        path.write_text(yaml.safe_dump(config))

    def csi(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command of the CLI to its end."""
        return self.run(sys.executable, "-m", "csi.cli.main", *arguments, **env)

    def run(self, *line: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        return subprocess.run(line, env=self.env | env, capture_output=True, text=True, cwd=self.home, timeout=60)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if not (self.state / "csi.db").exists():
            return []
        connection = sqlite3.connect(f"file:{self.state / 'csi.db'}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        finally:
            connection.close()

    def wait_for(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds} s\n{self.log.read_text()[-3000:]}"
            time.sleep(0.05)

    def delivered(self) -> int:
        return (self.rows("SELECT count(*) FROM events WHERE state = 'delivered'") or [(0,)])[0][0]

    def wait_for_delivered(self, number: int, seconds: float = 60.0) -> None:
        self.wait_for(lambda: self.delivered() >= number, seconds)

    def account(self) -> DeliverySummary:
        """The oracle: what was served, what is stored, what the receiver got."""
        columns = "event_id, dedupe_key, state, first_seen_at, delivered_at"
        received = [json.loads(line) for line in (self.home / "received.jsonl").read_text().splitlines()]
        served = [json.loads(line) for line in (self.home / "served.jsonl").read_text().splitlines()]
        books = LedgerContents(
            served=frozenset(line["key"] for line in served),
            events=tuple(EventRecord(*row) for row in self.rows(f"SELECT {columns} FROM events")),
            received=tuple(line["event_id"] for line in received if line["verdict"] in ("accepted", "duplicate")),
            dead=tuple(row[0] for row in self.rows("SELECT event_id FROM dead_letter WHERE state = 'open'")),
            inbox=self.rows("SELECT count(*) FROM inbox WHERE state = 'new'")[0][0],
        )
        return summarize(books)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextmanager
def installation(
    home: Path,
    *,
    channels: int = 1,
    playlists: int = 2,
    site: dict[str, Any] | None = None,
    build: Callable[..., Installation] = Installation,
    **blocks: Any,
) -> Iterator[Installation]:
    """`site` holds options of the simulated YouTube; the rest are blocks of the configuration."""
    settings = ReceiverSettings(secret=SECRET, db_path=home / "receiver.db", ledger_path=home / "received.jsonl")
    app = create_app(settings)
    (home / "served.jsonl").touch()
    (home / "received.jsonl").touch()
    with (
        simulated_youtube(
            channels=channels, playlists=playlists, ledger_path=home / "served.jsonl", **(site or {})
        ) as yt,
        serve_in_background(app) as url,
    ):
        built = build(home, yt, url + INGEST_PATH, **blocks)
        try:
            yield built
        finally:
            built.end()
