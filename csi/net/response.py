"""An HTTP answer: its headers, its limits, and its body read within them."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from csi.errors import NetError
from csi.net.deadline import DeadlineStream, require_time_left
from csi.net.httpx_import import httpx

UNZIP_PIECE = 64 * 1024


class HttpHeaders(Mapping[str, str]):
    """An answer's headers; names compare without case. `headers[name]` is the first value, `get_list` all of them."""

    def __init__(self, items: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        pairs = items.items() if isinstance(items, Mapping) else items
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name.lower(), []).append(value)

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __repr__(self) -> str:
        return f"HttpHeaders({sorted(self._values)})"  # names only: a value may be a secret

    def get_list(self, name: str) -> list[str]:
        return list(self._values.get(name.lower(), ()))


@dataclass(frozen=True)
class HttpResponse:
    """A complete answer, whatever its status."""

    status: int
    headers: HttpHeaders
    body: bytes
    url: str
    """The URL that answered, without its query: safe to log."""
    elapsed: float = 0.0


@dataclass(frozen=True)
class HttpLimits:
    """Limits of one call. `total` covers all of it: waiting for a connection, TLS, headers, body, redirects.

    Only a name lookup can outlast it: the system's resolver cannot be interrupted.
    """

    total: float = 20.0
    connect: float = 10.0
    max_body: int = 8 * 1024 * 1024
    """Bytes of the body, after decompression."""
    max_redirects: int = 3


DEFAULT_LIMITS = HttpLimits()


def read_body(response: httpx.Response, limit: int, where: str) -> bytes:
    zipped = _is_gzip(response.headers.get_list("content-encoding"), where)
    announced = _announced(response)
    if announced is not None and announced > limit:
        raise _too_large(where, limit)
    # Read the stream, not `iter_raw`: `iter_raw` refuses the prepared responses of pytest-httpx.
    chunks: Iterable[bytes] = response.stream  # type: ignore[assignment]
    body = _collect(_unzip(chunks, where) if zipped else chunks, limit, where)
    _check_surplus(response, announced, where)
    return body


def _is_gzip(encodings: list[str], where: str) -> bool:
    names = [name.strip().lower() for line in encodings for name in line.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return False
    if names in (["gzip"], ["x-gzip"]):
        return True
    raise NetError(f"{where}: an encoding other than one gzip", kind="bad_encoding")


def _announced(response: httpx.Response) -> int | None:
    """The body's length on the wire. None when the answer does not announce it."""
    if response.status_code in (204, 304):
        return 0
    length = response.headers.get("content-length", "")
    known = length.isascii() and length.isdigit() and "transfer-encoding" not in response.headers
    return int(length) if known else None


def _collect(chunks: Iterable[bytes], limit: int, where: str) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise _too_large(where, limit)
        require_time_left()
    return bytes(body)


def _unzip(chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Decompressed pieces of bounded size, so that the cap stops a decompression bomb while it is small."""
    member = zlib.decompressobj(wbits=31)
    begun = False
    try:
        for data in chunks:
            while data:
                begun = True
                member = zlib.decompressobj(wbits=31) if member.eof else member
                yield member.decompress(data, UNZIP_PIECE)
                data = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error:
        raise NetError(f"{where}: the body is not valid gzip", kind="bad_encoding") from None
    if begun and not member.eof:
        raise NetError(f"{where}: the gzip body ends too early", kind="bad_encoding")


def _check_surplus(response: httpx.Response, announced: int | None, where: str) -> None:
    """More bytes than announced would be read as the answer to the next request on this connection."""
    stream = response.extensions.get("network_stream")
    if announced is None or not isinstance(stream, DeadlineStream) or stream.meter.body <= announced:
        return
    stream.close()
    raise NetError(f"{where}: the body is longer than its Content-Length", kind="protocol")


def _too_large(where: str, limit: int) -> NetError:
    return NetError(f"{where}: the answer is larger than {limit:,} bytes", kind="too_large")
