"""Add, change, remove and rotate destinations by command. Those of the configuration file stay the file's.

The row of `managed_destinations` is the truth: its `version` changes with every change, and running processes take it
by that. `env` is where variables are looked up that settings name. None: the caller is not on the host, and may name
none: settings with `bearer_env: YOUTUBE_API_KEY` and an address of its own would send that key there.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from secrets import token_bytes
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import SecretStr, TypeAdapter, ValidationError

from csi import notifications
from csi.config import destination_secrets
from csi.config.delivery_settings import DestinationSettings
from csi.config.destination_profiles import PRESETS
from csi.config.destination_secrets import PREVIOUS, variable_of
from csi.config.loader import destination_faults, find_file, variable_names
from csi.config.secrets import read_secret, secret_fault
from csi.config.setting_types import Name
from csi.emitter.destination import DEFAULT
from csi.errors import CsiError
from csi.logs import log, register_secret
from csi.net.address_guard import is_metadata
from csi.runtime import Runtime
from csi.status.destinations import UnknownDestination
from csi.store import destinations, managed_destinations
from csi.store.db import writing
from csi.store.managed_destinations import ManagedDestination

OVERLAP_SECONDS = 86_400.0
LONGEST_OVERLAP = 30 * 86_400.0


class DestinationRefused(CsiError):
    """The change is not made; the text says why, and what to do."""


class SettingsInvalid(DestinationRefused):
    """A key of the settings is wrong."""


def file_destinations(rt: Runtime) -> set[str]:
    """Those of the configuration, with the one of `ua_endpoint`."""
    return {*rt.settings.delivery.destinations, DEFAULT}


def find(rt: Runtime, name: str, env: Mapping[str, str]) -> ManagedDestination:
    """The row to change. DestinationRefused names the file where the destination is the file's; UnknownDestination."""
    if name in file_destinations(rt):
        place, end = f"delivery.destinations.{name}", ""
        if name == DEFAULT:
            place = "delivery.ua_endpoint (CSI_UA_ENDPOINT)"
            end = "; what differs from the contract is a destination of another name: csi destinations add"
        raise DestinationRefused(
            f"{name} is from the configuration: change {place} in {find_file(None, env)}, then reload the worker{end}"
        )
    found = managed_destinations.find(name)
    if found is None:
        known = ", ".join(one.name for one in managed_destinations.every(rt.now())) or "none"
        raise UnknownDestination(f"there is no destination {name[:64]!r} that was added by command; known: {known}")
    return found


def add(
    rt: Runtime, name: str, given: Mapping[str, Any], kept: Mapping[str, str], env: Mapping[str, str] | None
) -> tuple[DestinationSettings, str | None]:
    """Store a new destination. `kept` are values for the private file: `secret` and `endpoint`. Returns its settings,
    and the secret that was made for it, which is shown this one time.

    The row is written last: a process that ends before leaves a secret behind that nothing uses.
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise SettingsInvalid("a name has 1 to 64 letters, digits, dots, dashes and underscores") from error
    if name in file_destinations(rt):
        raise DestinationRefused(f"the configuration has a destination {name} already; choose another name")
    wanted, values = dict(given), dict[str, str | None]()
    if "endpoint" in kept:
        values[wanted.setdefault("endpoint_env", variable_of(name, "ENDPOINT"))] = kept["endpoint"]
    with destination_secrets.one_at_a_time(rt.settings.csi.state_dir):
        if managed_destinations.find(name) is not None:
            raise DestinationRefused(f"{name} exists already; change it with: csi destinations set {name} KEY=VALUE")
        made = _give_own_secret(name, wanted, values, kept.get("secret"))
        settings = _store(rt, name, wanted, values, {}, env)
    log.info("destination added", destination=name)
    return settings, made


def refuse_subscription(row: ManagedDestination) -> None:
    """DestinationRefused for what only the agent can change."""
    if row.owner is not None:
        raise DestinationRefused(f"{row.name} is the subscription of an agent: pause, resume or remove it")


def change(
    rt: Runtime, row: ManagedDestination, given: Mapping[str, Any], env: Mapping[str, str] | None
) -> tuple[DestinationSettings, str | None]:
    """Set these keys of the model; None takes the default again. Returns the settings, and the secret that was made
    because the destination is signed from now on."""
    refuse_subscription(row)
    wanted = {key: value for key, value in (json.loads(row.settings_json) | given).items() if value is not None}
    values: dict[str, str | None] = {}
    with _unchanged(rt, row):
        kept = kept_secrets(rt, row.name)
        if not _is_signed(wanted) and wanted.get("secret_env") in kept:
            values = dict.fromkeys((own := wanted.pop("secret_env"), f"{own}{PREVIOUS}"))
        made = _give_own_secret(row.name, wanted, values, None)
        settings = _store(rt, row.name, wanted, values, kept, env, previous_until=row.previous_until)
    log.info("destination changed", destination=row.name, keys=", ".join(sorted(given)))
    return settings, made


def _is_signed(wanted: Mapping[str, Any]) -> bool:
    full = PRESETS.get(str(wanted.get("preset")), {}) | dict(wanted)
    return full.get("type") != "notify" and full.get("signature") != "none"


def _give_own_secret(name: str, wanted: dict[str, Any], values: dict[str, str | None], given: str | None) -> str | None:
    """Where its signature needs a secret and the settings name none: keep the one that is given, or make one."""
    if not _is_signed(wanted) or wanted.get("secret_env"):
        return None
    wanted["secret_env"] = variable_of(name, "SECRET")
    form = (PRESETS.get(str(wanted.get("preset")), {}) | wanted).get("secret_form") or "raw"
    made = None if given else new_secret(form)
    values[wanted["secret_env"]] = given or made
    return made


def _store(
    rt: Runtime, name: str, wanted: Mapping[str, Any], values: Mapping[str, str | None], kept: Mapping[str, str],
    env: Mapping[str, str] | None, previous_until: float | None = None,
) -> DestinationSettings:  # fmt: skip
    now_kept = {key: text for key, text in {**kept, **values}.items() if text is not None}
    settings = checked(name, wanted, now_kept, env)
    if values:
        destination_secrets.change(rt.settings.csi.state_dir, name, values)
    # Only the keys that were given: a preset or a default that changes later applies.
    text = settings.model_dump_json(include=set(wanted))
    with writing():
        managed_destinations.write(name, text, rt.now(), previous_until=previous_until)
        destinations.request_test(name, rt.now())
    return settings


@contextmanager
def _unchanged(rt: Runtime, row: ManagedDestination) -> Iterator[None]:
    """Within it no other process changes a destination. A form that is sent twice changes it once."""
    with destination_secrets.one_at_a_time(rt.settings.csi.state_dir):
        found = managed_destinations.find(row.name)
        if found is None or found.version != row.version:
            raise DestinationRefused(f"{row.name} was changed meanwhile; look at it again, and repeat the change")
        yield


def remove(rt: Runtime, row: ManagedDestination) -> int:
    """Returns how many queued events are not sent there. DestinationRefused while a request is under way."""
    with _unchanged(rt, row):
        with writing():
            if managed_destinations.in_flight(row.name):
                raise DestinationRefused(f"a request to {row.name} is under way; try again in a minute")
            lost = managed_destinations.remove(row.name, rt.now())
        if kept := kept_secrets(rt, row.name):
            destination_secrets.change(rt.settings.csi.state_dir, row.name, dict.fromkeys(kept))
    log.info("destination removed", destination=row.name, events=lost)
    return lost


def rotate(rt: Runtime, row: ManagedDestination, overlap: float = OVERLAP_SECONDS) -> str:
    """Make a new secret, and use the previous one beside it during the overlap. Returns the new one, shown once."""
    refuse_subscription(row)
    if not 0 <= overlap <= LONGEST_OVERLAP:
        raise SettingsInvalid("the overlap is at most 30 days")
    settings = DestinationSettings.model_validate_json(row.settings_json)
    variable = settings.secret_env
    if variable is None:
        raise DestinationRefused(f"{row.name} has no secret: its signature is {settings.signature}")
    with _unchanged(rt, row):
        kept = kept_secrets(rt, row.name)
        if variable not in kept and variable != variable_of(row.name, "SECRET"):
            raise DestinationRefused(
                f"the secret of {row.name} is the environment's: set {variable} there, and restart"
            )
        new = new_secret(settings.secret_form)
        register_secret(new)
        values = {variable: new, f"{variable}{PREVIOUS}": kept.get(variable) if overlap else None}
        destination_secrets.change(rt.settings.csi.state_dir, row.name, values)
        until = rt.now() + overlap if overlap else None
        with writing():
            managed_destinations.write(row.name, row.settings_json, rt.now(), previous_until=until)
    log.info("secret of a destination rotated", destination=row.name)
    return new


def checked(
    name: str, wanted: Mapping[str, Any], kept: Mapping[str, str], env: Mapping[str, str] | None
) -> DestinationSettings:
    """These settings, as the configuration file would check them. SettingsInvalid names the key and the fault."""
    try:
        settings = DestinationSettings.model_validate(wanted)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        words = fault["msg"].removeprefix("Value error, ")
        raise SettingsInvalid(f"{place}: {words}" if place else words) from error
    url = settings.endpoint or kept.get(settings.endpoint_env or "", "")
    if env is None and is_metadata(urlsplit(url).hostname or ""):
        raise DestinationRefused(
            "endpoint: an address of this machine's cloud can be a destination in the configuration file only"
        )
    secrets = {key: SecretStr(text) for key, text in kept.items()}
    for variable in variable_names(settings):
        if variable not in kept and env is None:
            raise DestinationRefused(
                f"{variable} is no secret of this destination: only csi destinations on the host may name variables"
            )
        try:
            value = kept.get(variable) or read_secret(variable, env or {})
        except ValueError as error:
            raise SettingsInvalid(f"the value of {variable} {error}") from error
        if value is None:
            raise SettingsInvalid(f"{variable} is not set: set it for this command, the worker and the sidecar")
        if wrong := secret_fault(value):
            raise SettingsInvalid(f"the value of {variable} {wrong}")
        secrets[variable] = SecretStr(value)
        register_secret(value)
    for key, wrong in destination_faults(settings, secrets):
        raise SettingsInvalid(f"{key}: {wrong}")
    if settings.type == "notify" and settings.endpoint_env:
        notifications.check_one(secrets[settings.endpoint_env].get_secret_value(), f"{name}: {settings.endpoint_env}")
    return settings


def value_of(text: str) -> Any:
    """A value as the configuration file writes it: `5m`, `true`, `[ai, news]`, `{X-Team: red}`. Empty: the default."""
    if not text.strip():
        return None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def new_secret(form: str) -> str:
    key = token_bytes(32)
    return f"whsec_{base64.b64encode(key).decode()}" if form == "whsec" else key.hex()


def kept_secrets(rt: Runtime, name: str) -> dict[str, str]:
    """Those of the private file, by variable."""
    block = destination_secrets.read(rt.settings.csi.state_dir).get(name, {})
    return {key: value.get_secret_value() for key, value in block.items()}
