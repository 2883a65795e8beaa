"""Hosts for workers: network namespaces, each with one link to the servers that a test can cut.

The servers listen on loopback and on sockets of the test's own namespace. A host forwards the same ports of its own
loopback to them, so that every host has the same configuration.
`python -m tests.rigs.network_namespaces PORT…` runs the forwards of one host.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import pytest

NET = os.environ.get("CSI_TEST_NET") or f"10.213.{os.getpid() % 250}"
SERVERS = f"{NET}.1"
"""The servers' end of the links: an address of the test's own namespace that exists only during the test."""

Upstream = tuple[str, int] | str
"""(host, port), or the path of a socket."""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class NamespaceHost:
    """A network namespace with a loopback and one link."""

    def __init__(self, number: int) -> None:
        self.name, self.wire = f"csi-{os.getpid()}-{number}", f"csi{os.getpid() % 100_000}w{number}"
        here, there = f"{NET}.{4 * number + 5}", f"{NET}.{4 * number + 6}"
        _ip("netns", "add", self.name)
        _ip("link", "add", self.wire, "type", "veth", "peer", "name", "wire", "netns", self.name)
        _ip("addr", "add", f"{here}/30", "dev", self.wire)
        _ip("link", "set", self.wire, "up")
        for words in (("addr", "add", f"{there}/30", "dev", "wire"), ("link", "set", "wire", "up")):
            _ip("-n", self.name, *words)
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "route", "add", "default", "via", here)
        self._forwards: subprocess.Popen[bytes] | None = None

    def command(self, *command: str) -> list[str]:
        """The command line that runs this command on this host."""
        return ["ip", "netns", "exec", self.name, *command]

    def reach(self, ports: list[int]) -> None:
        """Forward these ports of its loopback to the same ports of SERVERS."""
        command = self.command(sys.executable, "-m", "tests.rigs.network_namespaces", *map(str, ports))
        self._forwards = subprocess.Popen(command, env=os.environ | {"CSI_TEST_NET": NET}, stdout=subprocess.PIPE)
        assert self._forwards.stdout is not None
        self._forwards.stdout.readline()

    def cut(self) -> None:
        """Cut the link without a reset: packets are lost, connections stay open and silent."""
        _ip("link", "set", self.wire, "down")

    def mend(self) -> None:
        _ip("link", "set", self.wire, "up")

    def remove(self) -> None:
        if self._forwards is not None:
            self._forwards.kill()
            self._forwards.wait()
        for words in (("link", "del", self.wire), ("netns", "del", self.name)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*words)


class Forward:
    """A listening address that forwards to a server."""

    def __init__(self, address: tuple[str, int], upstream: Upstream) -> None:
        self.upstream = upstream
        self._listener = socket.create_server(address, backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with contextlib.suppress(OSError):
                    self._join(client)

    def _join(self, client: socket.socket) -> None:
        family = socket.AF_UNIX if isinstance(self.upstream, str) else socket.AF_INET
        server = socket.socket(family)
        server.connect(self.upstream)
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=_pump, args=(one, other), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def hosts(number: int, servers: Mapping[int, Upstream]) -> Iterator[list[NamespaceHost]]:
    """Hosts that reach these servers, each under its port. Skips the test where namespaces cannot be created."""
    made: list[NamespaceHost] = []
    _need_namespaces()
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ["ip", "addr", "del", f"{SERVERS}/32", "dev", "lo"], capture_output=True)
        for port, upstream in servers.items():
            stack.enter_context(Forward((SERVERS, port), upstream))
        for index in range(number):
            made.append(NamespaceHost(index))
            stack.callback(made[-1].remove)
            made[-1].reach(list(servers))
        yield made


def _need_namespaces() -> None:
    how = "run as root with the command `ip` (Debian: iproute2)"
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip(f"network namespaces cannot be made: {how}")
    try:
        _ip("addr", "add", f"{SERVERS}/32", "dev", "lo")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made ({error.stderr.strip()}): {how}")


def main() -> None:
    for port in map(int, sys.argv[1:]):
        Forward(("127.0.0.1", port), (SERVERS, port))
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
