"""An HTTP response: its headers, its limits, and its body read within them."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from csi.errors import NetError
from csi.net.deadline import WASTEFUL, DeadlineStream, require_time_left
from csi.net.httpx_import import httpx

UNZIP_PIECE = 64 * 1024

# What costs time without bringing data: pieces of a few bytes, long chunk extensions, empty gzip members. The
# allowances are far above what servers send that flush every line, or that compress in blocks.
SPARE_PIECES, BYTES_PER_PIECE = 10_000, 16
SPARE_WIRE = 256 * 1024
SPARE_MEMBERS, BYTES_PER_MEMBER = 64, 1024


class HttpHeaders(Mapping[str, str]):
    """Headers of a response; names compare without case. `headers[name]` is the first value, `get_list` all of them."""

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

    def __repr__(self) -> str:
        return f"HttpHeaders({sorted(self._values)})"  # names only: a value may be a secret

    def get_list(self, name: str) -> list[str]:
        return list(self._values.get(name.lower(), ()))


@dataclass(frozen=True)
class Redirect:
    """A redirect that was followed. `url` is where it led, with its query: it may hold a secret."""

    status: int
    url: str


@dataclass(frozen=True)
class HttpResponse:
    """A complete response with any status."""

    status: int
    headers: HttpHeaders
    body: bytes
    url: str
    """The URL of the response without its query: safe to log."""
    elapsed: float = 0.0
    certificate_expires_at: float | None = None
    """None: the connection has no TLS."""
    redirects: tuple[Redirect, ...] = ()

    def json_object(self) -> dict[str, Any] | None:
        """The body as a JSON object. None: it is not one, or it is nested too deep for the parser."""
        try:
            parsed = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return parsed if isinstance(parsed, dict) else None


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

    @property
    def max_wire(self) -> int:
        """Bytes received in the whole call: heads, chunk sizes, trailers and bodies of all responses."""
        return 2 * self.max_body + (1 + self.max_redirects) * SPARE_WIRE


DEFAULT_LIMITS = HttpLimits()


def read_body(response: httpx.Response, limit: int, where: str) -> bytes:
    encodings = response.headers.get_list("content-encoding")
    names = [name.strip().lower() for line in encodings for name in line.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if names and names not in (["gzip"], ["x-gzip"]):
        raise NetError(f"{where}: an encoding other than one gzip", kind="bad_encoding")
    zipped, announced = bool(names), None  # None: the response does not announce the body's length on the wire
    length = response.headers.get("content-length", "")
    if response.status_code in (204, 304):
        announced = 0
    elif length.isascii() and length.isdigit() and "transfer-encoding" not in response.headers:
        announced = int(length)
    too_large = NetError(f"{where}: the response is larger than {limit:,} bytes", kind="too_large")
    if announced is not None and announced > limit:
        raise too_large
    # Read the stream, not `iter_raw`: `iter_raw` refuses the prepared responses of pytest-httpx.
    chunks: Iterable[bytes] = response.stream  # type: ignore[assignment]
    body = bytearray()
    stream = response.extensions.get("network_stream")
    chunks = _without_waste(chunks, stream if isinstance(stream, DeadlineStream) else None, where)
    for chunk in _unzip(chunks, where) if zipped else chunks:
        body += chunk
        if len(body) > limit:
            raise too_large
        require_time_left()
    if announced is not None and isinstance(stream, DeadlineStream) and stream.meter.body > announced:
        # The surplus bytes would be read as the response to the next request on this connection.
        stream.close()
        raise NetError(f"{where}: the body is longer than its Content-Length", kind="protocol")
    return bytes(body)


def _without_waste(chunks: Iterable[bytes], stream: DeadlineStream | None, where: str) -> Iterator[bytes]:
    """The same chunks. Raises NetError for a body in tiny chunks, or with more framing than data."""
    received = 0
    for pieces, chunk in enumerate(chunks):
        received += len(chunk)
        if pieces > SPARE_PIECES + received // BYTES_PER_PIECE:
            raise NetError(f"{where}: the body comes in chunks of a few bytes", kind="protocol")
        if stream is not None and stream.meter.body > 2 * received + SPARE_WIRE:
            raise NetError(f"{where}: {WASTEFUL}", kind="protocol")
        yield chunk


def _unzip(chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Decompressed pieces of bounded size, so that the cap stops a decompression bomb while it is small."""
    member = zlib.decompressobj(wbits=31)
    begun, members, unzipped = False, 1, 0
    try:
        for data in chunks:
            while data:
                begun = True
                if member.eof:
                    member, members = zlib.decompressobj(wbits=31), members + 1
                piece = member.decompress(data, UNZIP_PIECE)
                unzipped += len(piece)
                if members > SPARE_MEMBERS + unzipped // BYTES_PER_MEMBER:
                    raise NetError(f"{where}: the gzip body has too many small members", kind="bad_encoding")
                yield piece
                data = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error:
        raise NetError(f"{where}: the body is not valid gzip", kind="bad_encoding") from None
    if begun and not member.eof:
        raise NetError(f"{where}: the gzip body ends too early", kind="bad_encoding")
