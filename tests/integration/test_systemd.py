"""sd_notify: a datagram where the service manager listens, and nothing where nobody does."""

import asyncio
import secrets
import socket

import pytest
from starlette.applications import Starlette

from csi import systemd
from csi.server import LimitedServer, ServerLimits


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """What NOTIFY_SOCKET says, and the socket behind it."""
    name = f"@csi-{secrets.token_hex(6)}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind("\0" + name[1:] if name.startswith("@") else name)
        door.settimeout(5)
        yield name, door


def test_lines_arrive_as_one_datagram(manager):
    name, door = manager
    assert systemd.notify(systemd.READY, systemd.status("two\nlines"), env={"NOTIFY_SOCKET": name})
    assert door.recv(4096) == b"READY=1\nSTATUS=two lines"


def test_a_reload_says_when_it_began(manager):
    name, door = manager
    systemd.notify(*systemd.reloading(), env={"NOTIFY_SOCKET": name})
    first, second = door.recv(4096).decode().splitlines()
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


@pytest.mark.parametrize("name", ["", "relative", "/nowhere/notify", "@csi-nobody-listens-here"])
def test_where_nobody_listens_nothing_happens(name):
    assert systemd.notify(systemd.READY, env={"NOTIFY_SOCKET": name} if name else {}) is False


def test_the_sidecars_loop_gives_a_sign_every_five_seconds(manager, monkeypatch):
    name, door = manager
    monkeypatch.setattr(systemd.notify, "__kwdefaults__", {"env": {"NOTIFY_SOCKET": name}})
    server = LimitedServer(Starlette(), ServerLimits())
    for turn in range(51):
        asyncio.run(server.on_tick(turn))
    assert [door.recv(4096) for _ in range(2)] == [b"READY=1\nWATCHDOG=1"] * 2
    door.setblocking(False)
    with pytest.raises(BlockingIOError):
        door.recv(4096)
