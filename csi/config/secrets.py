"""Read secrets from the environment or from the file that NAME_FILE names. No error message shows a value."""

import re
from collections.abc import Mapping
from pathlib import Path

Environment = Mapping[str, str]

MASK = "********"
MAX_URL = 2000
_MAX_SECRET = 65_536
_URL_PASSWORD = re.compile(r"(://[^/@:\s]*:)(\S+)(@)|([?&]password=)([^&\s]+)")
_LIKE_A_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_(SECRET|TOKEN|KEY)")
_FILLER = re.compile(r"your|change(me|it)?|replace(me)?|insert|placeholder|example")
_FILLING = re.compile(
    r"me|this|it|here|goes|with|a|the|my|csi|ua|youtube|shared|api|admin|read|queue|bearer|hmac|secret|token|key|password"
)


def is_set(name: str, env: Environment) -> bool:
    return bool(env.get(name) or env.get(f"{name}_FILE"))


def read_variable(name: str, env: Environment) -> str | None:
    """The value of NAME, or the content of the file that NAME_FILE names. None: neither is set."""
    value, file_name = env.get(name) or None, env.get(f"{name}_FILE") or None
    if value and file_name:
        raise ValueError(f"both {name} and {name}_FILE are set; keep one")
    if file_name is None:
        return value
    try:
        with Path(file_name).open("rb") as file:
            content = file.read(_MAX_SECRET + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{name}_FILE names a file that cannot be read: {reason}") from error
    if len(content) > _MAX_SECRET:
        raise ValueError(f"{name}_FILE names a file of more than {_MAX_SECRET:,} bytes; expected one secret")
    return re.sub(r"\r?\n\Z", "", text)


def read_secret(name: str, env: Environment, *, shortest: int = 1) -> str | None:
    """The secret, or None when it is not set. Raises ValueError for one that cannot be used."""
    value = read_variable(name, env)
    if value is not None and (fault := secret_fault(value, shortest=shortest)):
        raise ValueError(fault)
    return value


def secret_fault(value: str, *, shortest: int = 1) -> str | None:
    """Why this value cannot be used as a secret, without the value. None: it can."""
    if len(value) < shortest:
        return f"is shorter than {shortest} characters; make one with: openssl rand -hex 32" if value else "is empty"
    if value != value.strip():
        return "begins or ends with white space or a line break; remove it"
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return "is in quotes, which `docker run --env-file` keeps; remove them there, or use NAME_FILE"
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        return "contains a line break or a control character"
    if not value.isascii():
        return "contains characters outside ASCII, which an HTTP header cannot carry"
    # `your-secret-here`, `<token>`, `AIza...`, `${SECRET}`, `xxxxxxxx`, or the name of a variable
    words = re.split(r"[-_ .]+", value.casefold())
    fillers = [word for word in words if _FILLER.fullmatch(word)]
    if fillers and all(_FILLER.fullmatch(word) or _FILLING.fullmatch(word) for word in words):
        is_placeholder = True
    else:
        unfinished = value.endswith("...") or "${" in value or (value[0] == "<" and value[-1] == ">")
        is_placeholder = unfinished or len(set(value)) == 1 or _LIKE_A_VARIABLE.fullmatch(value) is not None
    return "is a placeholder; make a secret with: openssl rand -hex 32" if is_placeholder else None


def url_password(url: str) -> str | None:
    found = _URL_PASSWORD.search(url[:MAX_URL])
    return (found[2] or found[5]) if found else None


def hide_password(url: str) -> str:
    """The same URL with its password masked."""
    return _URL_PASSWORD.sub(rf"\1\4{MASK}\3", url)
