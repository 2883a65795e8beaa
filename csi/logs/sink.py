"""The sink that writes every record to one stream, and what is sent to it: our log, `logging`, uncaught exceptions."""

import json
import logging
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from loguru import logger

from csi.errors import ConfigError
from csi.logs.journal import is_journal, with_priority
from csi.logs.line import iso_milliseconds, to_json, to_text
from csi.logs.logger import log
from csi.logs.redaction import redact, register_secret

if TYPE_CHECKING:
    import loguru

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LIBRARIES = ("asyncio", "httpcore", "httpx", "huey", "peewee", "py.warnings", "starlette", "uvicorn")
# Libraries that report at INFO what we report ourselves, and at DEBUG every byte or statement: one level lower.
CHATTY = ("httpcore", "httpx", "httpx2", "huey", "mcp", "peewee")


class StreamSink:
    """Writes lines to a stream, or to whatever stderr is at that moment. Never raises."""

    def __init__(self, form: str, stream: TextIO | None) -> None:
        self._form = form
        self._stream = stream
        self._is_journal: bool | None = None

    def __call__(self, message: "loguru.Message") -> None:
        stream = self._stream or sys.stderr
        # A log that cannot be written must not stop the work; loguru would print the record, secrets included.
        with suppress(Exception):
            line = self._render(message.record, stream)
            if self._is_journal is None or self._stream is None:
                self._is_journal = is_journal(stream)
            line = (with_priority(line, message.record["level"].name) if self._is_journal else line) + "\n"
            try:
                stream.write(line)
            except UnicodeEncodeError:
                stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))
            stream.flush()

    def _render(self, record: "loguru.Record", stream: TextIO) -> str:
        as_text = self._form == "text" or (self._form == "auto" and stream.isatty())
        try:
            return to_text(record) if as_text else to_json(record)
        except Exception as error:  # noqa: BLE001 - half a line is better than none
            text = f"{record['message'][:200]} (fields not printable: {type(error).__name__})"
            at, level = iso_milliseconds(record["time"]), record["level"].name
            return json.dumps({"timestamp": at, "level": level, "message": redact(text)})


class CurrentSink:
    """The id of our sink in loguru."""

    sink: int | None = None


def setup(
    *, level: str = "INFO", format: str = "auto", secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Send our log and the standard library's to one stream (stderr by default). Calling it again replaces it."""
    wanted = {"WARN": "WARNING"}.get(level.upper(), level.upper())
    if wanted not in LEVELS:
        raise ConfigError(f"log level {level[:20]!r} is unknown: use one of {', '.join(LEVELS)}")
    if format not in ("auto", "json", "text"):
        raise ConfigError(f"log format {format[:20]!r} is unknown: use auto, json or text")
    for secret in secrets:
        register_secret(secret)
    _replace_sink(wanted, format, stream)
    intercept(wanted)


def _replace_sink(level: str, form: str, stream: TextIO | None) -> None:
    if CurrentSink.sink is not None:
        with suppress(ValueError):  # a test or a library removed it already
            logger.remove(CurrentSink.sink)
    CurrentSink.sink = logger.add(
        StreamSink(form, stream),
        level=level,
        format=lambda record: "{message}",
        colorize=False,
        backtrace=False,
        diagnose=False,
    )


class InterceptHandler(logging.Handler):
    """Passes the records of `logging` to loguru."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a library's broken log call is not our failure
            failed = record.exc_info if record.exc_info and record.exc_info[0] else None
            try:
                message = record.getMessage()
            except Exception:  # noqa: BLE001 - "%d" with a text: the template is better than nothing
                message = str(record.msg)
            step = min(max(record.levelno, 0) // 10, 5)
            if record.name.partition(".")[0] in CHATTY and record.levelno < logging.WARNING:
                step = max(step - 1, 0)
            named = logger.opt(exception=failed).patch(lambda ours: ours.update({"name": record.name}))
            named.log(LEVELS[step], message)


def intercept(level: str) -> None:
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
    """Remove the handlers of these loggers and of those below them, so that their records reach ours.

    Call it again after a library has configured itself: huey_consumer does so after the import of our modules.
    """
    for name in logging.root.manager.loggerDict.keys() | set(names):
        if any(name == top or name.startswith(f"{top}.") for top in names):
            library = logging.getLogger(name)
            for handler in list(library.handlers):
                library.removeHandler(handler)
                handler.close()
            library.propagate, library.disabled = True, False
            library.setLevel(logging.NOTSET)


def install_excepthook() -> None:
    """Log uncaught exceptions of this process, in any thread, as lines instead of tracebacks."""
    sys.excepthook = _on_uncaught
    threading.excepthook = _on_thread_death
    sys.unraisablehook = _on_unraisable


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        log.info("interrupted")
        return
    log.opt(exception=error).critical("uncaught error ends the process")


def _on_thread_death(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or issubclass(args.exc_type, SystemExit):
        return
    name = args.thread.name if args.thread else None
    log.opt(exception=args.exc_value).error("uncaught error ended a thread", thread=name)


def _on_unraisable(args: "sys.UnraisableHookArgs") -> None:
    log.opt(exception=args.exc_value).error(
        "error in a destructor or callback was ignored", where=repr(args.object)[:200]
    )


# Until `setup` is called, warnings go to stderr in our form: the default sink of loguru would print local variables.
with suppress(ValueError):
    logger.remove(0)
_replace_sink("WARNING", "auto", None)
