"""`csi reload`: load a changed configuration into the running worker; the sidecar notices it itself."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import click

from csi import logs, runtime, worker_lock
from csi.cli.command import config_option, opened
from csi.cli.output import plain
from csi.config import loader
from csi.errors import ConfigError, CsiError
from csi.store import reload_results

WAIT_SECONDS = 30.0


@click.command()
@config_option
def reload(config_path: Path | None) -> None:
    """Load the changed configuration into the running worker, and wait for its answer. Exit code 3 if it refuses.

    An invalid file is reported here and changes nothing. The sidecar takes a changed file within five seconds by
    itself. Under systemd, `systemctl reload csi-worker` does the same.
    """
    wanted = runtime.load_settings(config_path)
    loader.require_delivery(wanted)
    pid = worker_lock.lock_holder(wanted.csi.state_dir)
    if pid is None:
        raise CsiError(f"no worker runs with {wanted.csi.state_dir}: the configuration is valid and used at the start")
    if not _is_worker(pid):
        raise CsiError(
            "the worker runs where this command cannot see it, as in another container: send it SIGHUP there "
            "(docker compose kill -s HUP worker)"
        )
    with opened(wanted) as rt:
        before, since = reload_results.last(), rt.now()
        try:
            os.kill(pid, signal.SIGHUP)
        except PermissionError as error:
            raise CsiError(f"process {pid} belongs to another user: run it as that user, or as root") from error
        end = time.monotonic() + WAIT_SECONDS
        while (result := reload_results.last()) == before:
            if time.monotonic() > end:
                raise CsiError(f"the worker (process {pid}) did not answer within {WAIT_SECONDS:.0f} s; see csi logs")
            time.sleep(0.1)
    assert result is not None
    if result.error is not None:
        raise ConfigError(f"the worker keeps the old configuration: {plain(logs.redact(result.error))}")
    click.echo(f"the worker uses the changed configuration ({max(result.at - since, 0):.1f} s); the sidecar follows")


def _is_worker(pid: int) -> bool:
    try:
        return pid > 0 and b"huey_config" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
