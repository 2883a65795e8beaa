"""Start, watch and stop the demo's processes. Each has a session of its own, and none is left running."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

from csi.errors import CsiError
from csi.logs import redact

T = TypeVar("T")

TICK = 0.05
GRACE_SECONDS = 10.0
START_SECONDS = 60.0
LOG_LINES = 12
STOP_ORDER = ("worker", "sidecar", "receiver", "processing", "simulator")
"""A process that sends requests stops before the process that answers them."""

_PR_SET_PDEATHSIG = 1
_EMOJI_MODIFIERS = re.compile("[\U0001f3fb-\U0001f3ff\ufe0e\ufe0f]")


class ChildError(CsiError):
    """A process exited unexpectedly, or did not start in time."""


class StoppedBySignal(CsiError):
    """The demo was stopped by a signal. The exit code is 128 plus the signal number, as in a shell."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class StopSignals:
    """Records the signals that ask the demo to stop. Waiting loops call `check`; nothing is interrupted."""

    def __init__(self) -> None:
        self.count = self.interrupts = 0
        self.terminated_by: int | None = None

    def record(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if number == signal.SIGINT:
            self.interrupts += 1
        else:
            self.terminated_by = number

    def check(self) -> None:
        """Raise StoppedBySignal after SIGTERM or SIGHUP."""
        if self.terminated_by is not None:
            raise StoppedBySignal(self.terminated_by)

    @contextlib.contextmanager
    def handled(self) -> Iterator[Self]:
        """Record SIGINT, SIGTERM and SIGHUP inside this context; restore the handlers afterwards."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self.record) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class ChildProcess:
    """One process, with its standard output and its log in files."""

    def __init__(self, name: str, command: Sequence[str], *, home: Path, cwd: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.out, self.log = home / f"{name}.out", home / f"{name}.log"
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self._process = start_module(command, env=env, cwd=cwd, stdout=out, stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise ChildError if the process has exited."""
        code = self._process.poll()
        if code is not None:
            reason = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
            raise ChildError(f"the {self.name} exited unexpectedly ({reason}).{self.last_log_lines()}")

    def last_log_lines(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
        shown = [f"  {printable(redact(line))[:400]}" for line in lines if line.strip()]
        return "\n".join([" The last lines of its log:", *shown]) if shown else " Its log is empty."

    def stop(self) -> None:
        """Terminate the process, and kill it if it has not exited after GRACE_SECONDS."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ChildProcesses:
    """All processes of one run. Leaving the context stops them."""

    def __init__(self, home: Path, cwd: Path, env: Mapping[str, str], signals: StopSignals) -> None:
        self._home, self._cwd, self._env, self._signals = home, cwd, env, signals
        self._children: dict[str, ChildProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_all()

    @property
    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._children.items()}

    def start(self, name: str, command: Sequence[str]) -> None:
        self._children[name] = ChildProcess(name, command, home=self._home, cwd=self._cwd, env=self._env)

    def check(self) -> None:
        for child in self._children.values():
            child.check()

    def await_output(self, name: str, read: Callable[[str], T | None]) -> T:
        """Wait until `read` returns a value for the process's standard output."""
        child = self._children[name]
        return self.await_value(name, lambda: read(child.out.read_text("utf-8", "replace")))

    def await_value(self, name: str, read: Callable[[], T | None]) -> T:
        """Wait until `read` returns a value. Raises when a process exits, on a signal, and after START_SECONDS."""
        deadline = time.monotonic() + START_SECONDS
        while (found := read()) is None:
            self.check()
            self._signals.check()
            if self._signals.interrupts:
                raise StoppedBySignal(signal.SIGINT)
            if time.monotonic() > deadline:
                log = self._children[name].last_log_lines()
                raise ChildError(f"the {name} did not start within {START_SECONDS:g} seconds.{log}")
            time.sleep(TICK)
        return found

    def stop_all(self) -> None:
        for name in STOP_ORDER:
            if name in self._children:
                self._children[name].stop()


def code_dir() -> Path:
    """The directory of huey_config.py: the project directory, or site-packages. It is beside the package csi."""
    place = Path(__file__).resolve().parents[2]
    if not (place / "huey_config.py").is_file():
        raise CsiError(f"{place} has no huey_config.py; install csi again, or run it in the project directory")
    return place


def printable(text: str) -> str:
    """Foreign text for a terminal, without control characters, bidirectional marks and emoji modifiers: terminals
    disagree about the width of a modified emoji."""
    shown = _EMOJI_MODIFIERS.sub("", text)
    return "".join(char if char.isprintable() else " " if char.isspace() else "" for char in shown)


def start_module(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """`python -m …` in a session of its own: Ctrl-C reaches only this process, which stops its children in order.

    `-P`: a tasks.py or huey_config.py in the working directory must not replace ours.
    """
    env = dict(options.pop("env", os.environ))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(code_dir()), env.get("PYTHONPATH"))))
    return subprocess.Popen(  # noqa: S603 our own modules
        [sys.executable, "-P", "-m", *command],
        env=env,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent(),
        **options,
    )


def _die_with_parent() -> Callable[[], None] | None:
    """A `preexec_fn`: on Linux the kernel terminates the child when this process is killed. None on other systems."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return set_death_signal
