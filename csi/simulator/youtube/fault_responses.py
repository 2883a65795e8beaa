"""Pages that are not what was asked for: error pages, and answers spoiled by a fault."""

import html
import zlib
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus

from csi.simulator.youtube.api_errors import REASONS, error_body, status_body
from csi.simulator.youtube.data_api import JSON
from csi.simulator.youtube.faults import Fault
from csi.simulator.youtube.response import HeaderPairs, SimulatedResponse

XML = "text/xml; charset=UTF-8"
HTML = "text/html; charset=UTF-8"
MANY = 100_000
BOMB_SIZE = 32 * 2**20


def html_error(status: int, path: str, headers: HeaderPairs = ()) -> SimulatedResponse:
    """What the feed server says instead of a feed: a page for people, without cache headers."""
    phrase = _phrase(status)
    body = (
        "<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n"
        f"  <title>Error {status} ({phrase})</title>\n"
        f"  <p><b>{status}.</b> <ins>This is an error.</ins>\n"
        f"  <p>The address <code>{html.escape(path)}</code> gave no feed: {phrase}.\n"
    )
    return SimulatedResponse(status, body.encode(), HTML, headers)


def apply_fault(reply: SimulatedResponse, fault: Fault, path: str) -> SimulatedResponse:
    """The answer that the fault leaves. Faults of the connection are the sender's work."""
    if fault.name in REASONS:
        code, body = error_body(fault.name)
        return SimulatedResponse(code, body, JSON)
    match fault.name:
        case "status":
            return _bare_status(fault, path)
        case "redirect":
            return SimulatedResponse(302, b"", HTML, (("location", fault.location or path),))
        case "html":
            return SimulatedResponse(200, _consent_page(), HTML)
        case "empty":
            return replace(reply, body=b"")
        case "truncated":
            return replace(reply, body=reply.body[: len(reply.body) * 3 // 5])
        case "gzip":
            return replace(reply, body=_gzip_bomb(), headers=(*reply.headers, ("content-encoding", "gzip")))
        case "bomb" | "attributes" | "deep":
            return replace(reply, body=_hostile(fault.name, is_feed=_is_feed(path)))
    return reply


def _bare_status(fault: Fault, path: str) -> SimulatedResponse:
    status = fault.status or 500
    wait: HeaderPairs = () if fault.retry_after is None else (("retry-after", str(fault.retry_after)),)
    if _is_feed(path):
        return html_error(status, path, wait)
    return SimulatedResponse(status, status_body(status), JSON, wait)


def _hostile(name: str, *, is_feed: bool) -> bytes:
    if not is_feed:
        return b"[" * MANY + b"]" * MANY
    return {"bomb": _entity_bomb, "attributes": _attribute_flood, "deep": _deep_tree}[name]()


@lru_cache(maxsize=1)
def _entity_bomb() -> bytes:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<!DOCTYPE feed [<!ENTITY e0 "boom">{levels}]>'
        '<feed xmlns="http://www.w3.org/2005/Atom"><title>&e9;</title></feed>'
    ).encode()


@lru_cache(maxsize=1)
def _attribute_flood() -> bytes:
    flood = " ".join(f'a{n}="x"' for n in range(MANY))
    return f'<feed xmlns="http://www.w3.org/2005/Atom"><title {flood}>t</title></feed>'.encode()


@lru_cache(maxsize=1)
def _deep_tree() -> bytes:
    depth = MANY // 10
    return b'<feed xmlns="http://www.w3.org/2005/Atom">' + b"<d>" * depth + b"</d>" * depth + b"</feed>"


@lru_cache(maxsize=1)
def _gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b" " * 2**20
    packed = b"".join(packer.compress(block) for _ in range(BOMB_SIZE // len(block)))
    return packed + packer.flush()


def _consent_page() -> bytes:
    return (
        b"<!DOCTYPE html>\n<html lang=en><title>Before you continue</title>"
        b"<body><form action=/save method=post><button>I agree</button></form></body></html>\n"
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _is_feed(path: str) -> bool:
    return path.startswith("/feeds/")
