"""The receiver's settings, read from environment variables (PRD Appendix C)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from csi.config.secrets import read_variable, secret_fault
from csi.errors import ConfigError, MissingSetting
from csi.ingester.signature import TOLERANCE_SECONDS

ENABLED = "UA_SIGNALS_INGEST_ENABLED"
SECRET = "UA_SIGNALS_INGEST_SHARED_SECRET"  # noqa: S105 - the name of a variable, not its value
PREVIOUS = "UA_SIGNALS_INGEST_PREVIOUS_SECRET"
BEARER = "UA_SIGNALS_INGEST_BEARER_TOKEN"
INSTANCES = "UA_SIGNALS_INGEST_ALLOWED_INSTANCES"
DB_PATH = "UA_SIGNALS_DB_PATH"
RETENTION = "UA_SIGNALS_RETENTION_DAYS"
DASHBOARD = "UA_SIGNALS_DASHBOARD_PASSWORD"

DEFAULT_DB = Path("csi-receiver.db")
MIN_SECRET = 8
_MAX_SECRET = 1024
_MAX_DAYS = 36_500
_ON = {"1", "true", "yes", "on"}
_OFF = {"0", "false", "no", "off"}


@dataclass(frozen=True)
class ReceiverSettings:
    """The settings of one receiver. Their `repr` shows no secret."""

    secret: str = field(repr=False)
    db_path: Path = DEFAULT_DB
    previous_secret: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    dashboard_password: str | None = field(default=None, repr=False)
    allowed_instances: frozenset[str] = frozenset()
    enabled: bool = True
    ledger_path: Path | None = None
    max_body_bytes: int = 8 * 1024 * 1024
    max_in_flight: int = 32
    tolerance_seconds: float = TOLERANCE_SECONDS
    body_timeout_seconds: float = 30
    busy_timeout_seconds: float = 10
    retention_days: int = 365
    """0: signals are kept for ever."""

    @property
    def secrets(self) -> list[str]:
        """Every secret whose signature is accepted: two while one replaces the other."""
        return [self.secret] if self.previous_secret is None else [self.secret, self.previous_secret]

    @property
    def bearer_tokens(self) -> list[str]:
        return self.secrets if self.bearer_token is None else [self.bearer_token]

    @property
    def hidden(self) -> list[str]:
        """Every value that must never appear in a log."""
        others = [self.dashboard_password] if self.dashboard_password else []
        return [*self.secrets, *self.bearer_tokens, *others]


def from_env(
    env: Mapping[str, str], *, db_path: Path | None = None, ledger_path: Path | None = None
) -> ReceiverSettings:
    """Read the variables; `db_path` overrides UA_SIGNALS_DB_PATH. Raises MissingSetting or ConfigError."""
    secret = _read_secret(env, SECRET)
    if secret is None:
        raise MissingSetting(
            f"{SECRET} is not set: it must be the same secret as the sender's CSI_UA_SHARED_SECRET "
            f"(or set {SECRET}_FILE to a file that holds it)"
        )
    switch = env.get(ENABLED, "").strip().lower()
    if switch and switch not in _ON | _OFF:
        raise ConfigError(f"{ENABLED} must be 1 or 0")
    instances = (name.strip() for name in env.get(INSTANCES, "").split(","))
    return ReceiverSettings(
        secret=secret,
        db_path=db_path or Path(env.get(DB_PATH, "").strip() or DEFAULT_DB),
        previous_secret=_read_secret(env, PREVIOUS),
        bearer_token=_read_secret(env, BEARER),
        dashboard_password=_read_secret(env, DASHBOARD),
        allowed_instances=frozenset(name for name in instances if name),
        enabled=switch not in _OFF,
        ledger_path=ledger_path,
        retention_days=_read_days(env),
    )


def _read_days(env: Mapping[str, str]) -> int:
    text = env.get(RETENTION, "").strip() or "365"
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > _MAX_DAYS:
        raise ConfigError(f"{RETENTION} must be a whole number of days up to {_MAX_DAYS}; 0 keeps signals for ever")
    return int(text)


def _read_secret(env: Mapping[str, str], name: str) -> str | None:
    """The value of NAME or of the file that NAME_FILE names; None when neither is set."""
    try:
        text = read_variable(name, env)
    except ValueError as error:  # two values, or a file that cannot be read
        raise (ConfigError if env.get(name) else MissingSetting)(str(error)) from None
    if text is None:
        return None
    text = text.rstrip("\r\n")
    problem = secret_fault(text)
    if not re.fullmatch(r"[!-~]*", text):
        problem = "contains spaces, line breaks or other characters that a header cannot carry: use printable ASCII"
    elif problem is None and not MIN_SECRET <= len(text) <= _MAX_SECRET:
        problem = f"must have {MIN_SECRET} to {_MAX_SECRET} characters: try `openssl rand -hex 32`"
    if problem:
        raise MissingSetting(f"{name}{'' if env.get(name) else '_FILE'} {problem}")
    return text
