"""The demo's processes: each in a session of its own, ended by its id, never left behind."""

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
from types import FrameType, TracebackType
from typing import Self, TypeVar

from csi.errors import CsiError
from csi.logs import redact

T = TypeVar("T")

TICK = 0.05
GRACE_SECONDS = 10.0
START_SECONDS = 60.0
LOG_LINES = 12
LAST_ORDER = ("worker", "sidecar", "receiver", "processing", "simulator")
"""Whoever sends ends before whoever is sent to."""

_PR_SET_PDEATHSIG = 1
_EMOJI_LOOKS = re.compile("[\U0001f3fb-\U0001f3ff\ufe0e\ufe0f]")


class ChildError(CsiError):
    """A process ended that should not have, or never came up."""


class StoppedBySignal(CsiError):
    """A signal asked for the end. The exit code is the shell's for that signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class StopSignals:
    """What signals asked for. Nothing is interrupted: whoever waits looks here."""

    def __init__(self) -> None:
        self.interrupts = 0
        self.ended_by: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupts += 1
        else:
            self.ended_by = number

    def check(self) -> None:
        """Ended, when the whole program should go."""
        if self.ended_by is not None:
            raise StoppedBySignal(self.ended_by)

    @contextlib.contextmanager
    def caught(self) -> Iterator[Self]:
        """From here on Ctrl-C, TERM and a closed terminal are wishes."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self.note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class ChildProcess:
    """One process, with its output in files."""

    def __init__(self, name: str, line: Sequence[str], *, home: Path, cwd: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.out, self.log = home / f"{name}.out", home / f"{name}.log"
        with self.out.open("wb") as out, self.log.open("wb") as log:
            # A session of its own: Ctrl-C in the terminal is for us, and we end it in order.
            self._process = subprocess.Popen(  # noqa: S603 our own modules
                [sys.executable, "-m", *line],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """ChildError when it is not running any more."""
        code = self._process.poll()
        if code is not None:
            raise ChildError(f"the {self.name} ended by itself ({_how(code)}).{self.last_lines()}")

    def last_lines(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
        shown = [f"  {printable(redact(line))[:400]}" for line in lines if line.strip()]
        return "\n".join([" The last lines of its log:", *shown]) if shown else " Its log is empty."

    def stop(self) -> None:
        """Ask, wait, and only then kill."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ChildProcesses:
    """All processes of one run. Leaving the context ends what still runs."""

    def __init__(self, home: Path, cwd: Path, env: Mapping[str, str], wishes: StopSignals) -> None:
        self._home, self._cwd, self._env, self._wishes = home, cwd, env, wishes
        self._children: dict[str, ChildProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    @property
    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._children.items()}

    def start(self, name: str, line: Sequence[str]) -> None:
        self._children[name] = ChildProcess(name, line, home=self._home, cwd=self._cwd, env=self._env)

    def check(self) -> None:
        for child in self._children.values():
            child.check()

    def await_output(self, name: str, read: Callable[[str], T | None]) -> T:
        """Wait until `read` finds what it looks for in the process's standard output."""
        child = self._children[name]
        return self.await_value(name, lambda: read(child.out.read_text("utf-8", "replace")))

    def await_value(self, name: str, look: Callable[[], T | None]) -> T:
        """Wait until `look` gives something, as long as everybody lives and nobody wants to leave."""
        deadline = time.monotonic() + START_SECONDS
        while (found := look()) is None:
            self.check()
            self._wishes.check()
            if self._wishes.interrupts:
                raise StoppedBySignal(signal.SIGINT)
            if time.monotonic() > deadline:
                why = self._children[name].last_lines()
                raise ChildError(f"the {name} did not come up within {START_SECONDS:g} seconds.{why}")
            time.sleep(TICK)
        return found

    def stop_all(self) -> None:
        for name in LAST_ORDER:
            if name in self._children:
                self._children[name].stop()


def printable(text: str) -> str:
    """Foreign text for a terminal. Left out: controls, marks that turn the line round, and what changes an emoji's
    look, since terminals do not agree how wide it is then."""
    shown = _EMOJI_LOOKS.sub("", text)
    return "".join(char if char.isprintable() else " " if char.isspace() else "" for char in shown)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def die_with_parent() -> Callable[[], None] | None:
    """Should this very process be killed, nobody could end the children: on Linux the kernel then does."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask_kernel
