"""Read a file of environment variables, in the format of systemd's EnvironmentFile and `docker --env-file`."""

import os
import re
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from csi.errors import ConfigError

MAX_BYTES = 256 * 1024
SYSTEM_CONFIG = Path("/etc/csi/config.yaml")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")

_ALIKE = re.compile(r"""[A-Za-z0-9_.,:/@%+=~^-]*|'[^']*'|"[^"$`\\]*\"""")
"""Values that systemd, shells and Docker Compose read in the same way."""


def written_here(env: Mapping[str, str]) -> Path | None:
    """`env` in the working directory, where `csi init` wrote it for this user and nothing else names an installation.

    A file of another user, or one that others may change, is not read: it could point anywhere.
    """
    path = Path("env").absolute()
    try:
        found = path.lstat()
    except OSError:
        return None
    is_private = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    if not is_private or env.get("CSI_CONFIG_PATH") or os.path.exists(SYSTEM_CONFIG):
        return None
    try:
        config = read_variables(path).get("CSI_CONFIG_PATH")
    except ConfigError:
        return None  # a file of another program
    return path if config and Path(config).parent == path.parent else None


def load(path: Path, env: MutableMapping[str, str]) -> None:
    """Copy the file's variables into `env`. A variable that is set there keeps its value."""
    for name, value in read_variables(path).items():
        if not env.get(name):
            env[name] = value


def read_variables(path: Path) -> dict[str, str]:
    """The variables of the file. ConfigError names the line and never quotes it: it may hold a secret."""
    try:
        content = path.read_bytes()[: MAX_BYTES + 1]
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; see --env-file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a file of variables: it is not UTF-8 text") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES // 1024} KiB, too large for a file of variables")
    found = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith(("#", ";")):
            continue
        match = _LINE.fullmatch(line)
        value = _unquote(match[2]) if match else None
        if match is None or value is None:
            raise ConfigError(f"{path}:{number}: expected NAME=value, with both quotes or none")
        found[match[1]] = value
    return found


def ambiguous_lines(path: Path) -> list[str]:
    """Lines whose value a shell or a container engine reads differently, as sentences that do not quote it."""
    found = []
    for number, raw in enumerate(path.read_text("utf-8-sig").splitlines(), 1):
        match = _LINE.fullmatch(raw.strip())
        if match and not _ALIKE.fullmatch(match[2]):
            found.append(f"{path}:{number}: a shell or Docker reads {match[1]} differently; put the value into '…'")
    return found


def _unquote(text: str) -> str | None:
    """None when a quote is not closed. Nothing is expanded: `$` is an ordinary character."""
    if not text or text[0] not in "'\"":
        return re.sub(r"\\(.)", r"\1", text)
    if len(text) < 2 or text[-1] != text[0]:
        return None
    inner = text[1:-1]
    return re.sub(r"\\([\"\\$`])", r"\1", inner) if text[0] == '"' else inner
