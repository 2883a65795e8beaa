"""POST has connections of its own: how they are kept, and answers in every form that HTTP allows."""

import gzip
import time

import pytest

from csi.errors import NetError
from csi.net import HttpLimits, Net
from tests.fakes.raw_server import Close, Drip, Hang, RawServer, Send, answer


@pytest.fixture
def net():
    with Net(limits=HttpLimits(total=5.0), max_connections=1) as client:
        yield client


def test_the_request_has_its_own_headers_and_ours_where_it_has_none(net: Net) -> None:
    with RawServer([Send(answer(200))], [Send(answer(200))]) as server:
        net.post(f"{server.url}/in?a=%20b", body=b"{}", headers={"user-agent": "mine", "X-Name": "M\xfcller"})
        net.post(server.url, body=b"", headers={}, method="PUT")
    first, second = server.requests
    assert (first.method, first.target, first.body) == ("POST", "/in?a=%20b", b"{}")
    assert first.headers["user-agent"] == "mine"
    assert first.headers["x-name"] == "M\xfcller"
    assert first.headers["host"] == server.url.removeprefix("http://")
    assert first.headers["accept-encoding"] == "gzip"
    assert (second.method, second.target, second.body) == ("PUT", "/", b"")
    assert second.headers["content-length"] == "0"
    assert second.headers["user-agent"].startswith("csi/")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
ZIPPED = gzip.compress(b"hello", mtime=0)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


@pytest.mark.parametrize(
    "script",
    [
        [Send(answer(200, b"hello"))],
        [Drip(answer(200, b"hello"), size=9, pause=0.005)],
        [Send(CHUNKED)],
        [Drip(CHUNKED, size=5, pause=0.005)],
        [Send(answer(200, ZIPPED, [("Content-Encoding", "gzip")]))],
        [Send(INTERIM + answer(200, b"hello"))],
    ],
    ids=["whole", "in pieces", "chunks", "chunks in pieces", "gzip", "an interim answer before it"],
)
def test_the_connection_is_used_again_after_every_complete_answer(net: Net, script: list) -> None:
    with RawServer(script, [Send(answer(201, b"next"))]) as server:
        assert net.post(server.url, body=b"{}", headers={}).body == b"hello"
        assert net.post(server.url, body=b"{}", headers={}).status == 201
        assert server.connections == 1


@pytest.mark.parametrize(
    "script",
    [
        [Send(answer(200, b"hello", [("Connection", "close")]))],
        [Send(b"HTTP/1.0 200 OK\r\n\r\nhello"), Close()],
        [Send(b"HTTP/1.1 200 OK\r\n\r\nhello"), Close()],
    ],
    ids=["said to close", "HTTP/1.0", "ends with the connection"],
)
def test_the_connection_ends_with_an_answer_that_says_so(net: Net, script: list) -> None:
    with RawServer(script, [Send(answer(201, b"next"))]) as server:
        assert net.post(server.url, body=b"{}", headers={}).body == b"hello"
        assert net.post(server.url, body=b"{}", headers={}).status == 201
        assert server.connections == 2


def test_a_kept_connection_that_the_server_closed_is_not_used(net: Net) -> None:
    with RawServer([Send(answer(200)), Close()], [Send(answer(201))]) as server:
        assert net.post(server.url, body=b"{}", headers={}).status == 200
        ends = time.monotonic() + 5
        while not net._open_pools().posting._idle[0][2].get_extra_info("is_readable") and time.monotonic() < ends:
            pass
        assert net.post(server.url, body=b"{}", headers={}).status == 201
        assert server.connections == 2


def test_more_requests_than_connections_wait_within_their_deadline(net: Net) -> None:
    with RawServer([Hang()]) as server:
        assert net._open_pools().posting._room.acquire(timeout=1)  # as a request of another thread does
        with pytest.raises(NetError) as caught:
            net.post(server.url, body=b"{}", headers={}, limits=HttpLimits(total=0.2))
        net._open_pools().posting._room.release()
    assert (caught.value.kind, caught.value.sent) == ("busy", False)


def test_a_slot_is_free_again_after_a_failure(net: Net) -> None:
    with RawServer([Close()], [Send(answer(200))]) as server:
        with pytest.raises(NetError):
            net.post(server.url, body=b"{}", headers={})
        assert net.post(server.url, body=b"{}", headers={}).status == 200
