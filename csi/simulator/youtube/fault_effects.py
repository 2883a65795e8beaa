"""What a fault does to a response and to its connection, and the error page of the feed server."""

import asyncio
import html
import re
import socket
import struct
import zlib
from dataclasses import replace
from functools import cache
from http import HTTPStatus

from starlette.types import Receive, Scope, Send

from csi.simulator.youtube.api_errors import REASONS, error_body, status_body
from csi.simulator.youtube.data_api import JSON
from csi.simulator.youtube.faults import Fault
from csi.simulator.youtube.response import HeaderPairs, SimulatedResponse

INCOMPLETE = 0  # recorded instead of a status when the whole response was not sent
DRIP_PIECES = 200  # a dripping body is sent in this many pieces
HTML = "text/html; charset=UTF-8"
REPEATS = 100_000
GZIP_BOMB_BYTES = 32 * 2**20
CONSENT_PAGE = (
    b"<!DOCTYPE html>\n<html lang=en><title>Before you continue</title>"
    b"<body><form action=/save method=post><button>I agree</button></form></body></html>\n"
)


def html_error(status: int, path: str, headers: HeaderPairs = ()) -> SimulatedResponse:
    """The feed server's error page: HTML, without cache headers."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    body = (
        "<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n"
        f"  <title>Error {status} ({phrase})</title>\n"
        f"  <p><b>{status}.</b> <ins>This is an error.</ins>\n"
        f"  <p>The address <code>{html.escape(path)}</code> gave no feed: {phrase}.\n"
    )
    return SimulatedResponse(status, body.encode(), HTML, headers)


def apply_fault(response: SimulatedResponse, fault: Fault, path: str) -> SimulatedResponse:
    """The response with the fault applied. Faults of the connection are applied by `send_response`."""
    is_feed = path.startswith("/feeds/")
    if fault.name in REASONS:
        code, body = error_body(fault.name)
        return SimulatedResponse(code, body, JSON)
    match fault.name:
        case "status":
            status = fault.status or 500
            wait: HeaderPairs = () if fault.retry_after is None else (("retry-after", str(fault.retry_after)),)
            if is_feed:
                return html_error(status, path, wait)
            return SimulatedResponse(status, status_body(status), JSON, wait)
        case "redirect":
            return SimulatedResponse(302, b"", HTML, (("location", fault.location or path),))
        case "html":
            return SimulatedResponse(200, CONSENT_PAGE, HTML)
        case "empty":
            return replace(response, body=b"")
        case "noentries":
            return replace(response, body=re.sub(rb"<entry>.*?</entry>\s*", b"", response.body, flags=re.S))
        case "truncated":
            return replace(response, body=response.body[: len(response.body) * 3 // 5])
        case "gzip":
            return replace(response, body=_gzip_bomb(), headers=(*response.headers, ("content-encoding", "gzip")))
        case "bomb" | "attributes" | "deep":
            return replace(response, body=_hostile_feed(fault.name) if is_feed else b"[" * REPEATS + b"]" * REPEATS)
    return response


@cache
def _hostile_feed(name: str) -> bytes:
    """An XML entity bomb, 100 000 attributes on one element, or 10 000 nested elements."""
    match name:
        case "bomb":
            levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
            return (
                '<?xml version="1.0" encoding="UTF-8"?>'
                f'<!DOCTYPE feed [<!ENTITY e0 "boom">{levels}]>'
                '<feed xmlns="http://www.w3.org/2005/Atom"><title>&e9;</title></feed>'
            ).encode()
        case "attributes":
            attributes = " ".join(f'a{n}="x"' for n in range(REPEATS))
            return f'<feed xmlns="http://www.w3.org/2005/Atom"><title {attributes}>t</title></feed>'.encode()
    depth = REPEATS // 10
    return b'<feed xmlns="http://www.w3.org/2005/Atom">' + b"<d>" * depth + b"</d>" * depth + b"</feed>"


@cache
def _gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b" " * 2**20
    packed = b"".join(packer.compress(block) for _ in range(GZIP_BOMB_BYTES // len(block)))
    return packed + packer.flush()


async def send_response(
    response: SimulatedResponse, headers: HeaderPairs, fault: Fault, scope: Scope, receive: Receive, send: Send
) -> bool:
    """True when the whole response was sent to a client that was still connected."""
    match fault.name:
        case "reset":
            transport = _transport(scope)
            # Closing a socket with a linger time of zero sends a TCP reset.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        case "hang":
            pass
        case "cut":
            await _send_head(response, headers, send)
            await _send_body(response.body[: len(response.body) // 2], send, more=True)
            _transport(scope).close()
        case "drip":
            await _send_head(response, headers, send)
            size = max(1, len(response.body) // DRIP_PIECES)
            for start in range(0, max(1, len(response.body) - size), size):
                await _send_body(response.body[start : start + size], send, more=True)
                await asyncio.sleep(fault.pace)
                if not _is_connected(scope):
                    return False
            await _send_body(response.body[start + size :], send)
            return True
        case _:
            connected = _is_connected(scope)
            await _send_head(response, headers, send)
            await _send_body(response.body, send)
            return connected
    while (await receive())["type"] != "http.disconnect":
        pass
    return False


async def _send_head(response: SimulatedResponse, headers: HeaderPairs, send: Send) -> None:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if response.status != 304:
        raw.append((b"content-type", response.content_type.encode()))
        raw.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": raw})


async def _send_body(body: bytes, send: Send, *, more: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _is_connected(scope: Scope) -> bool:
    transport = scope.get("state", {}).get("transport")
    return transport is None or not transport.is_closing()


def _transport(scope: Scope) -> asyncio.Transport:
    """The connection, which csi.simulator.http_server puts into the scope; other servers cannot break connections."""
    transport: asyncio.Transport | None = scope.get("state", {}).get("transport")
    if transport is None:
        raise ConnectionResetError("simulated connection fault")
    return transport
