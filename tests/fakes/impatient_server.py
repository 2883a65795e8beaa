"""The real sidecar or receiver with a short head timeout: `python -m tests.fakes.impatient_server receiver`."""

import socket
import sys
from dataclasses import replace

from starlette.applications import Starlette

from csi import server
from csi.server import ServerLimits

HEAD_SECONDS = 3.0


def run(name: str, arguments: list[str]) -> None:
    real_run = server.run

    def run_with_short_timeout(
        app: Starlette, door: socket.socket, limits: ServerLimits, *more: socket.socket | None
    ) -> int:
        return real_run(app, door, replace(limits, head_seconds=HEAD_SECONDS), *more)

    server.run = run_with_short_timeout
    if name == "sidecar":
        from csi import main

        sys.argv = ["csi.main", *arguments]
        main.main()
    else:
        from csi.cli.main import run as run_command

        sys.argv = ["csi", name, *arguments]
        run_command()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
