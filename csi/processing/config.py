"""processing.yaml: read, checked as a whole, and every fault told with its line."""

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
from csi.messages import split_urls
from csi.processing.settings import ProcessingSettings

PATH = "CSI_PROCESSING_CONFIG"
STATE_DIR = "CSI_PROCESSING_STATE_DIR"
RECEIVER_DB = "UA_SIGNALS_DB_PATH"
MAX_BYTES = 1024 * 1024
_DEEP = 12

Place = tuple[str | int, ...]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Secrets:
    """What the environment holds. The `repr` shows nothing."""

    assemblyai: str | None = field(default=None, repr=False)
    webhook: str | None = field(default=None, repr=False)
    openai: str | None = field(default=None, repr=False)
    notify_urls: tuple[str, ...] = field(default=(), repr=False)
    ingester: str | None = field(default=None, repr=False)

    @property
    def all(self) -> list[str]:
        held = (self.assemblyai, self.webhook, self.openai, self.ingester, *self.notify_urls)
        return [value for value in held if value]


def load(path: Path | None = None, env: Mapping[str, str] | None = None) -> ProcessingSettings:
    """--config, then CSI_PROCESSING_CONFIG; without either, the defaults. ConfigError has a line for each fault."""
    given = os.environ if env is None else env
    file = path or (Path(given[PATH]) if given.get(PATH) else None)
    data, lines = _read(file) if file else ({}, {})
    for name, key in ((STATE_DIR, "state_dir"), (RECEIVER_DB, "receiver_db")):
        if given.get(name):
            data[key] = given[name]
    try:
        return ProcessingSettings.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_faults(error, file, lines))) from None


def read_secrets(settings: ProcessingSettings, env: Mapping[str, str] | None = None) -> Secrets:
    """Only what is used must be set: MissingSetting names the variable, never its value."""
    given = os.environ if env is None else env
    return _secrets(settings, partial(_secret, given))


def held_secrets(settings: ProcessingSettings, env: Mapping[str, str] | None = None) -> Secrets:
    """What the environment has of them, for commands that only look: they must hide it, and need none of it."""
    given = os.environ if env is None else env
    return _secrets(settings, partial(_secret_if_readable, given))


def _secrets(settings: ProcessingSettings, read: Callable[..., str | None]) -> Secrets:
    transcription, openai = settings.transcription, settings.summarization.openai
    uses_assemblyai = "assemblyai" in transcription.providers
    webhook = transcription.assemblyai.webhook_url is not None and uses_assemblyai
    uses_openai = settings.summarization.provider == "openai" and openai.api_key_env is not None
    return Secrets(
        assemblyai=read(transcription.assemblyai.api_key_env, needed=uses_assemblyai),
        webhook=read(transcription.assemblyai.webhook_secret_env, needed=webhook),
        openai=read(openai.api_key_env, needed=uses_openai) if openai.api_key_env else None,
        notify_urls=tuple(split_urls(read(settings.notifications.urls_env, spaces=True) or "")),
        ingester=read(settings.ingester_token_env) if settings.ingester_url else None,
    )


def _secret_if_readable(env: Mapping[str, str], name: str, **how: bool) -> str | None:
    try:
        return _secret(env, name, spaces=how.get("spaces", False))
    except (ConfigError, MissingSetting):
        return None


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
        raise MissingSetting(f"{name} is not set: put the key there, or name a file that holds it in {name}_FILE")
    if value and not spaces and not re.fullmatch(r"[!-~]{6,1024}", value):
        raise MissingSetting(f"{name} is not a usable secret: 6 to 1,024 printable characters without blanks")
    return value or None


def _read(file: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    try:
        content = file.read_bytes()[: MAX_BYTES + 1]
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{file}: cannot be read: {reason}; start from config/processing.example.yaml") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES // 1024:,} KiB, which no configuration is")
    lines: dict[Place, int] = {}
    faults: list[str] = []
    try:
        _refuse_tricks(text, file)
        root = yaml.compose(text, Loader=_Loader)
        data = {} if root is None else _value(root, (), lines, faults)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{file}: not valid YAML") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: expected keys and values, as in config/processing.example.yaml")
    if faults:
        raise ConfigError("\n".join(f"{file}:{fault}" for fault in faults))
    return data, lines


def _refuse_tricks(text: str, file: Path) -> None:
    """No tags, no aliases, no depth: nothing of ours needs them, and bombs are made of them."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) or depth > _DEEP:
            raise ConfigError(f"{file}:{line}: tags, aliases and deep nesting are not allowed; write the plain value")


def _value(node: yaml.Node, place: Place, lines: dict[Place, int], faults: list[str]) -> Any:
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, place, lines, faults)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, index), lines, faults) for index, item in enumerate(node.value)]
    return yaml.constructor.SafeConstructor().construct_object(node)


def _mapping(node: yaml.MappingNode, place: Place, lines: dict[Place, int], faults: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in found:
            faults.append(
                f"{line}: {_dotted((*place, name))}: written twice; the first is in line {lines[(*place, name)]}"
            )
        inner = _value(value, (*place, name), lines, faults)
        lines[(*place, name)] = line
        if inner is not None:  # a key with nothing behind it keeps its default
            found[name] = inner
    return found


def _faults(error: ValidationError, file: Path | None, lines: dict[Place, int]) -> Iterator[str]:
    for fault in error.errors():
        place = tuple(part for part in fault["loc"] if isinstance(part, int) or part != "[key]")
        near = place
        while near and near not in lines:
            near = near[:-1]
        where = f"{file}:{lines.get(near, 1)}" if file and near else "the environment"
        yield f"{where}: {_dotted(place)}: {_sentence(fault, place)}"


def _sentence(fault: Any, place: Place) -> str:
    if fault["type"] != "extra_forbidden":
        return str(fault["msg"]).removeprefix("Value error, ")
    known = _known_keys(place[:-1])
    close = get_close_matches(str(place[-1]), known, 1)
    return "unknown key" + (f"; did you mean {close[0]}?" if close else f"; known here: {', '.join(sorted(known))}")


def _known_keys(place: Place) -> list[str]:
    model: Any = ProcessingSettings
    for part in place:
        if isinstance(model, type) and issubclass(model, BaseModel) and str(part) in model.model_fields:
            annotation = model.model_fields[str(part)].annotation
            inner = [kind for kind in getattr(annotation, "__args__", ()) if isinstance(kind, type)]
            model = next((kind for kind in inner if issubclass(kind, BaseModel)), annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _dotted(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
