"""One log record as one line, JSON or text."""

import json
import re
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from csi.logs.redaction import MASK, redactor

if TYPE_CHECKING:
    import loguru

LONGEST_VALUE = 2_000
LONGEST_TRACE = 8_000

_ALWAYS = ("source", "event_type", "event_id")
_OURS = frozenset({"timestamp", "level", "message", "logger", "stack_trace"})
# C0 and C1 controls, line and paragraph separators, marks that reverse the text, lone surrogates.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = re.compile(r"[^\s\"'=]+")


def to_json(record: "loguru.Record") -> str:
    line = json.dumps(_flatten(record), separators=(",", ":"), allow_nan=False).replace("\x7f", "\\u007f")
    masked = redactor.mask(line)
    try:
        if masked != line:  # a secret may contain a quote or a brace of the line
            json.loads(masked)
    except ValueError:
        return json.dumps({"level": record["level"].name, "message": MASK})
    return masked


def to_text(record: "loguru.Record") -> str:
    fields = _flatten(record)
    trace = fields.pop("stack_trace", None)
    timestamp, level, message, name = (str(fields.pop(key)) for key in ("timestamp", "level", "message", "logger"))
    pairs = []
    for key, value in fields.items():
        if value is not None:
            text = _visible(str(value))
            quoted = text if _PLAIN.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'
            pairs.append(f"{_visible(key)}={quoted}")
    lines = [" ".join([timestamp, f"{level:<8}", name, _visible(message), *pairs])]
    # Indented, so that no text inside an exception can look like a record of its own.
    lines += [f"    {_visible(part)}" for part in str(trace or "").split("\n") if part]
    return redactor.mask("\n".join(lines))


def _flatten(record: "loguru.Record") -> dict[str, object]:
    """The fields of NFR-5.3 always, then the record's own, an exception last."""
    extra, exception, failure = record["extra"], record["exception"], dict[str, object]()
    if exception is not None and exception.value is not None:
        parts = traceback.format_exception(exception.type, exception.value, exception.traceback)
        # The end of a stack trace, where the reason is, masked like `_short`
        text = "".join(parts)
        longest = redactor.longest
        window = text[-(LONGEST_TRACE + 2 * longest) :]
        clean = redactor.clean(window)
        tail = clean[longest if len(window) < len(text) else 0 :][-LONGEST_TRACE:]
        failure = {"error": _scalar(exception.value), "stack_trace": tail}
    taken = _OURS | failure.keys()
    flat: dict[str, object] = {
        "timestamp": iso_milliseconds(record["time"]),
        "level": record["level"].name,
        "message": _short(record["message"]),
        "logger": record["name"] or "",
    }
    flat |= {key: _scalar(extra.get(key)) for key in _ALWAYS}
    for key, value in extra.items():
        name = redactor.mask(key)
        while name in taken:
            name += "_"
        flat[name] = _scalar(value)
    return flat | failure


def iso_milliseconds(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _scalar(value: object) -> str | int | float | bool | None:
    """A JSON scalar for any value: a log line is flat, and no value may break it."""
    if value is None or isinstance(value, bool):
        return value
    text = _text(value)
    # NaN is not smaller than anything; a number that many readers would round goes out as text.
    if isinstance(value, int | float) and abs(value) < 2**53 and redactor.mask(text) == text:
        return int(value) if isinstance(value, int) else float(value)
    return _short(text)


def _text(value: object) -> str:
    try:
        match value:
            case str() | PurePath():
                return str(value)
            case BaseException():
                return f"{type(value).__name__}: {value}"
            case datetime():
                return value.isoformat()
            case dict() | list() | tuple():
                with suppress(TypeError, ValueError, RecursionError):
                    return json.dumps(value, default=_text, ensure_ascii=False)
                return repr(value)
            case _:
                return repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not cost the line
        return f"<{type(value).__name__}, not printable>"


def _short(text: str) -> str:
    """At most 2,000 characters, without secrets. Masked before it is cut: half a secret would go unnoticed."""
    longest = redactor.longest
    window = text[: LONGEST_VALUE + 2 * longest]
    clean = redactor.clean(window)
    if len(window) < len(text):
        clean = clean[: len(clean) - longest] + "…"
    return clean if len(clean) <= LONGEST_VALUE else clean[: LONGEST_VALUE - 1] + "…"


def _visible(text: str) -> str:
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
