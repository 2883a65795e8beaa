"""The sink that writes every record to one stream, and the setup of logging in a process."""

import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from loguru import logger

from csi.errors import ConfigError
from csi.logs.intercept import LEVELS, intercept
from csi.logs.line import iso_milliseconds, to_json, to_text
from csi.logs.redaction import redact, register_secret

if TYPE_CHECKING:
    import loguru


class StreamSink:
    """Writes lines to a stream, or to whatever stderr is at that moment. Never raises."""

    def __init__(self, form: str, stream: TextIO | None) -> None:
        self._form = form
        self._stream = stream

    def __call__(self, message: "loguru.Message") -> None:
        stream = self._stream or sys.stderr
        # A log that cannot be written must not stop the work; loguru would print the record, secrets included.
        with suppress(Exception):
            line = self._render(message.record, stream) + "\n"
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
    *,
    level: str = "INFO",
    format: str = "auto",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
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


# Until `setup` is called, warnings go to stderr in our form: the default sink of loguru would print local variables.
with suppress(ValueError):
    logger.remove(0)
_replace_sink("WARNING", "auto", None)
