"""`csi exec`: run a command with the variables of `--env-file`, for container images and scripts."""

from __future__ import annotations

import os

import click

from csi.errors import CsiError


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(command: tuple[str, ...]) -> None:
    """Run COMMAND in place of this process, with the variables of --env-file (or CSI_ENV_FILE).

    The file is read as systemd reads it: `$` is an ordinary character, and quotes around a value are removed.
    """
    try:
        os.execvp(command[0], command)  # noqa: S606 the caller's own command
    except OSError as error:
        raise CsiError(f"{command[0]} cannot be run: {error.strerror}") from error
