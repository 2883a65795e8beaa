"""Load processing.yaml and validate it as a whole; every error names its line."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from csi.errors import ConfigError, MissingSetting
from csi.notifications import split_urls
from csi.processing.settings import ProcessingSettings

PATH = "CSI_PROCESSING_CONFIG"
STATE_DIR = "CSI_PROCESSING_STATE_DIR"
RECEIVER_DB = "UA_SIGNALS_DB_PATH"
MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 12

KeyPath = tuple[str | int, ...]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class ProcessingSecrets:
    """The secrets found in the environment. The `repr` shows none of them."""

    assemblyai: str | None = field(default=None, repr=False)
    webhook: str | None = field(default=None, repr=False)
    openai: str | None = field(default=None, repr=False)
    notify_urls: tuple[str, ...] = field(default=(), repr=False)
    ingester: str | None = field(default=None, repr=False)

    @property
    def all(self) -> list[str]:
        values = (self.assemblyai, self.webhook, self.openai, self.ingester, *self.notify_urls)
        return [value for value in values if value]


def load(path: Path | None = None, env: Mapping[str, str] | None = None) -> ProcessingSettings:
    """Load `path`, else CSI_PROCESSING_CONFIG, else the defaults. A ConfigError has one line per error."""
    env = os.environ if env is None else env
    file = path or (Path(env[PATH]) if env.get(PATH) else None)
    data, lines = _read(file) if file else ({}, {})
    for name, key in ((STATE_DIR, "state_dir"), (RECEIVER_DB, "receiver_db")):
        if env.get(name):
            data[key] = env[name]
    try:
        return ProcessingSettings.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_describe_errors(error, file, lines))) from None


def read_secrets(settings: ProcessingSettings, env: Mapping[str, str] | None = None) -> ProcessingSecrets:
    """Only secrets that the settings use are required. MissingSetting names the variable, never its value."""
    env = os.environ if env is None else env
    return _secrets(settings, partial(_secret, env))


def available_secrets(settings: ProcessingSettings, env: Mapping[str, str] | None = None) -> ProcessingSecrets:
    """The secrets that are set, for read-only commands: they redact secrets but require none."""
    env = os.environ if env is None else env

    def read(name: str, *, needed: bool = False, spaces: bool = False) -> str | None:
        try:
            return _secret(env, name, spaces=spaces)
        except (ConfigError, MissingSetting):
            return None

    return _secrets(settings, read)


def _secrets(settings: ProcessingSettings, read: Callable[..., str | None]) -> ProcessingSecrets:
    transcription, openai = settings.transcription, settings.summarization.openai
    uses_assemblyai = "assemblyai" in transcription.providers
    webhook = transcription.assemblyai.webhook_url is not None and uses_assemblyai
    uses_openai = settings.summarization.provider == "openai" and openai.api_key_env is not None
    return ProcessingSecrets(
        assemblyai=read(transcription.assemblyai.api_key_env, needed=uses_assemblyai),
        webhook=read(transcription.assemblyai.webhook_secret_env, needed=webhook),
        openai=read(openai.api_key_env, needed=uses_openai) if openai.api_key_env else None,
        notify_urls=tuple(split_urls(read(settings.notifications.urls_env, spaces=True) or "")),
        ingester=read(settings.ingester_token_env) if settings.ingester_url else None,
    )


def _secret(env: Mapping[str, str], name: str, *, needed: bool = False, spaces: bool = False) -> str | None:
    value, file = env.get(name, ""), env.get(f"{name}_FILE", "")
    if value and file:
        raise ConfigError(f"{name} and {name}_FILE are both set: keep one of them")
    if file:
        try:
            value = Path(file).read_text("utf-8").strip("\r\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise MissingSetting(f"{name}_FILE: the file it names cannot be read: {reason}") from None
    if needed and not value:
        raise MissingSetting(
            f"{name} is not set: set it to the key, or set {name}_FILE to a file that contains the key"
        )
    if value and not spaces and not re.fullmatch(r"[!-~]{6,1024}", value):
        raise MissingSetting(f"{name} is not a usable secret: it needs 6 to 1,024 printable characters without spaces")
    return value or None


def _read(file: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    try:
        content = file.read_bytes()[: MAX_BYTES + 1]
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{file}: cannot be read: {reason}; start from config/processing.example.yaml") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES // 1024:,} KiB; start from config/processing.example.yaml")
    lines: dict[KeyPath, int] = {}
    duplicates: list[str] = []
    try:
        _reject_unsafe_yaml(text, file)
        root = yaml.compose(text, Loader=_Loader)
        data = {} if root is None else _value(root, (), lines, duplicates)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{file}: not valid YAML") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: expected keys and values, as in config/processing.example.yaml")
    if duplicates:
        raise ConfigError("\n".join(f"{file}:{error}" for error in duplicates))
    return data, lines


def _reject_unsafe_yaml(text: str, file: Path) -> None:
    """Reject tags, aliases and deep nesting: our settings need none of them, and YAML bombs consist of them."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) or depth > _MAX_DEPTH:
            raise ConfigError(f"{file}:{line}: tags, aliases and deep nesting are not allowed; write the plain value")


def _value(node: yaml.Node, key_path: KeyPath, lines: dict[KeyPath, int], duplicates: list[str]) -> Any:
    """Convert a node; note the line of every key in `lines` and every key that is written twice in `duplicates`."""
    lines[key_path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*key_path, index), lines, duplicates) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return yaml.constructor.SafeConstructor().construct_object(node)
    mapping: dict[str, Any] = {}
    for key, value_node in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        inner = (*key_path, name)
        if name in mapping:
            duplicates.append(f"{line}: {_dotted(inner)}: written twice; the first is in line {lines[inner]}")
        value = _value(value_node, inner, lines, duplicates)
        lines[inner] = line
        if value is not None:  # a key without a value keeps its default
            mapping[name] = value
    return mapping


def _describe_errors(error: ValidationError, file: Path | None, lines: dict[KeyPath, int]) -> Iterator[str]:
    for problem in error.errors():
        key_path = tuple(part for part in problem["loc"] if isinstance(part, int) or part != "[key]")
        near = key_path
        while near and near not in lines:
            near = near[:-1]
        where = f"{file}:{lines.get(near, 1)}" if file and near else "the environment"
        message = str(problem["msg"]).removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = _known_keys(key_path[:-1])
            close = get_close_matches(str(key_path[-1]), known, 1)
            hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(known))}"
            message = f"unknown key; {hint}"
        yield f"{where}: {_dotted(key_path)}: {message}"


def _known_keys(key_path: KeyPath) -> list[str]:
    model: Any = ProcessingSettings
    for part in key_path:
        if isinstance(model, type) and issubclass(model, BaseModel) and str(part) in model.model_fields:
            annotation = model.model_fields[str(part)].annotation
            inner = [kind for kind in getattr(annotation, "__args__", ()) if isinstance(kind, type)]
            model = next((kind for kind in inner if issubclass(kind, BaseModel)), annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _dotted(key_path: KeyPath) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path).removeprefix(".")
