"""Pass the records of `logging`, and uncaught exceptions, to our log."""

import logging
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from loguru import logger

from csi.logs.logger import log

if TYPE_CHECKING:
    pass

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LIBRARIES = ("asyncio", "httpcore", "httpx", "huey", "peewee", "py.warnings", "starlette", "uvicorn")
# Libraries that report at INFO what we report ourselves, and at DEBUG every byte or statement: one level lower.
CHATTY = ("httpcore", "httpx", "huey", "peewee")


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


# ── uncaught exceptions ─────────────────────────────────────────────────────────────────────────────────


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
