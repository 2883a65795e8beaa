"""The sidecar: `csi.main:app` for any ASGI server, `python -m csi.main` as a process of its own."""

import os
import socket
import sys
import threading
from contextlib import ExitStack

from csi import logs, server
from csi.config.loader import require_delivery
from csi.config.settings import Settings
from csi.errors import ConfigError, CsiError, StoreError
from csi.logs import log
from csi.net import local_url
from csi.runtime import load_settings, open_runtime
from csi.store import db, leases
from csi.web.app import create_app

app = create_app(open_runtime)
"""Reads CSI_CONFIG_PATH and the rest of the environment at its first request. `app.state.reset()` forgets it."""


def main() -> None:
    """An error of ours is one sentence on stderr and its own exit code, never a traceback."""
    os.umask(0o077)  # what this process writes is for its own user
    try:
        if sys.argv[1:]:
            raise ConfigError(
                "python -m csi.main takes no arguments; web.host and web.port (or PORT) say where it listens"
            )
        code = _run()
    except CsiError as error:
        logs.print_error(str(error))
        sys.exit(error.exit_code)
    end(code)


def _run() -> int:
    server.leave_on_signals()
    settings = load_settings()
    require_delivery(settings)
    with ExitStack() as doors:
        door, hook_door = doors.enter_context(listen(settings)), listen_for_hooks(settings)
        rt = open_runtime()
        logs.install_excepthook()
        if settings.serves_hooks:
            log.debug("hooks are served", key=rt.inbound_keys.fingerprint)
        host, port = door.getsockname()[:2]
        log.info("sidecar listens", host=host, port=port)
        hook_port = None
        if hook_door is not None:
            doors.enter_context(hook_door)
            hook_host, hook_port = hook_door.getsockname()[:2]
            log.info("hooks are served at an address of their own", host=hook_host, port=hook_port)
        app = create_app(lambda: rt, address=local_url(host, port), hook_port=hook_port)
        code = server.run(app, door, server.ServerLimits(), hook_door, settings.web.trusted_proxies)
    # At the end, release the leases of this process: a poll that was cut off is due again at once.
    try:
        with db.reading():
            leases.release_own(rt.now())
    except StoreError as error:
        log.warning("leases could not be released; they expire", error=str(error))
    return code


def listen(settings: Settings) -> socket.socket:
    """ConfigError for an address beyond loopback without an admin token."""
    address = server.resolve(settings.web.host or "0.0.0.0", settings.web.port, setting="web.host")  # noqa: S104
    if not address.is_loopback and settings.secrets.admin_token is None:
        raise ConfigError(
            f"web.host {address.host} can be reached from other machines: set CSI_ADMIN_TOKEN, or use 127.0.0.1"
        )
    return server.listen(address, setting="web.port or PORT")


def listen_for_hooks(settings: Settings) -> socket.socket | None:
    """None: /hooks is served where the rest is, or not at all."""
    inbound = settings.inbound
    if not settings.serves_hooks or inbound.host is None or inbound.port is None:
        return None
    address = server.resolve(inbound.host or "0.0.0.0", inbound.port, setting="inbound.host")  # noqa: S104
    return server.listen(address, setting="inbound.port")


def end(code: int) -> None:
    """Exits also while a thread waits for a source: its lease expires, so the watch is polled again."""
    log.info("sidecar ends")
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    if any(thread.is_alive() and not thread.daemon for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
