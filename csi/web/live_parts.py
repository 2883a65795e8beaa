"""The parts of a page that its script keeps up to date: sent alone, and only when they changed. Pure.

The templates put a mark before and after each part. A page is sent without marks. The script sends HEADER and the ETag
of the parts that it shows; it gets 304, or the parts that differ as JSON.
"""

import hashlib
import json
import re
import secrets

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

HEADER = "x-csi-live"
NAMES = ("menu", "nav", "problems", "main")

# Text of a page cannot contain a mark: it is escaped, and does not know the number.
_KEY = secrets.token_hex(8)
_MARKS = re.compile(f"<!--{_KEY}:[a-z]+-->")
_PART = re.compile(f"<!--{_KEY}:([a-z]+)-->(.*?)<!--{_KEY}:end-->", re.DOTALL)
_AGO = re.compile(r"(<time [^>]*data-ago[^>]*>)[^<]*")
"""`42 s ago`: the script keeps it up to date."""


def mark(name: str) -> Markup:
    """Before a part its name, after it `end`."""
    return Markup(f"<!--{_KEY}:{name}-->")  # noqa: S704 the name is of a template


def without_marks(html: str) -> str:
    return _MARKS.sub("", html)


def respond(request: Request, html: str) -> Response:
    parts = {name: content for name, content in _PART.findall(html) if name in NAMES}
    settled = {name: _AGO.sub(r"\1", content).encode("utf-8", "replace") for name, content in parts.items()}
    hashes = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in settled.items()}
    etag = '"' + ".".join(hashes.get(name, "-") for name in NAMES) + '"'
    shown = request.headers.get("if-none-match", "")
    if shown == etag:
        return Response(status_code=304, headers={"ETag": etag})
    known = dict(zip(NAMES, shown.strip('"').split("."), strict=False))
    changed = {name: content for name, content in parts.items() if known.get(name) != hashes[name]}
    return Response(json.dumps(changed), media_type="application/json", headers={"ETag": etag})
