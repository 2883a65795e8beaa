"""Send a response over ASGI, in full or with a connection fault."""

import asyncio
import socket
import struct

from starlette.types import Receive, Scope, Send

from csi.simulator.youtube.faults import Fault
from csi.simulator.youtube.response import HeaderPairs, SimulatedResponse

INCOMPLETE = 0  # recorded instead of a status when the whole response was not sent
DRIP_PIECES = 200  # a dripping body is sent in this many pieces


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
            return await _drip(response.body, fault.pace, scope, send)
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


async def _drip(body: bytes, pace: float, scope: Scope, send: Send) -> bool:
    size = max(1, len(body) // DRIP_PIECES)
    for start in range(0, max(1, len(body) - size), size):
        await _send_body(body[start : start + size], send, more=True)
        await asyncio.sleep(pace)
        if not _is_connected(scope):
            return False
    await _send_body(body[start + size :], send)
    return True


def _is_connected(scope: Scope) -> bool:
    transport = scope.get("state", {}).get("transport")
    return transport is None or not transport.is_closing()


def _transport(scope: Scope) -> asyncio.Transport:
    """The connection, which csi.simulator.http_server puts into the scope; other servers cannot break connections."""
    transport: asyncio.Transport | None = scope.get("state", {}).get("transport")
    if transport is None:
        raise ConnectionResetError("simulated connection fault")
    return transport
