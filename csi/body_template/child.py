"""The script of the child process that renders templates: one JSON request per line, one JSON answer per line.

It runs isolated (`-I`), so it imports Jinja2 and the standard library alone. A template that loops uses up its
processor time, and SIGPROF ends this process; one that needs too much memory gets a MemoryError.
"""

import json
import resource
import signal
import sys
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

RENDER_SECONDS = 2.0
"""Processor time for one rendering: a busy machine fails no template."""

MAX_CHARACTERS = 1_000_000
MEMORY = 512 * 1024 * 1024
NAME = "<template>"


class TooLong(Exception):
    """The result is longer than MAX_CHARACTERS."""


def headline(event: dict[str, Any]) -> str:
    """The title of what the event is about; without one, its type and source."""
    title = (event.get("subject") or {}).get("title")
    return str(title) if title else f"{event.get('event_type')} ({event.get('source')})"


def _not_json(value: Any) -> Any:
    if isinstance(value, Undefined):
        str(value)  # raises the error that names the missing field
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
environment.filters["headline"] = headline
environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "default": _not_json}


@lru_cache(maxsize=64)
def compiled(text: str) -> Template:
    return environment.from_string(text)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """`text`, or `error` with the `line` of the template."""
    try:
        parts, length = [], 0
        for part in compiled(request["template"]).generate(request["context"]):
            length += len(part)
            if length > MAX_CHARACTERS:
                raise TooLong(f"the result has more than {MAX_CHARACTERS:,} characters")
            parts.append(part)
        text = "".join(parts)
        text.encode()  # half a surrogate pair cannot be sent
        return {"text": text}
    except TemplateSyntaxError as error:
        return {"error": error.message or "syntax error", "line": error.lineno}
    except MemoryError as error:
        return {"error": f"needs more than {MEMORY // 1024 // 1024} MB", "line": line_of(error)}
    except Exception as error:  # noqa: BLE001 a template can fail in any way; the event becomes a dead letter
        words = str(error) if isinstance(error, TooLong) else f"{type(error).__name__}: {error}"
        return {"error": words[:300], "line": line_of(error)}


def line_of(error: BaseException) -> int | None:
    """The last line of the template in the traceback, which Jinja2 writes with the template's own lines."""
    line, place = None, error.__traceback__
    while place is not None:
        if place.tb_frame.f_code.co_filename == NAME:
            line = place.tb_lineno
        place = place.tb_next
    return line


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for request_line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, RENDER_SECONDS)
        said = answer(json.loads(request_line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(said), flush=True)  # noqa: T201 the answer to the parent
