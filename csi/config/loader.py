"""Load the configuration from its file and the environment, or report every problem with line and column."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, SecretStr, ValidationError, create_model

from csi import body_template, notifications
from csi.config.delivery_settings import DestinationSettings
from csi.config.destination_profiles import PRESETS, signing_key
from csi.config.problems import MAX_PROBLEMS, explain, position_of, report, unknown_name
from csi.config.quota_warnings import budget_warnings
from csi.config.secrets import Environment
from csi.config.setting_types import Model, check_url, is_loopback
from csi.config.settings import ConfigFile, EnvironmentSecrets, Settings, is_server, is_unprotected_redis
from csi.config.source_settings import SourceSettings, UnusableSource, WatchSettings
from csi.config.variables import SECRETS, ConfigDraft, fill, take_secret
from csi.config.yaml_reader import ConfigProblem, KeyPath, parse_yaml
from csi.errors import ConfigError, MissingSetting
from csi.patterns import judge

DEFAULT_PATH = Path("/etc/csi/config.yaml")
MAX_BYTES = 2 * 1024 * 1024

STATE_VARIABLES = {"state_dir": "CSI_STATE_DIR", "database": "CSI_DATABASE_URL"}

_PLACEHOLDER = re.compile(r"(PL|UC|UU)?x{3,}", re.IGNORECASE)
"""The ids of the PRD's example configuration, which loads as it is."""

SourceModels = Mapping[str, type[SourceSettings]]


@dataclass(frozen=True)
class LoadedConfig:
    """The settings, their warnings, and the origin of each value."""

    settings: Settings
    path: Path
    draft: ConfigDraft
    warnings: tuple[str, ...]
    faults: tuple[str, ...] = ()
    """What makes one source or one watch useless, with its place in the file. `csi config check` refuses it; the worker
    runs without that source or watch."""

    def origin(self, path: KeyPath) -> str:
        """`default`, `config.yaml:12`, or the environment variable."""
        if name := self.draft.overridden.get(path):
            return f"environment variable {name}"
        spot = self.draft.document.values.get(path)
        if spot is None:
            return "default"
        name = self.draft.used.get(path)
        return f"{self.path}:{spot.line}" + (f", environment variable {name}" if name else "")


def load(path: Path | None, *, env: Environment, sources: SourceModels) -> Settings:
    """The settings. Raises ConfigError with one line for each problem."""
    return read_config(path, env=env, sources=sources).settings


def read_config(path: Path | None, *, env: Environment, sources: SourceModels) -> LoadedConfig:
    """Like `load`, with warnings and the origin of every value."""
    file = find_file(path, env)
    draft = fill(parse_yaml(read_text(file)), env)
    settings = _validate(draft, file_model(sources), sources, env)
    if settings is None or draft.problems:
        raise ConfigError(report(draft.problems, file))
    faults = report(list(_source_faults(draft, settings)), file).splitlines()
    return LoadedConfig(settings, file, draft, tuple(warnings_for(settings)), tuple(faults))


def watch_fault(watch: WatchSettings) -> str | None:
    """Why nothing can have the id of this watch. None: it has the right form."""
    if watch.ref_fault and _PLACEHOLDER.fullmatch(watch.ref):
        return f"{watch.ref} is a placeholder; write the real id"
    return watch.ref_fault


def _source_faults(draft: ConfigDraft, settings: Settings) -> Iterator[ConfigProblem]:
    for name, source in settings.sources.items():
        for index, watch in enumerate(source.watches):
            key = next((key for key, field in type(watch).model_fields.items() if field.is_required()), "")
            place: KeyPath = ("sources", name, source.watch_key or "", index, key)
            if fault := watch_fault(watch):
                yield ConfigProblem(fault, position_of(draft, place), place)
        if isinstance(source, UnusableSource) and source.wanted:
            path: KeyPath = ("sources", name)
            text = f"its plugin cannot be used, so it is not polled: {source.fault}; see `csi adapters list`"
            yield ConfigProblem(text, draft.document.keys.get(path), path)


def require_delivery(settings: Settings) -> None:
    """Raise MissingSetting unless every destination has its endpoint and secret, also with `features.delivery` off."""
    delivery = settings.delivery
    given = {"CSI_UA_ENDPOINT": delivery.ua_endpoint, "CSI_UA_SHARED_SECRET": delivery.shared_secret}
    missing = [name for name, value in given.items() if not value]
    for name, destination in delivery.destinations.items():
        for variable in variable_names(destination):
            if variable not in settings.secrets.named:
                raise MissingSetting(
                    f"delivery.destinations.{name}: {variable} is not set. Set it in the environment or in "
                    f"/etc/csi/env, or name a file that holds it in {variable}_FILE."
                )
        if destination.type == "notify" and destination.endpoint_env:
            url = settings.secrets.named[destination.endpoint_env].get_secret_value()
            notifications.check_one(url, f"delivery.destinations.{name}: {destination.endpoint_env}")
    if missing and not (delivery.destinations and len(missing) == len(given)):
        raise MissingSetting(
            f"delivery is not configured: {' and '.join(missing)} not set. Set it in the environment or in "
            "/etc/csi/env; the secret may also be in a file named by CSI_UA_SHARED_SECRET_FILE."
        )


def require_queue(settings: Settings) -> None:
    """Raise unless the messages of a queue on a server can be signed. A SQLite queue needs no setting."""
    url = settings.csi.queue_url
    if is_server(url) and not (settings.secrets.queue_secret or settings.delivery.shared_secret):
        raise MissingSetting(
            "csi.queue is on a server, and CSI_QUEUE_SECRET, which signs its messages, is not set. Set it to the same "
            "value for every worker, in the environment or in /etc/csi/env; make one with: openssl rand -hex 32"
        )
    if is_unprotected_redis(url) and not settings.csi.allow_unprotected_queue:
        raise ConfigError(
            "csi.queue names a Redis on another host without a password. Put the password into CSI_QUEUE_URL "
            "(redis://:PASSWORD@host:6379/0), or set csi.allow_unprotected_queue: true where a firewall protects it."
        )


def warnings_for(settings: Settings) -> Iterator[str]:
    """Settings that are valid but probably a mistake."""
    running = {name: source for name, source in settings.sources.items() if source.enabled}
    if not is_loopback(settings.web.host) and settings.secrets.admin_token is None:
        yield (
            f"web.host {settings.web.host or '0.0.0.0'} can be reached from other machines, and CSI_ADMIN_TOKEN is not "  # noqa: S104
            "set: the sidecar does not start; set the token, or use 127.0.0.1"
        )
    if not any(source.watches or source.watch_key is None for source in running.values()):
        yield "sources: nothing is watched"
    for name, source in running.items():
        intervals = {"poll_interval_seconds": source.poll_interval_seconds}
        for index, watch in enumerate(source.watches):
            if watch.poll_interval_seconds is not None:
                intervals[f"{source.watch_key}[{index}].poll_interval_seconds"] = watch.poll_interval_seconds
        if source.adaptive and source.adaptive.enabled:
            intervals["adaptive_polling.active_interval_seconds"] = _active(source)
            intervals["adaptive_polling.idle_interval_seconds"] = source.adaptive.idle_interval_seconds
        for key, seconds in intervals.items():
            if seconds < 10:
                yield f"sources.{name}.{key}: polls every {seconds:g} s; meant for tests"
        if source.adaptive and source.adaptive.enabled and _active(source) > source.adaptive.idle_interval_seconds:
            yield f"sources.{name}.adaptive_polling: the active interval is longer than the idle one"
    yield from budget_warnings(settings)


def file_model(sources: SourceModels) -> type[ConfigFile]:
    """The model of the file, with a block for each source. Validation and JSON Schema use it."""
    blocks: dict[str, Any] = {name: (block | None, None) for name, block in sources.items()}
    source_blocks: type[Model] = create_model("Sources", __base__=Model, **blocks)
    described = Field(source_blocks(), description="The sources, one block each, with their watches")
    return create_model("CsiConfig", __base__=ConfigFile, sources=(source_blocks, described))


def find_file(path: Path | None, env: Environment) -> Path:
    """--config, then CSI_CONFIG_PATH, then /etc/csi/config.yaml. Commands have read a file of variables before."""
    return path or Path(env.get("CSI_CONFIG_PATH") or DEFAULT_PATH)


def minimal_settings(path: Path | None, env: Environment) -> Settings:
    """Defaults, and where the database is, as far as that can be found in a file that is not valid: for checks of a
    worker that runs with the configuration from before."""
    found = {name: env.get(variable) or None for name, variable in STATE_VARIABLES.items()}
    with suppress(ConfigError):
        for line in read_text(find_file(path, env)).splitlines():
            key, _, value = line.split(" #")[0].strip().strip("{}").partition(":")
            if key in found and found[key] is None and value.strip():
                found[key] = value.strip().strip("'\"")
    try:
        return Settings.model_validate({"csi": {name: value for name, value in found.items() if value is not None}})
    except ValidationError as error:
        raise ConfigError(f"{find_file(path, env)}: where the database is cannot be read from this file") from error


def read_text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{file}: there is no configuration file; csi init writes one, or copy config/config.example.yaml "
            "there and edit it, or name another with --config PATH or CSI_CONFIG_PATH"
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {getattr(error, 'strerror', error)}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES // 1024:,} KiB, the limit for a configuration file")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}:{line}: not YAML: the file is not UTF-8 text") from error


def _validate(draft: ConfigDraft, model: type[ConfigFile], sources: SourceModels, env: Environment) -> Settings | None:
    """None when the draft has problems."""
    _check_profiles(draft, sources)
    judge(_title_patterns(draft.data))  # one child process tries all patterns; validation then uses the verdicts
    try:
        checked = model.model_validate(draft.data)
    except ValidationError as error:
        _add(draft, explain(error, draft, model))
        # The repeated watches of sources without problems of their own are reported in the same run.
        given, valid = draft.data.get("sources"), {}
        for name, block in given.items() if isinstance(given, dict) else ():
            with suppress(ValidationError, KeyError):
                valid[name] = sources[name].model_validate(block)
        _check_repeats(draft, valid)
        return None
    blocks = {name: block for name, block in checked.sources if block is not None}  # type: ignore[attr-defined]
    _check_repeats(draft, blocks)
    with_variables = (*blocks.values(), *checked.delivery.destinations.values(), checked.web)
    variables = {name for block in with_variables for name in variable_names(block)}
    named = {name: secret for name in sorted(variables) if (secret := take_secret(draft, name, env)) is not None}
    # Templates that fail with a sample event, and secrets of the wrong form
    for name, given in checked.delivery.destinations.items():
        path = ("delivery", "destinations", name)
        for key, fault in destination_faults(given, named):
            draft.problems.append(ConfigProblem(fault, position_of(draft, (*path, key)), (*path, key)))
    if draft.problems:
        return None
    secrets = EnvironmentSecrets(named=named, **{field: draft.secrets.get(name) for name, field in SECRETS.items()})
    shared = {name: getattr(checked, name) for name in ConfigFile.model_fields}
    return Settings(**shared, sources=blocks, secrets=secrets)


def destination_faults(given: DestinationSettings, secrets: Mapping[str, SecretStr]) -> Iterator[tuple[str, str]]:
    """Key and fault of each value that the model alone cannot check: templates, and the values of variables. A variable
    that is not set is no fault here; `require_delivery` reports it."""
    preset = PRESETS.get(given.preset or "", {})
    for key in ("template", "title"):
        template = getattr(given, key)
        # The templates of presets are tried by their own test.
        if template is None or template == preset.get(key):
            continue
        is_json = (
            key == "template"
            and given.type == "http"
            and not any(
                name.lower() == "content-type" and "json" not in str(value) for name, value in given.headers.items()
            )
        )
        if fault := body_template.fault_of(template, is_json=is_json):
            yield key, f"the template fails with a sample event: {fault}"
    for key, variable, check in (
        ("secret_env", given.secret_env, lambda text: signing_key(text, given.secret_form)),
        ("endpoint_env", given.endpoint_env if given.type == "http" else None, check_url),
    ):
        if (secret := secrets.get(variable or "")) is not None:
            try:
                check(secret.get_secret_value())
            except ValueError as error:
                yield key, f"the value of {variable} cannot be used: {error}"


def _title_patterns(value: Any) -> set[str]:
    """Every title pattern of the file, before validation."""
    if isinstance(value, list):
        return set().union(*map(_title_patterns, value))
    if not isinstance(value, dict):
        return set()
    title = value.get("title")
    given = [title.get("match"), title.get("not")] if isinstance(title, dict) else []
    return {text for text in given if isinstance(text, str)}.union(*map(_title_patterns, value.values()))


def variable_names(block: BaseModel) -> list[str]:
    """The variables that the `…_env` keys of this block, and of the blocks inside it, name."""
    named = [value for key, value in block if key.endswith("_env") and isinstance(value, str)]
    values = [one for _, value in block for one in (value.values() if isinstance(value, dict) else [value])]
    return named + [name for inner in values if isinstance(inner, BaseModel) for name in variable_names(inner)]


def _check_profiles(draft: ConfigDraft, sources: SourceModels) -> None:
    """Report unknown route profiles, before validation: one problem must not hide another."""
    known, blocks = draft.data.get("route_profiles") or {}, draft.data.get("sources")
    if not isinstance(known, dict) or not isinstance(blocks, dict):
        return
    problems: list[ConfigProblem] = []
    for name, model in sources.items():
        block = blocks.get(name)
        rows = block.get(model.watch_key) if isinstance(block, dict) and model.watch_key else None
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            profile = row.get("route_profile") if isinstance(row, dict) else None
            if isinstance(profile, str) and profile not in known and len(problems) < MAX_PROBLEMS:
                path = ("sources", name, str(model.watch_key), index, "route_profile")
                shown = "" if path in draft.used else f" {profile[:40]!r}"  # the value of a variable is not shown
                text = unknown_name(f"route profile{shown}", profile[:100], known)
                problems.append(ConfigProblem(text, position_of(draft, path), path))
    _add(draft, problems)


def _check_repeats(draft: ConfigDraft, blocks: dict[str, SourceSettings]) -> None:
    """Report a watch that is listed twice in its source."""
    problems: list[ConfigProblem] = []
    for name, source in blocks.items():
        first: dict[str, int] = {}
        for index, watch in enumerate(source.watches):
            if first.setdefault(watch.ref, index) != index:
                path = ("sources", name, source.watch_key or "", index)
                text = f"watched twice; the first is {source.watch_key}[{first[watch.ref]}]"
                problems.append(ConfigProblem(text, position_of(draft, path), path))
    _add(draft, problems)


def _add(draft: ConfigDraft, problems: list[ConfigProblem]) -> None:
    """Add one problem per place: a second one usually follows from the first."""
    known = {(problem.path, problem.where) for problem in draft.problems}
    draft.problems += [problem for problem in problems if (problem.path, problem.where) not in known]


def _active(source: SourceSettings) -> float:
    given = source.adaptive.active_interval_seconds if source.adaptive else None
    return source.poll_interval_seconds if given is None else given
