"""Load processing.yaml and validate it as a whole; every error names its line."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from csi.config.problems import explain, report
from csi.config.secrets import read_variable
from csi.config.variables import ConfigDraft
from csi.config.yaml_reader import YamlDocument, parse_yaml
from csi.errors import ConfigError, MissingSetting
from csi.notifications import split_urls
from csi.processing.settings import ProcessingSettings

PATH = "CSI_PROCESSING_CONFIG"
STATE_DIR = "CSI_PROCESSING_STATE_DIR"
RECEIVER_DB = "UA_SIGNALS_DB_PATH"
EXAMPLE = "config/processing.example.yaml"
MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ProcessingSecrets:
    """The secrets found in the environment. The `repr` shows none of them."""

    assemblyai: str | None = field(default=None, repr=False)
    webhook: str | None = field(default=None, repr=False)
    openai: str | None = field(default=None, repr=False)
    notify_urls: tuple[str, ...] = field(default=(), repr=False)
    ingester: str | None = field(default=None, repr=False)
    youtube: str | None = field(default=None, repr=False)
    admin: str | None = field(default=None, repr=False)

    @property
    def all(self) -> list[str]:
        values = (
            self.assemblyai,
            self.webhook,
            self.openai,
            self.ingester,
            self.youtube,
            self.admin,
            *self.notify_urls,
        )
        return [value for value in values if value]


def load(path: Path | None = None, env: Mapping[str, str] | None = None) -> ProcessingSettings:
    """Load `path`, else CSI_PROCESSING_CONFIG, else the defaults. A ConfigError has one line per error."""
    env = os.environ if env is None else env
    file = path or (Path(env[PATH]) if env.get(PATH) else None)
    document = YamlDocument()
    if file:
        try:
            content = file.read_bytes()[: MAX_BYTES + 1]
            text = content.decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError(f"{file}: cannot be read: {reason}; start from {EXAMPLE}") from error
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{file}: larger than {MAX_BYTES // 1024:,} KiB; start from {EXAMPLE}")
        document = parse_yaml(text, example=EXAMPLE, may_be_empty=True)
    draft = ConfigDraft(document, _without_empty(document.data), list(document.problems))
    for name, key in ((STATE_DIR, "state_dir"), (RECEIVER_DB, "receiver_db")):
        if env.get(name):
            draft.data[key] = env[name]
            draft.overridden[key,] = name
    try:
        settings = ProcessingSettings.model_validate(draft.data)
    except ValidationError as error:
        raise ConfigError(report([*draft.problems, *explain(error, draft, ProcessingSettings)], file)) from None
    if draft.problems:
        raise ConfigError(report(draft.problems, file))
    return settings


def read_secrets(
    settings: ProcessingSettings, env: Mapping[str, str] | None = None, *, required: bool = True
) -> ProcessingSecrets:
    """Raises MissingSetting for a secret that the settings use: it names the variable, never the value.

    Read-only commands pass `required=False`: they redact the secrets that are set, and need none.
    """
    env = os.environ if env is None else env

    def read(name: str, *, needed: bool = False, spaces: bool = False) -> str | None:
        try:
            try:
                value = (read_variable(name, env) or "").strip("\r\n")
            except ValueError as error:  # two values, or a file that cannot be read
                raise (ConfigError if env.get(name) else MissingSetting)(str(error)) from None
            if needed and not value:
                raise MissingSetting(
                    f"{name} is not set: set it to the key, or set {name}_FILE to a file that contains the key"
                )
            if value and not spaces and not re.fullmatch(r"[!-~]{6,1024}", value):
                raise MissingSetting(
                    f"{name} is not a usable secret: it needs 6 to 1,024 printable characters without spaces"
                )
            return value or None
        except ConfigError:
            if required:
                raise
            return None

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
        admin=read(settings.admin_token_env),
        youtube=read(settings.facts.youtube_key_env, needed=True) if settings.facts.youtube_key_env else None,
    )


def _without_empty(value: Any) -> Any:
    """A key without a value keeps its default."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_empty(inner) for key, inner in value.items() if inner is not None}
