"""Apply the environment to the configuration file: variables inside values, overrides of keys, and every secret.

The environment wins over the file, the file over the default. An empty variable counts as not set.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from csi.config.secrets import Environment, is_set, read_secret, read_variable, url_password
from csi.config.setting_types import check_url
from csi.config.settings import looks_like_postgres
from csi.config.yaml_reader import ConfigProblem, KeyPath, YamlDocument, is_clean, retype

OVERRIDES: dict[str, KeyPath] = {
    "CSI_UA_ENDPOINT": ("delivery", "ua_endpoint"),
    "CSI_INSTANCE_ID": ("csi", "instance_id"),
    "CSI_LOG_LEVEL": ("csi", "log_level"),
    "CSI_STATE_DIR": ("csi", "state_dir"),
    "CSI_DATABASE_URL": ("csi", "database"),
    "CSI_QUEUE_URL": ("csi", "queue"),
    "PORT": ("web", "port"),
    "CSI_WEB_HOST": ("web", "host"),
    "CSI_ALLOW_INSECURE_HTTP": ("delivery", "allow_insecure_http"),
}
"""Variables that override a key of the file. CSI_DB_PATH is not among them: a PostgreSQL URL wins over it."""

SECRET_KEYS: dict[KeyPath, str] = {
    ("delivery", "shared_secret"): "CSI_UA_SHARED_SECRET",
    ("delivery", "bearer_token"): "CSI_UA_BEARER_TOKEN",
}
"""Secrets that have a key in the file. There only ${NAME} may be written."""

SECRETS = {
    "CSI_ADMIN_TOKEN": "admin_token",
    "CSI_ADMIN_READ_TOKEN": "admin_read_token",
    "CSI_FEED_TOKEN": "feed_token",
    "CSI_QUEUE_SECRET": "queue_secret",
    "CSI_NOTIFY_URLS": "notify_urls",
    "CSI_HEARTBEAT_URL": "heartbeat_url",
    "CSI_INBOUND_KEY": "inbound_key",
}
"""Secrets without a key in the file: variable and field of `EnvironmentSecrets`."""

SOURCE_SECRETS = (
    "YOUTUBE_API_KEY",
    "YOUTUBE_OAUTH_CLIENT_ID",
    "YOUTUBE_OAUTH_CLIENT_SECRET",
    "YOUTUBE_OAUTH_REFRESH_TOKEN",
)
"""The default values of the `…_env` keys of sources."""

_KNOWN_SECRETS = {*SECRET_KEYS.values(), *SECRETS, *SOURCE_SECRETS}
_SHORTEST: dict[KeyPath, int] = {("delivery", "shared_secret"): 8}
_OPTIONAL: set[KeyPath] = {("delivery", "ua_endpoint")}
_URL_KEYS: tuple[KeyPath, ...] = (("csi", "database"), ("csi", "queue"))
_DATABASE: KeyPath = ("csi", "database")

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(r"\$\$\{|\$\{(?P<inner>[^}]*)\}|\$\{")
_INNER = re.compile(rf"(?P<name>{_NAME})(?:(?P<how>:-|:\?)(?P<rest>(?:(?!\$\{{).)*))?", re.DOTALL)
_SOLE = re.compile(r"\$\{[^}]*\}")
_SECRET_REFERENCE = re.compile(rf"\$\{{(?P<name>{_NAME})(?::\?(?P<message>[^}}]*))?\}}")


@dataclass
class ConfigDraft:
    """The file's data before validation, and the origin of each value that is not from the file."""

    document: YamlDocument
    data: dict[str, Any]
    problems: list[ConfigProblem]
    overridden: dict[KeyPath, str] = field(default_factory=dict)
    """Keys that a variable overrides, with its name."""
    used: dict[KeyPath, str] = field(default_factory=dict)
    """Keys whose value in the file contains ${NAME}, with that name."""
    secrets: dict[str, SecretStr] = field(default_factory=dict)
    """Secrets by the name of their variable."""


class UnsetVariable(LookupError):
    """The file refers to a variable that is not set. `str(error)` is the sentence for the operator."""

    def __init__(self, name: str, message: str | None) -> None:
        hint = message or f"set it in the environment, or write ${{{name}:-default}}"
        super().__init__(f"the variable {name} is not set; {hint[:200]}")
        self.demanded = message is not None


def fill(document: YamlDocument, env: Environment) -> ConfigDraft:
    """The file with its variables expanded and the environment's overrides. Problems are collected, never raised."""
    draft = ConfigDraft(document, document.data, list(document.problems))
    for path in _URL_KEYS:
        raw = _look(draft.data, path)
        password = url_password(raw) if isinstance(raw, str) else None
        if password and "${" not in password:  # a password in a URL of the file is a secret in the file (PRD FR-6.2)
            name = next(name for name, place in OVERRIDES.items() if place == path)
            _add_problem(draft, path, f"a password does not belong in the file; write ${{VARIABLE}} or set {name}")
    for path, name in SECRET_KEYS.items():
        _take_secret_key(draft, path, name, env)
    skipped = {path for name, path in OVERRIDES.items() if is_set(name, env)}
    draft.data = _expand_all(draft, draft.data, (), env, skipped)
    for name, path in OVERRIDES.items():
        _override(draft, path, name, env)
    # CSI_DB_PATH wins over any other SQLite path, but not over PostgreSQL: a leftover variable must not move an
    # instance from its server to an empty file.
    chosen = _look(draft.data, _DATABASE)
    if "://" in env.get("CSI_DB_PATH", ""):
        text = "expected a path; a URL goes into CSI_DATABASE_URL"
        draft.problems.append(ConfigProblem(text, _variable("CSI_DB_PATH"), _DATABASE))
    elif not (isinstance(chosen, str) and looks_like_postgres(chosen)):
        _override(draft, _DATABASE, "CSI_DB_PATH", env)
    for name in SECRETS:
        take_secret(draft, name, env, shortest=8)
    if url := draft.secrets.get("CSI_HEARTBEAT_URL"):
        try:
            check_url(url.get_secret_value())
        except ValueError as error:
            draft.problems.append(ConfigProblem(str(error), _variable("CSI_HEARTBEAT_URL")))
    return draft


def expand(text: str, env: Environment) -> str:
    """`${VAR}`, `${VAR:-default}`, `${VAR:?message}`; `$${` is a literal. Values are not expanded again."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        inner = _INNER.fullmatch(match["inner"] or "")
        if inner is None:
            raise ValueError("write ${NAME}, ${NAME:-default} or ${NAME:?message}, not nested; $${ is a literal ${")
        if inner["name"] in _KNOWN_SECRETS:
            raise ValueError(f"{inner['name']} is a secret and does not belong here; CSI reads it from the environment")
        value = env.get(inner["name"])
        if inner["how"] == ":-":
            return value or inner["rest"]
        if value is None or (inner["how"] and not value):
            raise UnsetVariable(inner["name"], inner["rest"])
        return value

    return _TOKEN.sub(replaced, text)


def take_secret(draft: ConfigDraft, name: str, env: Environment, *, shortest: int = 1) -> SecretStr | None:
    """Read a secret into the draft. None: it is not set, or it cannot be used and the draft has the problem."""
    try:
        value = read_secret(name, env, shortest=shortest)
    except ValueError as error:
        draft.problems.append(ConfigProblem(str(error), _variable(name)))
        return None
    if value is not None:
        draft.secrets[name] = SecretStr(value)
    return draft.secrets.get(name)


def _expand_all(draft: ConfigDraft, value: Any, path: KeyPath, env: Environment, skipped: set[KeyPath]) -> Any:
    if isinstance(value, dict):
        return {key: _expand_all(draft, inner, (*path, key), env, skipped) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expand_all(draft, inner, (*path, index), env, skipped) for index, inner in enumerate(value)]
    if isinstance(value, str) and "${" in value and path not in skipped:
        try:
            text = expand(value, env)
        except UnsetVariable as unset:
            optional = path in _OPTIONAL and not unset.demanded
            return None if optional else _add_problem(draft, path, str(unset))
        except ValueError as error:
            return _add_problem(draft, path, str(error))
        names = (_INNER.match(match["inner"] or "") for match in _TOKEN.finditer(value))
        name = draft.used[path] = next((name["name"] for name in names if name), "")
        if not is_clean(text):
            return _add_problem(draft, path, f"the variable {name} contains a control character")
        # An unquoted value that is nothing but ${NAME} gets the type that YAML gives the variable's text.
        return retype(text) if path in draft.document.plain and _SOLE.fullmatch(value) else text
    return value


def _add_problem(draft: ConfigDraft, path: KeyPath, text: str) -> None:
    draft.problems.append(ConfigProblem(text, draft.document.values.get(path), path))


def _take_secret_key(draft: ConfigDraft, path: KeyPath, name: str, env: Environment) -> None:
    """Move a secret's key from the file's data to the secrets.

    A literal is refused even if the environment sets the secret: the file would still hold one.
    """
    raw = _look(draft.data, path)
    reference = _SECRET_REFERENCE.fullmatch(raw) if isinstance(raw, str) else None
    block = draft.data.get(str(path[0]))
    if isinstance(block, dict):
        block.pop(path[1], None)
    if raw is not None and reference is None:
        _add_problem(draft, path, f"a secret does not belong in the file; write ${{{name}}} and set that variable")
        return
    if reference is not None and not is_set(name, env):
        name = reference["name"]
        if not is_set(name, env):
            if reference["message"] is not None:
                _add_problem(draft, path, str(UnsetVariable(name, reference["message"])))
            return
    secret = take_secret(draft, name, env, shortest=_SHORTEST.get(path, 1))
    if secret is not None:
        _put(draft, path, secret, name)


def _override(draft: ConfigDraft, path: KeyPath, name: str, env: Environment) -> None:
    try:
        value = read_variable(name, env)
    except ValueError as error:
        draft.problems.append(ConfigProblem(str(error), _variable(name), path))
        return
    if value is not None and not is_clean(value):
        draft.problems.append(ConfigProblem("contains a control character", _variable(name), path))
    elif value is not None:
        _put(draft, path, value, name)


def _variable(name: str) -> str:
    return f"environment variable {name}"


def _look(data: dict[str, Any], path: KeyPath) -> Any:
    block = data.get(str(path[0]))
    return block.get(path[1]) if isinstance(block, dict) else None


def _put(draft: ConfigDraft, path: KeyPath, value: Any, name: str) -> None:
    """Set a key. A block that is not a mapping stays as it is: validation reports it with its line."""
    block = draft.data.get(str(path[0]))
    if block is None:
        block = draft.data[str(path[0])] = {}
    if isinstance(block, dict):
        block[path[1]] = value
        draft.overridden[path] = name
