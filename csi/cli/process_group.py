"""Processes that live and end together: signals are passed on, the first to end ends the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

import click

from csi.demo import configuration, processes

TICK = 0.1
GRACE_SECONDS = 30.0
"""What the worker may take to finish (25 s) and give back its leases."""


class ProcessGroup:
    """A few named processes of one installation, each `python -m …`."""

    def __init__(self, lines: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> None:
        # The folder stays the caller's, so that paths in his files mean what he meant.
        paths = [str(configuration.code_dir()), env.get("PYTHONPATH", "")]
        self._lines, self._env = lines, {**env, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._asked = 0

    def run(self) -> int:
        """Until somebody asks for the end (0), or one of them ends by itself (its exit code)."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            for name, line in self._lines.items():
                self._running[name] = self._start(line)
            return self._watch()
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1

    def _start(self, line: Sequence[str]) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in the terminal is for us, and we pass on TERM, which lets work be finished.
        return subprocess.Popen(  # noqa: S603 our own modules
            [sys.executable, "-m", *line],
            stdin=subprocess.DEVNULL,
            env=self._env,
            start_new_session=True,
            preexec_fn=processes.die_with_parent(),
        )

    def _watch(self) -> int:
        while not self._asked:
            for name, process in self._running.items():
                code = process.poll()
                if code is not None:
                    click.echo(f"csi: the {name} ended by itself (exit code {_shell(code)})", err=True)
                    return _shell(code)
            time.sleep(TICK)
        return 0

    def _end(self) -> None:
        """Ask all, wait for all, and only then kill. Asked once more: do not wait."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        deadline, asked = time.monotonic() + GRACE_SECONDS, self._asked
        while any(process.poll() is None for process in self._running.values()):
            if time.monotonic() > deadline or self._asked > asked:
                break
            time.sleep(TICK)
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _shell(code: int) -> int:
    """As a shell counts it: 128 and the number of the signal."""
    return code if code >= 0 else 128 - code
