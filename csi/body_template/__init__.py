"""Templates of request bodies and messages: Jinja2 in a sandbox, in a child process with limits.

The sandbox keeps a template away from Python, but not from loops without end or from strings of gigabytes, and no
thread can be ended from outside. One child process per process therefore renders for all threads; a template that uses
up its processor time ends the child alone, and the next rendering starts another. No row remembers the child: it keeps
nothing between two renderings. # decision 0043
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from csi import exclusive_section
from csi.body_template.sample import SAMPLE_EVENT
from csi.errors import CsiError

WAIT_SECONDS = 30.0
"""For the child's answer, which is more than its processor time: a machine may be busy."""

LOOPS = "takes more than 2 s of processor time; does it loop?"


class TemplateFailed(CsiError):
    """A template that could not be rendered with this event. The text has the line of the template."""


class RendererFailed(CsiError):
    """The child process did not start or did not answer in time; the template may be right."""


class _Renderer:
    """The child process of this process, started when it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps(request).encode() + b"\n"
        with exclusive_section.released(), self._lock:
            child = self._start()
            try:
                return self._exchange(child, line)
            except BaseException:
                child.kill()
                child.wait()
                for pipe in (child.stdin, child.stdout):
                    with suppress(OSError):  # closing flushes, and the child has ended
                        if pipe is not None:
                            pipe.close()
                self._child = None
                raise

    def _start(self) -> subprocess.Popen[bytes]:
        # A forked process must not share the pipes of its parent.
        if self._child is not None and self._owner == os.getpid() and self._child.poll() is None:
            return self._child
        env = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH")}  # no secrets
        command = [sys.executable, "-I", str(Path(__file__).with_name("child.py"))]
        try:
            self._child = subprocess.Popen(  # noqa: S603 our own interpreter and file; templates are its input
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
            )
        except OSError as error:
            raise RendererFailed(f"the process that renders templates did not start: {error.strerror}") from error
        self._owner = os.getpid()
        return self._child

    def _exchange(self, child: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
        assert child.stdin is not None
        assert child.stdout is not None
        ends, said = time.monotonic() + WAIT_SECONDS, b""
        with suppress(OSError):  # it has ended; the loop below says how
            child.stdin.write(line)
            child.stdin.flush()
        while not said.endswith(b"\n"):
            if not select.select([child.stdout], [], [], max(ends - time.monotonic(), 0))[0]:
                raise RendererFailed(f"the process that renders templates did not answer in {WAIT_SECONDS:g} s")
            piece = os.read(child.stdout.fileno(), 65_536)
            if not piece:
                code = child.wait()
                if code == -signal.SIGPROF:
                    raise TemplateFailed(LOOPS)
                raise RendererFailed(f"the process that renders templates ended with {code}")
            said += piece
        answer: dict[str, Any] = json.loads(said)
        return answer


_renderer = _Renderer()


def render(template: str, context: dict[str, Any]) -> str:
    """The text. TemplateFailed: the template, with this event; RendererFailed: not the template's fault."""
    said = _renderer.ask({"template": template, "context": context})
    if "error" not in said:
        return str(said["text"])
    where = f"line {said['line']}: " if said.get("line") else ""
    raise TemplateFailed(f"{where}{said['error']}")


def render_json(template: str, context: dict[str, Any]) -> str:
    """Like `render`; TemplateFailed also where the result is not JSON."""
    text = render(template, context)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TemplateFailed(
            f"the result is not JSON ({error}); write texts as {{{{ … | tojson }}}}, or set a Content-Type in headers"
        ) from error
    return text


def context_of(events: list[dict[str, Any]], *, instance_id: str, batch_id: str) -> dict[str, Any]:
    """What a template may use. `event` is the first; a body of one event has no other."""
    return {"events": events, "event": events[0], "instance_id": instance_id, "batch_id": batch_id}


def fault_of(template: str, *, is_json: bool) -> str | None:
    """Why this template cannot be used, tried with a sample event; None: it can."""
    context = context_of([SAMPLE_EVENT], instance_id="csi-sample", batch_id="batch_sample")
    try:
        (render_json if is_json else render)(template, context)
    except (TemplateFailed, RendererFailed) as error:
        return str(error)
    return None
