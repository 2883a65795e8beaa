"""Unit tests open no database, no socket and no process: what does belongs to tests/integration."""

import sys
from collections.abc import Iterator

import pytest

FORBIDDEN = ("sqlite3.connect", "socket.connect", "socket.bind", "subprocess.Popen", "os.fork", "os.posix_spawn")
_running_unit_test = False


def _refuse(event: str, args: tuple[object, ...]) -> None:
    if _running_unit_test and event in FORBIDDEN:
        raise AssertionError(f"tests/unit used {event} {args!r:.200}; move it to tests/integration")


sys.addaudithook(_refuse)  # an audit hook sees every way to do it, and cannot be removed: the flag switches it


@pytest.fixture(autouse=True)
def _no_database_socket_or_process() -> Iterator[None]:
    global _running_unit_test
    _running_unit_test = True
    yield
    _running_unit_test = False
