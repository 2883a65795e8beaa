"""Sign a browser in on a server without a password, by a link that works once.

The user who may write the server's directory makes the link by a command. Neither the address of a client nor its
headers prove that it is on this machine: a proxy beside the server sends the requests of the whole world from there.
"""

import hmac
import os
import secrets
import time
from pathlib import Path

from csi.errors import StoreError
from csi.sql import give_to_owner_of_directory

LINK_FILE, SIDECAR_LINK_FILE = "login-link", "sidecar-login-link"
"""Of the receiver, and of the sidecar: both may have the same directory."""
COOKIE = "csi_local"
LINK_SECONDS = 600.0
SESSION_SECONDS = 12 * 3600.0
MAX_SESSIONS = 100


def make_key(folder: Path, name: str = LINK_FILE) -> str:
    """The secret part of a new link, which replaces one that was made before. The file is for this user only."""
    key, draft = secrets.token_urlsafe(32), folder / f"{name}.{secrets.token_hex(6)}"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(key)
            give_to_owner_of_directory(draft, file.fileno())
        os.replace(draft, folder / name)
    except OSError as error:
        raise StoreError(f"{folder}: no login link can be made there: {error.strerror}; run as its owner") from error
    return key


def use_up(path: Path, given: str) -> bool:
    """Whether this is the key of a fresh link; the link is used up then."""
    try:
        with open(path, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            status, key = os.fstat(file.fileno()), file.read(200)
    except (OSError, ValueError):
        return False
    is_ours = status.st_uid == os.geteuid() or status.st_uid == 0
    is_fresh = abs(time.time() - status.st_mtime) < LINK_SECONDS
    if not (hmac.compare_digest(given.encode("utf-8", "replace"), key.encode()) and key and is_ours and is_fresh):
        return False
    try:
        path.unlink()
    except FileNotFoundError:
        return False  # another request used it at the same time
    except OSError:
        return True
    return True


class LocalLogin:
    """The browsers that a running server has signed in. They are signed out when it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._until: dict[str, float] = {}

    def redeem(self, given: str) -> str | None:
        """A cookie for the key of a link; the link is used up. None: no link has this key, or it is too old."""
        if not use_up(self._folder / LINK_FILE, given):
            return None
        now, cookie = time.monotonic(), secrets.token_urlsafe(32)
        self._until = {one: until for one, until in self._until.items() if until > now}
        while len(self._until) >= MAX_SESSIONS:
            self._until.pop(next(iter(self._until)))
        self._until[cookie] = now + SESSION_SECONDS
        return cookie

    def is_signed_in(self, cookie: str) -> bool:
        now = time.monotonic()
        return any(hmac.compare_digest(cookie.encode(), one.encode()) and now < t for one, t in self._until.items())
