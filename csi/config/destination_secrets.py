"""Secrets of destinations that were added by command: one private file in the state directory (0600).

Not in the database: backups, copies and replicas of it are handled by more people than this file. With workers on
several hosts each host needs the file, or the destination names variables of the environment.
"""

import json
import os
import secrets as randomness
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from csi.errors import ConfigError

FILE = "destination-secrets.json"
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


def change(state_dir: Path, name: str, values: Mapping[str, str | None]) -> None:
    """Set these secrets of one destination; None removes one. The file is replaced whole, or not at all."""
    every = {key: {one: it.get_secret_value() for one, it in block.items()} for key, block in read(state_dir).items()}
    block: dict[str, str | None] = {**every.get(name, {}), **values}
    every[name] = {key: text for key, text in block.items() if text is not None}
    path = state_dir / FILE
    draft = path.with_name(f".{FILE}.{randomness.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({key: one for key, one in every.items() if one}, file)
        file.flush()
        os.fsync(file.fileno())
    if os.geteuid() == 0:  # a command of root leaves the file to the user of the worker
        owner = state_dir.stat()
        os.chown(draft, owner.st_uid, owner.st_gid)
    draft.replace(path)
