"""Log lines on stderr, JSON or text, one per record, with every known secret taken out."""

import base64
import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote, quote_plus

from loguru import logger

from csi.errors import ConfigError

if TYPE_CHECKING:
    import loguru

__all__ = ["Log", "install_excepthook", "log", "redact", "register_secret", "setup", "take_over"]

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_NUMBER = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
LIBRARIES = ("asyncio", "httpcore", "httpx", "huey", "peewee", "py.warnings", "starlette", "uvicorn")
# Libraries that tell at INFO what we tell ourselves, and at DEBUG every byte or statement: one level lower.
CHATTY = ("httpcore", "httpx", "huey", "peewee")

MASK = "[redacted]"
SHORTEST_SECRET = 6
LONGEST_VALUE = 2_000
LONGEST_TRACE = 8_000

_ALWAYS = ("source", "event_type", "event_id")
_OURS = frozenset({"timestamp", "level", "message", "logger", "stack_trace"})
# C0 and C1 controls, line and paragraph separators, marks that reverse the text, lone surrogates.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = re.compile(r"[^\s\"'=]+")


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────────────


class _Redactor:
    """Every form in which a known secret could turn up, and a few patterns for secrets that we do not know."""

    HINT = re.compile(r"(?i)=|bearer|authorization|api-key|cookie|AIza")
    PATTERNS = (
        (
            re.compile(
                r"(?i)((?:proxy-)?authorization|x-goog-api-key|x-api-key|(?:set-)?cookie)"
                r"(\\?[\"']?(?:\s*[:=]\s*(?:b?\\?[\"'])?|\s*,\s*b?\\?[\"']))"
                r"(?:(?:bearer|basic)\s+)?[^\s\"',;\\]{2,}"
            ),
            rf"\1\2{MASK}",
        ),
        (re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}"), rf"\1{MASK}"),
        (
            re.compile(
                r"(?i)((?:^|[?&;\s\"'(])"
                r"(?:key|api_?key|(?:access_|refresh_)?token|(?:client_)?secret|password)=)[^&\s\"'\\#)]+"
            ),
            rf"\1{MASK}",
        ),
        (re.compile(r"AIza[\w-]{30,}"), MASK),
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forms: tuple[str, ...] = ()

    def add(self, secret: str) -> None:
        with self._lock:
            known = {*self.forms, *_forms(secret), *_forms(secret.strip())}
            self.forms = tuple(sorted(known, key=len, reverse=True))  # a long form before a part of it

    def clean(self, text: str) -> str:
        """Known secrets and secret-looking values masked."""
        text = self.mask(text)
        if self.HINT.search(text):
            for pattern, left in self.PATTERNS:
                text = pattern.sub(left, text)
        return text

    def mask(self, text: str) -> str:
        for form in self.forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    @property
    def longest(self) -> int:
        return len(self.forms[0]) if self.forms else 0


def _forms(secret: str) -> set[str]:
    if len(secret) < SHORTEST_SECRET:
        return set()
    data = secret.encode("utf-8", "surrogatepass")
    quoted = {quote(data, safe=""), quote(data), quote_plus(data)}
    lower = {re.sub("%..", lambda match: match[0].lower(), text) for text in quoted}
    escaped = {secret, *_json_forms(secret), repr(secret)[1:-1], repr(data)[2:-1]}
    twice = {form for text in escaped for form in _json_forms(text)}
    found = {*quoted, *lower, *escaped, *twice, *_base64_forms(data), data.hex(), data.hex().upper()}
    return {form for form in found if len(form) >= SHORTEST_SECRET}


def _json_forms(text: str) -> set[str]:
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}


def _base64_forms(data: bytes) -> set[str]:
    """The letters that stand for these bytes wherever they lie in a longer base64 text, as in `user:password`."""
    found = set()
    for offset, skipped in ((0, 0), (1, 2), (2, 3)):
        padded = bytes(offset) + data
        whole = base64.b64encode(padded).decode()[skipped : len(padded) * 8 // 6]
        found |= {whole, whole.translate({ord("+"): "-", ord("/"): "_"})}
    return found


_redactor = _Redactor()


def register_secret(value: str) -> None:
    """Mask this value from now on, in every form and every sink. Shorter than 6 characters: ignored."""
    _redactor.add(value)


def redact(text: str) -> str:
    """Text for other eyes than the log's (an error kept in the database, an answer) without secrets."""
    return _redactor.clean(text)


# ── a record becomes a line ─────────────────────────────────────────────────────────────────────────────


def _to_json(record: "loguru.Record") -> str:
    line = json.dumps(_flatten(record), separators=(",", ":"), allow_nan=False).replace("\x7f", "\\u007f")
    masked = _redactor.mask(line)
    if masked != line and not _is_json(masked):
        return json.dumps({"level": record["level"].name, "message": MASK})
    return masked


def _to_text(record: "loguru.Record") -> str:
    fields = _flatten(record)
    trace = fields.pop("stack_trace", None)
    timestamp, level, message, name = (str(fields.pop(key)) for key in ("timestamp", "level", "message", "logger"))
    pairs = [f"{_visible(key)}={_quoted(value)}" for key, value in fields.items() if value is not None]
    lines = [" ".join([timestamp, f"{level:<8}", name, _visible(message), *pairs])]
    # Indented, so that no text inside an exception can look like a record of its own.
    lines += [f"    {_visible(part)}" for part in str(trace or "").split("\n") if part]
    return _redactor.mask("\n".join(lines))


def _flatten(record: "loguru.Record") -> dict[str, object]:
    """NFR-5.3's fields, always; then the record's own; an exception last."""
    extra = record["extra"]
    failure = _failure(record)
    taken = _OURS | failure.keys()
    flat: dict[str, object] = {
        "timestamp": _stamp(record["time"]),
        "level": record["level"].name,
        "message": _short(record["message"]),
        "logger": record["name"] or "",
    }
    flat |= {key: _plain(extra.get(key)) for key in _ALWAYS}
    for key, value in extra.items():
        flat[_free_key(_redactor.mask(key), taken)] = _plain(value)
    return flat | failure


def _free_key(key: str, taken: Iterable[str]) -> str:
    while key in taken:
        key += "_"
    return key


def _failure(record: "loguru.Record") -> dict[str, object]:
    exception = record["exception"]
    if exception is None or exception.value is None:
        return {}
    parts = traceback.format_exception(exception.type, exception.value, exception.traceback)
    return {"error": _plain(exception.value), "stack_trace": _tail("".join(parts))}


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str | int | float | bool | None:
    """A JSON scalar for any value: a log line is flat, and no value may break it."""
    if value is None or isinstance(value, bool):
        return value
    text = _text(value)
    # NaN is not smaller than anything; a number that many readers would round goes out as text.
    if isinstance(value, int | float) and abs(value) < 2**53 and _redactor.mask(text) == text:
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
                return _nested(value)
            case _:
                return repr(value)
    except Exception:  # noqa: BLE001 - somebody's __repr__ must not cost us the line
        return f"<{type(value).__name__}, not printable>"


def _nested(value: object) -> str:
    try:
        return json.dumps(value, default=_text, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _short(text: str) -> str:
    """At most 2,000 characters, without secrets. Masked before it is cut: half a secret would go unnoticed."""
    longest = _redactor.longest
    window = text[: LONGEST_VALUE + 2 * longest]
    clean = _redactor.clean(window)
    if len(window) < len(text):
        clean = clean[: len(clean) - longest] + "…"
    return clean if len(clean) <= LONGEST_VALUE else clean[: LONGEST_VALUE - 1] + "…"


def _tail(text: str) -> str:
    """The end of a stack trace, where the reason is, masked like `_short`."""
    longest = _redactor.longest
    window = text[-(LONGEST_TRACE + 2 * longest) :]
    clean = _redactor.clean(window)
    return clean[longest if len(window) < len(text) else 0 :][-LONGEST_TRACE:]


def _visible(text: str) -> str:
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def _quoted(value: object) -> str:
    text = _visible(str(value))
    return text if _PLAIN.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


# ── the sink ────────────────────────────────────────────────────────────────────────────────────────────


class _Sink:
    """Writes lines to a stream, or to whatever stderr is at that moment. Never raises."""

    def __init__(self, form: str, stream: TextIO | None) -> None:
        self._form = form
        self._stream = stream

    def __call__(self, message: "loguru.Message") -> None:
        stream = self._stream or sys.stderr
        # A log that cannot be written must not stop the work; loguru would print the record, secrets included.
        with suppress(Exception):
            self._write(stream, self._render(message.record, stream) + "\n")

    def _render(self, record: "loguru.Record", stream: TextIO) -> str:
        as_text = self._form == "text" or (self._form == "auto" and stream.isatty())
        try:
            return _to_text(record) if as_text else _to_json(record)
        except Exception as error:  # noqa: BLE001 - half a line is better than none
            return _last_words(record, error)

    def _write(self, stream: TextIO, line: str) -> None:
        try:
            stream.write(line)
        except UnicodeEncodeError:
            stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))
        stream.flush()


def _last_words(record: "loguru.Record", error: Exception) -> str:
    message = f"{record['message'][:200]} (fields not printable: {type(error).__name__})"
    words = {"timestamp": _stamp(record["time"]), "level": record["level"].name, "message": redact(message)}
    return json.dumps(words)


class _Current:
    """The id of our sink in loguru."""

    sink: int | None = None


def setup(
    *,
    level: str = "INFO",
    format: str = "auto",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Send our log and the standard library's to one stream (stderr by default). Calling it again replaces it."""
    wanted = _check_level(level)
    if format not in ("auto", "json", "text"):
        raise ConfigError(f"log format {format[:20]!r} is unknown: use auto, json or text")
    for secret in secrets:
        register_secret(secret)
    _replace_sink(wanted, format, stream)
    _intercept(wanted)


def _check_level(level: str) -> str:
    wanted = {"WARN": "WARNING"}.get(level.upper(), level.upper())
    if wanted not in LEVELS:
        raise ConfigError(f"log level {level[:20]!r} is unknown: use one of {', '.join(LEVELS)}")
    return wanted


def _replace_sink(level: str, form: str, stream: TextIO | None) -> None:
    if _Current.sink is not None:
        with suppress(ValueError):  # somebody has removed it
            logger.remove(_Current.sink)
    _Current.sink = logger.add(
        _Sink(form, stream),
        level=level,
        format=lambda record: "{message}",
        colorize=False,
        backtrace=False,
        diagnose=False,
    )


# ── the standard library's logging ──────────────────────────────────────────────────────────────────────


class InterceptHandler(logging.Handler):
    """Hands the records of `logging` to loguru."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a library's broken log call is not our failure
            failed = record.exc_info if record.exc_info and record.exc_info[0] else None
            named = logger.opt(exception=failed).patch(lambda ours: _rename(ours, record.name))
            named.log(_level_of(record), _message_of(record))


def _rename(record: "loguru.Record", name: str) -> None:
    record["name"] = name


def _level_of(record: logging.LogRecord) -> str:
    steps = min(max(record.levelno, 0) // 10, 5)
    chatty = record.name.partition(".")[0] in CHATTY and record.levelno < logging.WARNING
    return LEVELS[max(steps - 1, 0) if chatty else steps]


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - "%d" with a text: show what there is
        return str(record.msg)


def _intercept(level: str) -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, InterceptHandler) or type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    root.addHandler(InterceptHandler())
    root.setLevel(max(LEVELS.index(level) * 10, 1))
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    take_over(*LIBRARIES)


def take_over(*names: str) -> None:
    """Drop the handlers that libraries gave their own loggers, and those below, so that all goes through ours.

    Call it again after a library has configured itself: huey_consumer does so after the import of our modules.
    """
    for name in logging.root.manager.loggerDict.keys() | set(names):
        if any(name == top or name.startswith(f"{top}.") for top in names):
            _strip(logging.getLogger(name))


def _strip(library: logging.Logger) -> None:
    for handler in list(library.handlers):
        library.removeHandler(handler)
        handler.close()
    library.propagate = True
    library.disabled = False
    library.setLevel(logging.NOTSET)


# ── uncaught exceptions ─────────────────────────────────────────────────────────────────────────────────


def install_excepthook() -> None:
    """In a process of ours: an exception that nobody caught, in any thread, is a log line and not a traceback."""
    sys.excepthook = _on_uncaught
    threading.excepthook = _on_thread_death
    sys.unraisablehook = _on_unraisable


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        log.info("interrupted")
        return
    log.opt(exception=error).critical("the process ends by an error that nobody caught")


def _on_thread_death(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or issubclass(args.exc_type, SystemExit):
        return
    name = args.thread.name if args.thread else None
    log.opt(exception=args.exc_value).error("a thread ended by an error that nobody caught", thread=name)


def _on_unraisable(args: "sys.UnraisableHookArgs") -> None:
    log.opt(exception=args.exc_value).error("an error could not be raised", where=repr(args.object)[:200])


# ── what the rest of CSI writes to ──────────────────────────────────────────────────────────────────────


class Log:
    """loguru's logger for constant sentences and fields: `log.info("batch delivered", batch_id=…)`.

    Unlike loguru's own it never formats a sentence that comes with fields, so braces in it are harmless, and no
    call ever raises. An exception as a field becomes "Type: message"; `exception` and `opt(exception=…)` add the
    stack.
    """

    def __init__(self, inner: "loguru.Logger", error: BaseException | None = None) -> None:
        self._inner = inner
        self._error = error

    def trace(self, message: str, /, *args: object, **fields: object) -> None:
        self._write("TRACE", message, args, fields)

    def debug(self, message: str, /, *args: object, **fields: object) -> None:
        self._write("DEBUG", message, args, fields)

    def info(self, message: str, /, *args: object, **fields: object) -> None:
        self._write("INFO", message, args, fields)

    def warning(self, message: str, /, *args: object, **fields: object) -> None:
        self._write("WARNING", message, args, fields)

    def error(self, message: str, /, *args: object, **fields: object) -> None:
        self._write("ERROR", message, args, fields)

    def critical(self, message: str, /, *args: object, **fields: object) -> None:
        self._write("CRITICAL", message, args, fields)

    def exception(self, message: str, /, *args: object, **fields: object) -> None:
        """ERROR with the exception that is being handled."""
        self.opt(exception=sys.exc_info()[1])._write("ERROR", message, args, fields)

    def log(self, level: str, message: str, /, *args: object, **fields: object) -> None:
        self._write(level, message, args, fields)

    def bind(self, **fields: object) -> "Log":
        """A logger whose lines all carry these fields."""
        return Log(self._inner.bind(**fields), self._error)

    def opt(self, *, exception: BaseException | bool | None = None) -> "Log":
        """A logger whose next lines tell of this exception (True: of the one being handled)."""
        error = exception if isinstance(exception, BaseException) else None
        return Log(self._inner, sys.exc_info()[1] if exception is True else error)

    @contextmanager
    def contextualize(self, **fields: object) -> Iterator[None]:
        """All lines of this thread or task, while the block lasts, carry these fields."""
        with self._inner.contextualize(**fields):
            yield

    def add(self, sink: Callable[["loguru.Message"], None], **options: Any) -> int:
        """A further sink, as tests use it. It sees the raw record: what it writes is its own affair."""
        return self._inner.add(sink, **{"diagnose": False, "backtrace": False} | options)

    def remove(self, sink: int) -> None:
        self._inner.remove(sink)

    def _write(self, level: str, message: str, args: tuple[object, ...], fields: Mapping[str, object]) -> None:
        if _NUMBER.get(level, 50) < _lowest_level():
            return  # nobody listens: saves what loguru would do before it finds that out
        with suppress(Exception):
            bound = self._inner.bind(**fields) if fields else self._inner
            bound.opt(depth=2, exception=self._error).log(level, _fill(message, args))


def _lowest_level() -> float:
    """The lowest level that any sink takes. loguru keeps it, though not in public; without it everything is tried."""
    return getattr(getattr(logger, "_core", None), "min_level", 0.0)


def _fill(message: str, args: tuple[object, ...]) -> str:
    try:
        return message.format(*args) if args else message
    except (LookupError, ValueError, AttributeError, TypeError):
        return f"{message} {args!r}"


log = Log(logger)

# Until `setup` is called, warnings go to stderr in our form: loguru's first sink would print local variables.
with suppress(ValueError):
    logger.remove(0)
_replace_sink("WARNING", "auto", None)
