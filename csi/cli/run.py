"""`csi run`: worker and sidecar in the foreground, for machines without a service manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from csi import runtime
from csi.cli.command import config_option
from csi.config import loader
from csi.demo import configuration, processes
from csi.errors import STALLED

TICK = 0.1
GRACE_SECONDS = 30.0
"""The worker needs up to 25 s to finish its tasks and release its leases."""


@click.command()
@config_option
@click.option(
    "--workers",
    default=configuration.THREADS,
    show_default=True,
    type=click.IntRange(2, 64),
    help="Threads of the worker; streaming_mode adds max_concurrent_events.",
)
@click.option("--no-web", is_flag=True, help="Run the worker without the sidecar.")
def run(config_path: Path | None, workers: int, no_web: bool) -> None:
    """Run worker and sidecar until Ctrl-C or TERM.

    Running tasks finish first, for up to 30 seconds; a second Ctrl-C ends the wait. When one of the two processes
    exits, the other is stopped and the exit code is that of the first; a worker whose threads hung ends itself with
    exit code 10 and is started again. Both log to standard error. HUP reloads the configuration, unless standard input
    is a terminal, whose end is the same signal.
    """
    settings = runtime.load_settings(config_path)
    loader.require_delivery(settings)
    loader.require_queue(settings)
    path = loader.find_file(config_path, os.environ).absolute()
    # Of two -w options, huey_consumer takes the last.
    lines: dict[str, Sequence[str]] = {"worker": (*configuration.WORKER_COMMAND, "-w", str(workers))}
    if not no_web:
        lines["sidecar"] = configuration.SIDECAR_COMMAND
    sys.exit(_run_together(lines, {**os.environ, "CSI_CONFIG_PATH": str(path)}))


def _run_together(lines: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> int:
    """Run until a signal arrives (returns 0) or one of the processes exits (returns its exit code); then stop all."""
    # The working directory stays the caller's: relative paths in the configuration refer to it.
    running: dict[str, subprocess.Popen[bytes]] = {}
    has_terminal = sys.stdin.isatty() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # nohup ignores it
    with processes.StopSignals().handled() as signals:
        if not has_terminal:
            signal.signal(signal.SIGHUP, lambda number, frame: _reload(running))
        try:
            for name, line in lines.items():
                running[name] = _start(line, env)
            while not signals.count:
                for name, process in running.items():
                    code = process.poll()
                    if code == STALLED:
                        click.echo(
                            f"csi: the {name} ended itself because its threads hung; it is started again", err=True
                        )
                        running[name] = _start(lines[name], env)
                    elif code is not None:
                        code = code if code >= 0 else 128 - code  # as a shell reports it: 128 plus the signal's number
                        click.echo(f"csi: the {name} exited unexpectedly (exit code {code})", err=True)
                        return code
                time.sleep(TICK)
            return 0
        finally:
            _stop_all(list(running.values()), signals)


def _start(line: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The process ignores SIGHUP until it handles it: one that comes while the worker starts must not end it."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return processes.start_module(line, env=env)
    finally:
        signal.signal(signal.SIGHUP, handler)


def _reload(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    if (worker := running.get("worker")) is not None and worker.poll() is None:
        worker.send_signal(signal.SIGHUP)


def _stop_all(running: list[subprocess.Popen[bytes]], signals: processes.StopSignals) -> None:
    """Terminate all, wait for all, then kill the rest. Another signal ends the wait."""
    for process in running:
        if process.poll() is None:
            process.terminate()
    deadline, count = time.monotonic() + GRACE_SECONDS, signals.count
    while any(process.poll() is None for process in running):
        if time.monotonic() > deadline or signals.count > count:
            break
        time.sleep(TICK)
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
