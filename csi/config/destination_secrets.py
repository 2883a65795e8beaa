"""Secrets of destinations that were added by command: one private file in the state directory (0600).

Not in the database: backups, copies and replicas of it are handled by more people than this file. With workers on
several hosts each host needs the file, or the destination names variables of the environment.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from pydantic import SecretStr

from csi.errors import ConfigError
from csi.sql import give_to_owner_of_directory

FILE = "destination-secrets.json"
LOCK_FILE = "destination-secrets.lock"
PREVIOUS = "_PREVIOUS"
"""Ends the name under which the secret before a rotation is kept."""


def variable_of(name: str, what: str) -> str:
    """The name under which the file has a secret of this destination; no such variable has to exist."""
    return f"CSI_DESTINATION_{''.join(char if char.isalnum() else '_' for char in name).upper()}_{what}"


def read(state_dir: Path) -> dict[str, dict[str, SecretStr]]:
    """By destination and variable. ConfigError when the file is there and cannot be read."""
    path = state_dir / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: {key: SecretStr(text) for key, text in block.items()} for name, block in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not the JSON that CSI wrote"
        raise ConfigError(f"{path} cannot be read: {reason}; restore it, or rotate the secrets it had") from error


@contextmanager
def one_at_a_time(state_dir: Path) -> Iterator[None]:
    """One process and one thread changes destinations; others wait. The kernel ends it however the process ends."""
    try:
        handle = os.open(state_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{state_dir} cannot be written: {error.strerror}") from error
    try:
        give_to_owner_of_directory(state_dir / LOCK_FILE, handle)
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def change(state_dir: Path, name: str, values: Mapping[str, str | None]) -> None:
    """Set these secrets of one destination; None removes one. The file is replaced whole, or not at all. Call it within
    `one_at_a_time`."""
    every = {key: {one: it.get_secret_value() for one, it in block.items()} for key, block in read(state_dir).items()}
    block: dict[str, str | None] = {**every.get(name, {}), **values}
    every[name] = {key: text for key, text in block.items() if text is not None}
    path = state_dir / FILE
    draft = path.with_name(f".{FILE}.{token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({key: one for key, one in every.items() if one}, file)
        file.flush()
        os.fsync(file.fileno())
        give_to_owner_of_directory(draft, file.fileno())
    draft.replace(path)
