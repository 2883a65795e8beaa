"""Rewrites the generated tables of docs/configure.md from the config's model, the example files and the receiver, and
those of docs/cli.md from the commands."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from csi.adapters import registry
from csi.config.loader import file_model
from csi.config.problems import models_in
from csi.config.variables import OVERRIDES, SECRET_KEYS
from csi.config.yaml_reader import KeyPath, dotted, parse_yaml
from csi.processing import config as processing
from csi.receiver import settings as receiver
from ops import docs_cli, man

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configure.md"
EXAMPLE = ROOT / "config" / "config.example.yaml"
VARIABLES = ROOT / "config" / "env.example"

WITHOUT_EFFECT = {
    "csi.environment": "shown by `csi config show` only",
}
"""Keys that change nothing today. A test fails when the code begins to use one."""

RECEIVER = {
    receiver.SECRET: "secret; the sender's `CSI_UA_SHARED_SECRET`, 8 to 1,024 characters; required",
    receiver.PREVIOUS: "secret; accepted beside the current one while a secret is being replaced",
    receiver.BEARER: "secret; the sender's `CSI_UA_BEARER_TOKEN`; default: the secrets above",
    receiver.INSTANCES: "instance ids that may send, with commas between them; default: all with a valid signature",
    receiver.ENABLED: "`1` or `0`; `0` answers 503 `ingest_disabled`; default `1`",
    receiver.DASHBOARD: "secret; the password (HTTP Basic) for `/ui` from other machines",
    receiver.DB_PATH: "database file; `--db` wins; default `csi-receiver.db` in the current directory",
    receiver.RETENTION: "days that signals are kept, 0: for ever; default 365",
    "CSI_LOG_LEVEL": "as above; `--log-level` wins",
}

PROCESSING = {
    processing.PATH: "`processing.yaml`; `--config` wins; default: the built-in values",
    processing.STATE_DIR: "directory of database, queue and artifacts (`state_dir`)",
    processing.RECEIVER_DB: "the receiver's database, read only (`receiver_db`)",
    "CSI_PROCESSING_QUEUE_SECRET": "secret; signs queue messages; a queue on a server needs it; default: a key file",
    "ASSEMBLYAI_API_KEY": "secret; the key of AssemblyAI (the variable that `api_key_env` names)",
    "CSI_ASSEMBLYAI_WEBHOOK_SECRET": "secret; AssemblyAI sends it back with its webhook",
    "OPENAI_API_KEY": "secret; the key of the model's endpoint (the variable that `api_key_env` names)",
    "CSI_NOTIFY_URLS": "secret; apprise URLs with spaces between them; default: a file",
    "CSI_ADMIN_READ_TOKEN": "secret; the sender's, for its dead letters (the variable that `ingester_token_env` names)",
}

OTHERS = {
    "CSI_ENV_FILE": "a file of variables that every `csi` command reads first, as `--env-file` does",
    "CSI_SIMULATE_API_KEY": "`csi simulate youtube`: the API key that callers must send; default `demo-key`",
    "SSL_CERT_FILE, SSL_CERT_DIR": "certificate authorities to trust instead of the bundled ones",
}


@dataclass(frozen=True)
class Key:
    """One row of the reference."""

    path: str
    kind: str
    default: str
    meaning: str


def keys() -> list[Key]:
    """Every leaf of the configuration file, in the order of the example."""
    model = file_model(registry.settings_models())
    comments = example_comments()
    found = list(_leaves(model, model(), "", comments))
    order = list(comments)
    return sorted(found, key=lambda key: _place(key.path, order))


def _place(path: str, order: list[str]) -> int:
    """Where the example has this key, or the block that it is in."""
    while path not in order and "." in path:
        path = path.rpartition(".")[0]
    return order.index(path)


def example_comments() -> dict[str, str]:
    """What config.example.yaml says behind each key; the first watch and the first profile stand for all."""
    text = EXAMPLE.read_text().replace("destinations: {}", "destinations:").replace("windows: []", "windows:")
    for key in ("playlists: []", "watchlist: []", "feeds: []", "subreddits: []", "  hosts: {}"):
        text = text.replace(key, key[:-3])
    text = re.sub(r"(?m)^  #   ", "    ", text)
    lines = text.splitlines()
    found: dict[str, str] = {}
    for path, spot in parse_yaml(text).keys.items():
        comment = re.search(r"\s# (.*)$", lines[spot.line - 1])
        found.setdefault(_general(path), comment[1] if comment else "")
    return found


def key_tables() -> str:
    """A table for each block of the file."""
    groups: dict[str, list[Key]] = {}
    for key in keys():
        groups.setdefault(_group(key.path), []).append(key)
    return "\n\n".join(f"### `{name}`\n\n{_key_table(name, rows)}" for name, rows in groups.items())


def variable_tables() -> str:
    groups = {
        "Worker, sidecar and commands": env_comments(),
        "`csi receiver`": RECEIVER,
        "`csi processing`": PROCESSING,
        "Other": OTHERS,
    }
    return "\n\n".join(f"### {name}\n\n{_variable_table(rows)}" for name, rows in groups.items())


def env_comments() -> dict[str, str]:
    """The variables of env.example with the comment above each."""
    lines = VARIABLES.read_text().splitlines()
    named = [(match, at) for at, line in enumerate(lines) if (match := re.match(r"#?([A-Z_]+)=", line))]
    return {match[1]: lines[at - 1].removeprefix("# ") for match, at in named}


def blocks() -> dict[str, str]:
    """What stands between each pair of markers."""
    return {"config keys": key_tables(), "variables": variable_tables()}


def rewritten(page: str) -> str:
    for name, text in blocks().items():
        start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        head, _, rest = page.partition(start)
        _, _, tail = rest.partition(end)
        page = f"{head}{start}\n\n{text}\n\n{end}{tail}"
    return page


def _leaves(model: type[BaseModel], values: Any, path: str, comments: dict[str, str]) -> Iterator[Key]:
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        inner = next(models_in(field.annotation), None)
        place = f"{path}{name}"
        value = getattr(values, name, field.get_default(call_default_factory=True))
        if inner is None or "first_poll" in name:
            kind = _kind(schema["properties"][name], schema.get("$defs", {}))
            meaning = field.description or _sentence(comments[place])
            yield Key(place, kind, _default(value), meaning + _notes(place))
        else:
            within, joint = _step(field.annotation, inner, value)
            yield from _leaves(inner, within, f"{place}{joint}", comments)


def _step(annotation: Any, inner: type[BaseModel], value: Any) -> tuple[Any, str]:
    """The defaults inside a block, and how its path goes on: a list, free names, or plain keys."""
    origin = getattr(annotation, "__origin__", None)
    if origin is tuple:
        return None, "[]."
    if origin is dict:
        return None, ".<name>."
    # A block that is absent by default may have required keys: it has no defaults then.
    return (inner.model_construct() if value is None else value), "."


def _kind(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _kind(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return _union([part for part in schema["anyOf"] if part.get("type") != "null"], definitions)
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    return _plain_kind(schema)


def _union(parts: list[dict[str, Any]], definitions: dict[str, Any]) -> str:
    if {part.get("type") for part in parts} == {"number", "string"}:
        return "duration"
    words = [_kind(part, definitions) for part in parts]
    return ", ".join(words)


def _plain_kind(schema: dict[str, Any]) -> str:
    match schema.get("type"):
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number" as word:
            return {"integer": "whole number", "number": "number"}[word] + _range(schema)
        case "array":
            return "list of text"
        case "object":
            return f"`{{{', '.join(f'{name}: N' for name in schema['properties'])}}}`"
    return {"password": "secret", "path": "path"}.get(schema.get("format", ""), "text") + _form(schema)


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']:g}"
    if low is None:
        return ""
    return f", {low:,} to {high:,}" if high is not None else f", {low:,} or more"


def _form(schema: dict[str, Any]) -> str:
    pattern = str(schema.get("pattern", "")).strip("^$")
    return f" `{pattern}`" if pattern else ""


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "–"
    if isinstance(value, bool | tuple):
        return f"`{json.dumps(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _sentence(comment: str) -> str:
    """An example's comment without what other columns say."""
    text = re.sub(r" \([A-Z_, ]+\)|; (optional|required|default .*)$", "", comment)
    return text if "." in text.partition(" ")[0] else text[:1].upper() + text[1:]


def _notes(place: str) -> str:
    """The variable that sets a key, and the word of warning where it does nothing."""
    named = {".".join(map(str, path)): name for name, path in OVERRIDES.items()}
    named |= {".".join(map(str, path)): name for path, name in SECRET_KEYS.items()}
    variable = f" (`{named[place]}`)" if place in named else ""
    idle = WITHOUT_EFFECT.get(place)
    return variable + (f". **No effect today**: {idle}" if idle else "")


def _general(path: KeyPath) -> str:
    if path[0] == "route_profiles" and len(path) > 1:
        path = ("route_profiles", "<name>", *path[2:])
    if path[:2] == ("delivery", "destinations") and len(path) > 2:
        path = ("delivery", "destinations", "<name>", *path[3:])
    if path[:2] == ("net", "hosts") and len(path) > 2:
        path = ("net", "hosts", "<name>", *path[3:])
    return re.sub(r"\[\d+\]", "[]", dotted(path)).replace("'<name>'", "<name>")


def _group(path: str) -> str:
    parts = path.split(".")
    return ".".join(parts[:2]) if parts[0] in ("sources", "route_profiles") else parts[0]


def _key_table(group: str, rows: list[Key]) -> str:
    head = ["| key | value | default | meaning |", "|---|---|---|---|"]
    names = [key.path.removeprefix(f"{group}.") for key in rows]
    cells = [f"{key.kind} | {key.default} | {_cell(key.meaning)} |" for key in rows]
    return "\n".join([*head, *(f"| `{name}` | {rest}" for name, rest in zip(names, cells, strict=True))])


def _variable_table(rows: dict[str, str]) -> str:
    lines = [f"| `{name}` | {_cell(text)} |" for name, text in rows.items()]
    return "\n".join(["| variable | meaning |", "|---|---|", *lines])


def _cell(text: str) -> str:
    return re.sub(r"<\w+>\S*\b", r"`\g<0>`", text.replace("|", "\\|"))


def main() -> None:
    PAGE.write_text(rewritten(PAGE.read_text()))
    docs_cli.main()
    man.main()


if __name__ == "__main__":
    main()
