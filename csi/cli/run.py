"""`csi run`: worker and sidecar in the foreground, for machines without a service manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from csi import runtime
from csi.cli.command import config_option
from csi.config import loader
from csi.demo import configuration, processes

TICK = 0.1
GRACE_SECONDS = 30.0
"""The worker needs up to 25 s to finish its tasks and release its leases."""


@click.command()
@config_option
@click.option("--workers", default=8, show_default=True, type=click.IntRange(2, 64), help="Threads of the worker.")
@click.option("--no-web", is_flag=True, help="Run the worker without the sidecar.")
def run(config_path: Path | None, workers: int, no_web: bool) -> None:
    """Run worker and sidecar until Ctrl-C or TERM.

    Running tasks finish first, for up to 30 seconds; a second Ctrl-C ends the wait. When one of the two processes
    exits, the other is stopped and the exit code is that of the first. Both log to standard error.
    """
    settings = runtime.load_settings(config_path)
    loader.require_delivery(settings)
    loader.require_queue(settings)
    path = loader.find_file(config_path, os.environ).absolute()
    # Of two -w options, huey_consumer takes the last.
    lines: dict[str, Sequence[str]] = {"worker": (*configuration.WORKER_COMMAND, "-w", str(workers))}
    if not no_web:
        lines["sidecar"] = configuration.SIDECAR_COMMAND
    sys.exit(ProcessGroup(lines, {**os.environ, "CSI_CONFIG_PATH": str(path)}).run())


class ProcessGroup:
    """Named processes of one installation, each `python -m …`."""

    def __init__(self, lines: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> None:
        # The working directory stays the caller's: relative paths in the configuration refer to it.
        paths = [str(configuration.code_dir()), env.get("PYTHONPATH", "")]
        self._lines, self._env = lines, {**env, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._signals = 0

    def run(self) -> int:
        """Run until a signal arrives (returns 0) or one of the processes exits (returns its exit code)."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._count_signal) for number in numbers}
        try:
            for name, line in self._lines.items():
                # A session of its own: Ctrl-C reaches only this process, which sends TERM so that work is finished.
                self._running[name] = subprocess.Popen(  # noqa: S603 our own modules
                    [sys.executable, "-m", *line],
                    stdin=subprocess.DEVNULL,
                    env=self._env,
                    start_new_session=True,
                    preexec_fn=processes.die_with_parent(),
                )
            return self._wait_for_exit()
        finally:
            self._stop_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _count_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _wait_for_exit(self) -> int:
        while not self._signals:
            for name, process in self._running.items():
                code = process.poll()
                if code is not None:
                    code = code if code >= 0 else 128 - code  # as a shell reports it: 128 plus the signal's number
                    click.echo(f"csi: the {name} exited unexpectedly (exit code {code})", err=True)
                    return code
            time.sleep(TICK)
        return 0

    def _stop_all(self) -> None:
        """Terminate all, wait for all, then kill the rest. Another signal ends the wait."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        deadline, signals = time.monotonic() + GRACE_SECONDS, self._signals
        while any(process.poll() is None for process in self._running.values()):
            if time.monotonic() > deadline or self._signals > signals:
                break
            time.sleep(TICK)
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
            process.wait()
