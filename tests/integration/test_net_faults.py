"""Answers that drip, break, lie or explode: each ends in time, in one NetError that names no secret."""

import gzip
import time
import traceback
import tracemalloc
import zlib

import pytest

from csi.errors import NetError
from csi.net import HttpLimits, Net
from csi.net.client import NO_HEADERS
from tests.fakes.raw_server import Close, Drip, Flood, Hang, RawServer, Reset, Script, Send, answer

QUICK = HttpLimits(total=0.5, connect=0.5)
CANARY = "kNvCanary7316"
HEAD = b"HTTP/1.1 200 OK\r\n"


class PostingNet(Net):
    """Sends a POST where a test reads: it has connections and a reader of its own."""

    def get(self, url, *, headers=NO_HEADERS, limits=None, paced_as=None):
        return self.post(url, body=b"{}", headers=headers, limits=limits)


@pytest.fixture(params=[Net, PostingNet], ids=["GET", "POST"])
def net(request: pytest.FixtureRequest):
    with request.param(limits=HttpLimits(total=5.0)) as client:
        yield client


def fail(net: Net, server: RawServer, limits: HttpLimits | None = None) -> NetError:
    """The error of a request that carries a canary in its query and in a header."""
    with pytest.raises(NetError) as caught:
        net.get(f"{server.url}/feed?key={CANARY}", headers={"X-Goog-Api-Key": CANARY}, limits=limits)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    return caught.value


@pytest.mark.parametrize(
    "script",
    [
        [Drip(answer(200, b"hello", [("X-Long", "x" * 500)]))],
        [Send(HEAD + b"Content-Length: 500\r\n\r\n"), Drip(b"x" * 500)],
        [Send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n"), Drip(b"1\r\nx\r\n" * 100)],
        [Send(HEAD), Drip(b"X-More: yes\r\n" * 100, size=13, pause=0.02)],
        [Hang()],
    ],
    ids=["headers", "body", "chunks", "endless header block", "silence"],
)
def test_the_total_deadline_ends_what_never_ends(net: Net, script: Script) -> None:
    with RawServer(script) as server:
        began = time.monotonic()
        error = fail(net, server, QUICK)
        took = time.monotonic() - began
    assert error.kind == "timeout"
    assert 0.4 < took < 3.0


def test_the_deadline_spans_redirects() -> None:
    hop = [Hang(0.2), Send(answer(302, headers=[("Location", "/next")]))]
    slower = [Hang(0.2), Send(answer(302, headers=[("Location", "/last")]))]
    with RawServer(hop, slower, [Hang(0.3), Send(answer(200))]) as server:
        began = time.monotonic()
        error = fail(Net(), server, QUICK)
    assert error.kind == "timeout"
    assert time.monotonic() - began < 3.0


def test_a_receiver_that_never_reads_cannot_hold_a_post(net: Net) -> None:
    with RawServer([Hang()], read_requests=False, receive_buffer=4096) as server:
        began = time.monotonic()
        with pytest.raises(NetError) as caught:
            net.post(server.url, body=b"x" * 16_000_000, headers={}, limits=QUICK)
    assert caught.value.kind == "timeout"
    assert time.monotonic() - began < 3.0


def test_a_dripping_tls_handshake_ends_too(net: Net) -> None:
    with RawServer([Drip(b"\x16\x03\x03" + b"\x00" * 100)], read_requests=False) as server:
        began = time.monotonic()
        with pytest.raises(NetError):
            net.get(server.url.replace("http:", "https:"), limits=QUICK)
    assert time.monotonic() - began < 3.0


WHOLE = answer(200, b"0123456789", [("X-A", "b")])


@pytest.mark.parametrize("at", [0, 1, 12, 20, len(WHOLE) - 11, len(WHOLE) - 10, len(WHOLE) - 1])
@pytest.mark.parametrize("end", [Close(), Reset()])
def test_an_answer_cut_anywhere_is_a_reset(net: Net, at: int, end: Close | Reset) -> None:
    with RawServer([Send(WHOLE[:at]), end]) as server:
        assert fail(net, server).kind == "reset"


def test_a_cut_chunk_is_a_reset(net: Net) -> None:
    with RawServer([Send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel"), Close()]) as server:
        assert fail(net, server).kind == "reset"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (answer(200, b"hello", length=900), "reset"),
        (answer(200, b"hello", length=3), "protocol"),
        (answer(204, b"hello", length=0), "protocol"),
        (answer(200, b"hello", [("Content-Length", "7")]), "protocol"),
        (HEAD + b"Content-Length: -5\r\n\r\nhello", "protocol"),
        (HEAD + b"Content-Length: five\r\n\r\nhello", "protocol"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "protocol"),
        (HEAD + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n", "protocol"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello", "protocol"),
    ],
)
def test_lies_and_nonsense(net: Net, data: bytes, kind: str) -> None:
    with RawServer([Send(data), Close()]) as server:
        assert fail(net, server).kind == kind


def test_surplus_bytes_are_never_the_answer_to_the_next_request(net: Net) -> None:
    forged = answer(200, b"short", length=5) + answer(200, b"forged")
    with RawServer([Send(forged)], [Send(answer(200, b"honest"))]) as server:
        assert fail(net, server).kind == "protocol"
        assert net.get(server.url).body == b"honest"
        assert server.connections == 2


INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ZIPPED = HEAD + b"Content-Encoding: gzip\r\n\r\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([Flood(INTERIM * 500)], "protocol"),
        ([Send(CHUNKED), Flood(b"1\r\nx\r\n" * 5_000)], "protocol"),
        ([Send(CHUNKED), Flood(b"1;" + b"e" * 20_000 + b"\r\nx\r\n")], "protocol"),
        ([Send(CHUNKED + b"0\r\n"), Flood(b"X-Trailer: yes\r\n" * 500)], "protocol"),
        ([Send(ZIPPED), Flood(gzip.compress(b"", mtime=0) * 500)], "bad_encoding"),
        ([Send(ZIPPED + gzip.compress(b"", mtime=0)[:10]), Flood(b"\x00\x00\x00\xff\xff" * 10_000)], "protocol"),
    ],
    ids=["interim answers", "tiny chunks", "chunk extensions", "trailers", "gzip members", "empty deflate blocks"],
)
def test_an_endless_answer_without_content_ends_long_before_its_deadline(net: Net, script: Script, kind: str) -> None:
    with RawServer(script) as server:
        assert fail(net, server, HttpLimits(total=60.0)).kind == kind


def test_small_chunks_interim_answers_and_blocks_of_gzip_are_read(net: Net) -> None:
    lines = b"".join(b"50\r\n" + b"x" * 80 + b"\r\n" for _ in range(20_000)) + b"0\r\n\r\n"
    blocks = gzip.compress(b"y" * 65_280, mtime=0) * 100
    script = [Send(answer(200, blocks, [("Content-Encoding", "gzip")]))]
    with RawServer([Send(INTERIM * 5 + CHUNKED + lines)], script) as server:
        assert len(net.get(server.url).body) == 1_600_000
        assert len(net.get(server.url).body) == 6_528_000


def test_an_interim_answer_is_not_taken_for_surplus(net: Net) -> None:
    with RawServer([Send(b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, b"hello"))]) as server:
        assert net.get(server.url).body == b"hello"


def bomb(megabytes: int) -> bytes:
    """A gzip stream of zeros, a kilobyte for each megabyte of them."""
    packer = zlib.compressobj(9, wbits=31)
    header = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    return header + block * megabytes


def test_a_gzip_bomb_does_not_go_off(net: Net) -> None:
    packed = answer(200, bomb(500), [("Content-Encoding", "gzip")])
    with RawServer([Send(packed)]) as server:
        tracemalloc.start()
        try:
            error = fail(net, server)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert error.kind == "too_large"
    assert peak < 24_000_000


def test_a_body_at_the_limit_passes_and_one_byte_more_does_not(net: Net) -> None:
    limits = HttpLimits(total=5.0, max_body=1000)
    packed = gzip.compress(b"x" * 1000, mtime=0), gzip.compress(b"x" * 1001, mtime=0)
    encoded = [("Content-Encoding", "gzip")]
    with RawServer([Send(answer(200, packed[0], encoded))], [Send(answer(200, packed[1], encoded))]) as server:
        assert net.get(server.url, limits=limits).body == b"x" * 1000
        assert fail(net, server, limits).kind == "too_large"


def test_a_body_announced_too_large_is_not_even_read(net: Net) -> None:
    with RawServer([Send(answer(200, b"x", length=9_000_000)), Hang()]) as server:
        assert fail(net, server).kind == "too_large"


def test_an_endless_body_stops_at_the_cap(net: Net) -> None:
    with RawServer([Send(HEAD + b"\r\n"), Flood(b"x" * 65536)]) as server:
        assert fail(net, server).kind == "too_large"


TWICE = gzip.compress(gzip.compress(b"hello", mtime=0), mtime=0)


@pytest.mark.parametrize(
    ("body", "encodings"),
    [
        (TWICE, ["gzip, gzip"]),
        (TWICE, ["gzip", "gzip"]),
        (b"hello", ["br"]),
        (b"hello", ["deflate"]),
        (b"hello", ["gzip"]),
        (gzip.compress(b"hello", mtime=0)[:-4], ["gzip"]),
        (gzip.compress(b"hello", mtime=0) + b"tail", ["gzip"]),
        (gzip.compress(b"hello", mtime=0)[:-8] + bytes(8), ["gzip"]),
    ],
)
def test_encodings_that_are_refused(net: Net, body: bytes, encodings: list[str]) -> None:
    headers = [("Content-Encoding", encoding) for encoding in encodings]
    with RawServer([Send(answer(200, body, headers))]) as server:
        assert fail(net, server).kind == "bad_encoding"


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_gzip_is_read_however_it_is_cut(net: Net, pieces: int) -> None:
    packed = gzip.compress(b"hello ", mtime=0) + gzip.compress(b"world", mtime=0)
    data = answer(200, packed, [("Content-Encoding", "GZip")])
    with RawServer([Drip(data, size=-(-len(data) // pieces), pause=0.002)]) as server:
        assert net.get(server.url).body == b"hello world"


def test_an_empty_gzip_body_is_empty(net: Net) -> None:
    with RawServer([Send(answer(304, b"", [("Content-Encoding", "gzip")]))]) as server:
        assert net.get(server.url).body == b""


@pytest.mark.parametrize(
    "script",
    [
        [Hang()],
        [Reset()],
        [Send(b"not http at all\r\n\r\n"), Close()],
        [Send(answer(200, b"x" * 50)[:-20]), Close()],
    ],
    ids=["no answer", "reset", "not http", "cut off"],
)
def test_a_request_that_may_have_left_is_told_apart(script: Script) -> None:
    with RawServer(script) as server, pytest.raises(NetError) as caught:
        Net(limits=HttpLimits(total=0.5)).post(server.url, body=b"{}", headers={})
    assert caught.value.sent is True


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://127.0.0.1:9/", {}),
        ("ftp://127.0.0.1/", {}),
        ("http://somewhere.example/", {}),
        ("http://127.0.0.1:9/", {"X": "a\nb"}),
    ],
    ids=["no listener", "no http", "not encrypted", "bad header"],
)
def test_a_request_that_never_left_says_so(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(NetError) as caught:
        Net().post(url, body=b"{}", headers=headers)
    assert caught.value.sent is False
