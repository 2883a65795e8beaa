"""Key files: random, private, complete from their first moment, the same for all processes that start together."""

import os
import secrets
import stat
from pathlib import Path

from csi.errors import StoreError
from csi.sql import give_to_owner_of_directory, make_private_dir

SHORTEST_KEY = 32


def read_key(path: Path, what: str = "queue") -> str | None:
    """The key, or None where there is no file. StoreError where the file cannot be used."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(1024).decode("ascii", "replace").strip() if stat.S_ISREG(mode) else ""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: the {what} key cannot be read: {error.strerror}") from error
    if len(key) < SHORTEST_KEY:
        raise StoreError(f"{path} does not hold a {what} key; delete it, and the worker creates a new one")
    if mode & 0o007:
        raise StoreError(f"{path} is open to other users of this machine; delete it, and the worker creates a new one")
    return key


def read_or_create_key(path: Path, what: str = "queue") -> str:
    """The key of this file. Processes that start together all get the same one."""
    make_private_dir(path.parent)
    return read_key(path, what) or _create_key(path, what)


def _create_key(path: Path, what: str) -> str:
    """The file appears under its name complete, or not at all: the link fails where another process was first."""
    draft = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as opened:
            opened.write(secrets.token_hex(32))
            opened.flush()
            os.fsync(file)
            give_to_owner_of_directory(path, file)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise StoreError(f"{path}: the {what} key cannot be created: {error.strerror}") from error
    key = read_key(path, what)
    if key is None:
        raise StoreError(f"{path}: the {what} key was deleted while it was being created; start again")
    return key
