"""The sidecar: `csi.main:app` for any ASGI server, `python -m csi.main` as a process of its own."""

import sys

from csi import logs, server
from csi.config.loader import require_delivery
from csi.errors import ConfigError, CsiError, StoreError
from csi.logs import log
from csi.runtime import Runtime, load_settings, open_runtime
from csi.store import db, leases
from csi.web import serve
from csi.web.app import create_app

app = create_app(open_runtime)
"""Reads CSI_CONFIG_PATH and the rest of the environment at its first request. `app.state.reset()` forgets it."""


def main() -> None:
    """An error of ours is one sentence on stderr and its own exit code, never a traceback."""
    try:
        _refuse_arguments(sys.argv[1:])
        code = _run()
    except CsiError as error:
        sys.stderr.write(f"csi: {error}\n")
        sys.exit(error.exit_code)
    serve.end(code)


def _refuse_arguments(arguments: list[str]) -> None:
    if arguments:
        raise ConfigError("python -m csi.main takes no arguments; web.host and web.port (or PORT) say where it listens")


def _run() -> int:
    server.leave_on_signals()
    settings = load_settings()
    require_delivery(settings)
    with serve.listen(settings) as door:
        rt = open_runtime()
        logs.install_excepthook()
        code = serve.serve(create_app(lambda: rt), door)
    _release_leases(rt)
    return code


def _release_leases(rt: Runtime) -> None:
    """At the end, release the leases of this process: a poll that was cut off is due again at once."""
    try:
        with db.reading():
            leases.release_own(rt.now())
    except StoreError as error:
        log.warning("leases could not be released; they expire", error=str(error))


if __name__ == "__main__":
    main()
