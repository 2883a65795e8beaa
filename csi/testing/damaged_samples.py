"""Bad answers of a source, and items with a part that is missing or of another type."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from csi.adapters.base import RawEvent
from csi.testing.recorded_net import Change, refuse


def _body(body: bytes) -> Change:
    return lambda answer: replace(answer, body=body)


def _status(status: int) -> Change:
    return lambda answer: replace(answer, status=status, body=b"<html>no</html>", headers={"Content-Type": "text/html"})


BAD_ANSWERS: dict[str, Change] = {
    "empty": _body(b""),
    "an HTML page": _body(b"<!doctype html><html><head><title>Sign in</title></head><body>x</body></html>"),
    "not text": _body(bytes(range(256)) * 8),
    "null": _body(b"null"),
    "a list": _body(b"[1, null, {}, [], \"x\"]"),
    "an object": _body(b'{"items": {"a": 1}, "entries": 3, "data": [null]}'),
    "nested deep": _body(b"[" * 100_000),
    "cut in the middle": lambda answer: replace(answer, body=answer.body[: len(answer.body) // 2]),
    "cut by one byte": lambda answer: replace(answer, body=answer.body[:-1]),
    **{f"a {status}": _status(status) for status in (204, 301, 304, 400, 401, 403, 404, 410, 429, 500, 503)},
    "missing": refuse,
}  # fmt: skip


def damaged_items(item: RawEvent) -> Iterator[tuple[str, RawEvent]]:
    yield "without its payload", replace(item, payload={})
    for path in list(_paths(item.payload))[:60]:
        shown = ".".join(map(str, path))
        for word, value in (("null", None), ("a number", -1), ("a list", [None]), ("an object", {"x": []}), ("", "")):
            yield f"whose {shown} is {word or 'empty'}", _with(item, path, value)
        yield f"without {shown}", _with(item, path, None, delete=True)
    yield "of another type", replace(item, event_type="something_else")
    yield "with a time that is none", replace(item, occurred_at="yesterday")


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value[:3])
    for name, one in inner:
        yield (*path, name)
        if len(path) < 3:
            yield from _paths(one, (*path, name))


def _with(item: RawEvent, path: tuple[str | int, ...], value: Any, *, delete: bool = False) -> RawEvent:
    payload: Any = copy.deepcopy(item.payload)
    place: Any = payload
    for step in path[:-1]:
        place = place[step]
    if delete:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return replace(item, payload=payload)
