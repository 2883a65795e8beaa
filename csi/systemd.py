"""Signs of life for the service manager: sd_notify(3) by hand, one datagram each."""

import os
import socket
import time
from collections.abc import Mapping

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify(*lines: str, env: Mapping[str, str] = os.environ) -> bool:
    """Send it where NOTIFY_SOCKET says. False: nobody listens, which is no error."""
    address = _address(env.get("NOTIFY_SOCKET", ""))
    if address is None:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door:
            door.settimeout(2)  # a manager that does not read must not hold up the work
            door.connect(address)
            door.sendall("\n".join(lines).encode())
    except OSError:
        return False
    return True


def status(text: str) -> str:
    """A line for `systemctl status`; line breaks would be lines of their own."""
    return "STATUS=" + " ".join(text.split())[:200]


def reloading() -> list[str]:
    """systemd 253 and later want to know when it began."""
    return ["RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"]


def _address(name: str) -> str | None:
    """`@name` is an abstract socket, which the kernel spells with a NUL."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None
