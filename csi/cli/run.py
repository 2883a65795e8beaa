"""`csi run`: worker and sidecar in the foreground, for machines without a service manager."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from csi import runtime
from csi.cli.command import config_option
from csi.cli.process_group import ProcessGroup
from csi.config import loader

WORKER = ("huey.bin.huey_consumer", "huey_config.huey", "-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1")
GRACE = ("-g", "TERM", "-t", "25")
SIDECAR = ("csi.main",)


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
    lines = {"worker": (*WORKER, "-w", str(workers), *GRACE)} | ({} if no_web else {"sidecar": SIDECAR})
    sys.exit(ProcessGroup(lines, {**os.environ, "CSI_CONFIG_PATH": str(path)}).run())
