"""A file of variables, as systemd's EnvironmentFile and `docker --env-file` have it."""

import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from csi.errors import ConfigError

MAX_BYTES = 256 * 1024
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def load(path: Path, env: MutableMapping[str, str]) -> None:
    """Put the file's variables into `env`. One that is set there already stays: the environment wins."""
    for name, value in read(path).items():
        if not env.get(name):
            env[name] = value


def read(path: Path) -> dict[str, str]:
    """ConfigError names the line, and never what stands in it: it may be a secret."""
    try:
        content = path.read_bytes()[: MAX_BYTES + 1]
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; see --env-file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a file of variables: it is not UTF-8 text") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES // 1024} KiB, which no file of variables is")
    return dict(_pairs(path, text))


def _pairs(path: Path, text: str) -> Iterator[tuple[str, str]]:
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith(("#", ";")):
            continue
        match = _LINE.fullmatch(line)
        value = _unquoted(match[2]) if match else None
        if match is None or value is None:
            raise ConfigError(f"{path}:{number}: expected NAME=value, with both quotes or none")
        yield match[1], value


def _unquoted(text: str) -> str | None:
    """None: a quote that does not end. Nothing is expanded: a `$` is a `$`."""
    if not text or text[0] not in "'\"":
        return text
    if len(text) < 2 or text[-1] != text[0]:
        return None
    inner = text[1:-1]
    return re.sub(r"\\([\"\\$`])", r"\1", inner) if text[0] == '"' else inner
