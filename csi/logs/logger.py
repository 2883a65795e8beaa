"""The logger that CSI's code calls: a constant message and keys."""

import sys
from collections.abc import Mapping
from contextlib import suppress

from loguru import logger

_NUMBER = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


class Log:
    """loguru's logger for constant messages and fields: `log.info("batch delivered", batch_id=…)`.

    Unlike loguru it never takes the message for a template, so braces in it are harmless, and no call raises.
    An exception as a field becomes "Type: message"; `exception` and `opt(exception=…)` add the stack trace.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error

    def debug(self, message: str, /, **fields: object) -> None:
        self._write("DEBUG", message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        self._write("INFO", message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        self._write("WARNING", message, fields)

    def error(self, message: str, /, **fields: object) -> None:
        self._write("ERROR", message, fields)

    def critical(self, message: str, /, **fields: object) -> None:
        self._write("CRITICAL", message, fields)

    def exception(self, message: str, /, **fields: object) -> None:
        """ERROR with the exception that is being handled."""
        self.opt(exception=sys.exc_info()[1])._write("ERROR", message, fields)

    def opt(self, *, exception: BaseException | None) -> "Log":
        """A logger whose lines have this exception."""
        return Log(exception)

    def _write(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        # loguru has the lowest level of all sinks in a private attribute; without it every line is passed on.
        if _NUMBER[level] < getattr(getattr(logger, "_core", None), "min_level", 0.0):
            return
        with suppress(Exception):
            bound = logger.bind(**fields) if fields else logger
            bound.opt(depth=2, exception=self._error).log(level, message)


log = Log()
