"""Sending an answer over ASGI, in full or torn on purpose."""

import asyncio
import socket
import struct

from starlette.types import Receive, Scope, Send

from csi.simulator.youtube.faults import Fault
from csi.simulator.youtube.response import HeaderPairs, SimulatedResponse

LOST = 0  # the status we note where no whole answer got out
DROPS = 200  # pieces that a dripping answer comes in


async def send_response(
    reply: SimulatedResponse, headers: HeaderPairs, fault: Fault, scope: Scope, receive: Receive, send: Send
) -> bool:
    """True when the whole answer was handed over to a client that was still there."""
    match fault.name:
        case "reset":
            await _reset(scope, receive)
        case "hang":
            await _until_gone(receive)
        case "cut":
            await _start(reply, headers, send)
            await _cut(reply, scope, receive, send)
        case "drip":
            await _start(reply, headers, send)
            return await _drip(reply, fault.pace, scope, send)
        case _:
            return await _whole(reply, headers, scope, send)
    return False


async def _whole(reply: SimulatedResponse, headers: HeaderPairs, scope: Scope, send: Send) -> bool:
    here = _client_is_there(scope)
    await _start(reply, headers, send)
    await send({"type": "http.response.body", "body": reply.body})
    return here


async def _start(reply: SimulatedResponse, headers: HeaderPairs, send: Send) -> None:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if reply.status != 304:
        raw.append((b"content-type", reply.content_type.encode()))
        raw.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": raw})


async def _drip(reply: SimulatedResponse, pace: float, scope: Scope, send: Send) -> bool:
    size = max(1, len(reply.body) // DROPS)
    for place in range(0, max(1, len(reply.body) - size), size):
        await send(_piece(reply.body[place : place + size]))
        await asyncio.sleep(pace)
        if not _client_is_there(scope):
            return False
    await send({"type": "http.response.body", "body": reply.body[place + size :]})
    return True


async def _cut(reply: SimulatedResponse, scope: Scope, receive: Receive, send: Send) -> None:
    await send(_piece(reply.body[: len(reply.body) // 2]))
    _transport(scope).close()
    await _until_gone(receive)


async def _reset(scope: Scope, receive: Receive) -> None:
    """A TCP reset: closing with a linger of zero throws the connection away."""
    transport = _transport(scope)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    await _until_gone(receive)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _piece(body: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def _client_is_there(scope: Scope) -> bool:
    transport = scope.get("state", {}).get("transport")
    return transport is None or not transport.is_closing()


def _transport(scope: Scope) -> asyncio.Transport:
    """Put there by our server (csi.simulator.http_server); another one cannot tear connections."""
    transport = scope.get("state", {}).get("transport")
    if transport is None:
        raise ConnectionResetError("simulated: the connection is torn here")
    found: asyncio.Transport = transport
    return found
