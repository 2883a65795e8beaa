"""The logger that CSI's code calls: a constant message and keys."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from loguru import logger

if TYPE_CHECKING:
    import loguru

_NUMBER = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


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
        """A logger whose next lines carry this exception (True: the one being handled)."""
        error = exception if isinstance(exception, BaseException) else None
        return Log(self._inner, sys.exc_info()[1] if exception is True else error)

    @contextmanager
    def contextualize(self, **fields: object) -> Iterator[None]:
        """All lines of this thread or task, while the block lasts, carry these fields."""
        with self._inner.contextualize(**fields):
            yield

    def add(self, sink: Callable[["loguru.Message"], None], **options: Any) -> int:
        """A further sink, for tests. It gets the raw record, without masking."""
        return self._inner.add(sink, **{"diagnose": False, "backtrace": False} | options)

    def remove(self, sink: int) -> None:
        self._inner.remove(sink)

    def _write(self, level: str, message: str, args: tuple[object, ...], fields: Mapping[str, object]) -> None:
        # loguru has the lowest level of all sinks in a private attribute; without it every line is passed on.
        if _NUMBER.get(level, 50) < getattr(getattr(logger, "_core", None), "min_level", 0.0):
            return
        with suppress(Exception):
            try:
                text = message.format(*args) if args else message
            except (LookupError, ValueError, AttributeError, TypeError):
                text = f"{message} {args!r}"
            bound = self._inner.bind(**fields) if fields else self._inner
            bound.opt(depth=2, exception=self._error).log(level, text)


log = Log(logger)
