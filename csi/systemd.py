"""Messages to the service manager: sd_notify(3), one datagram each. By hand: it is ten lines."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify(*lines: str, env: Mapping[str, str] = os.environ) -> bool:
    """Send lines to NOTIFY_SOCKET. False: not set, or no process listens there, which is not an error."""
    address = env.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket, which the kernel spells with a NUL
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door:
            door.settimeout(2)  # a manager that does not read must not block the worker
            door.connect(address)
            door.sendall("\n".join(lines).encode())
    except OSError:
        return False
    return True


def status(text: str) -> str:
    """A line for `systemctl status`. Line breaks are replaced: the rest would be read as other lines of the message."""
    return "STATUS=" + " ".join(text.split())[:200]


EXTENSION_SECONDS = 60.0
"""At a slow start the service manager is asked for so much more time, again and again until the work is done."""


@contextmanager
def more_time_to_start(what: str) -> Iterator[None]:
    """While this work lasts, a start takes as long as it takes: a migration that systemd kills would begin again."""
    if "NOTIFY_SOCKET" not in os.environ:
        yield
        return
    done = threading.Event()

    def ask() -> None:
        began = time.monotonic()
        while True:
            passed = f"{what} ({time.monotonic() - began:.0f} s)"
            if not notify(f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1e6:.0f}", status(passed)):
                return
            if done.wait(EXTENSION_SECONDS / 4):
                return

    thread = threading.Thread(target=ask, name="StartTimeout", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def reloading() -> list[str]:
    """The lines for the start of a reload. systemd 253 and later need its time."""
    return ["RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"]
