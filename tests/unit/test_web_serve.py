"""The sidecar's connections: a request that never gets complete does not keep one for ever."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
import uvicorn

from csi.config.settings import Secrets, Settings, WebSettings
from csi.errors import ConfigError
from csi.runtime import Runtime
from csi.web import serve
from csi.web.app import create_app


def never() -> Runtime:
    raise ConfigError("this test needs no runtime")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The real server in a thread, with little patience."""
    monkeypatch.setattr(serve, "HEAD_SECONDS", 0.3)
    door = serve.listen(Settings(web=WebSettings(port=0)))
    server = uvicorn.Server(serve._config(create_app(never)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
    thread.start()
    yield int(door.getsockname()[1])
    server.should_exit = True
    thread.join(10)
    door.close()


def read_to_end(wire: socket.socket) -> bytes:
    with suppress(ConnectionResetError):
        return b"".join(iter(lambda: wire.recv(65536), b""))
    return b""


@pytest.mark.parametrize("head", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
def test_half_a_head_is_not_waited_for(port: int, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as wire:
        wire.sendall(head)
        assert read_to_end(wire) == b""


def test_dripping_bytes_do_not_win_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=0.05) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        for _ in range(100):
            try:
                wire.sendall(b"x")
                if wire.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("five seconds of dripping were tolerated")


def test_a_refused_body_that_never_ends_is_cut_off(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as wire:
        wire.sendall(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\nxx")
        assert wire.recv(65536).startswith(b"HTTP/1.1 405")
        wire.sendall(b"x")
        read_to_end(wire)


def test_a_connection_may_be_used_again(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert [client.get("/healthz").status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    with serve.listen(Settings(web=WebSettings(host=host, port=0))) as door:
        assert door.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wider_bind_needs_the_admin_token_and_not_only_the_readers(host: str) -> None:
    settings = Settings(web=WebSettings(host=host, port=0), secrets=Secrets(admin_read_token="0123456789"))
    with pytest.raises(ConfigError, match="CSI_ADMIN_TOKEN"):
        serve.listen(settings)
