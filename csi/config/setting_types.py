"""The types of settings' values (names, ids, URLs, tiers, times), and the base class of all settings."""

import ipaddress
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from csi.config.durations import Seconds

# A validator's message never repeats the value: the loader adds it if it is short and not a secret.

Tier = Literal["urgent", "standard", "high_volume"]
TIERS: tuple[Tier, ...] = ("urgent", "standard", "high_volume")

# PRD §7.1 and Appendix A use "normal" and "low", the PRD's sample config "standard": all are the tier standard.
_TIER_WORDS = {"normal": "standard", "low": "standard"}
TierName = Annotated[Tier, BeforeValidator(lambda word: _TIER_WORDS.get(str(word), word))]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"],
    BeforeValidator(lambda word: word.upper() if isinstance(word, str) else word),
]


def _is_id(text: Any) -> Any:
    if isinstance(text, str) and text.startswith(("@", "http")):
        raise ValueError("expected an id (`csi sources add --dry-run` with this handle or URL shows it)")
    return text


# Accepts the PRD's placeholders (PLxxx, UCxxx), and no character that has a meaning in a URL.
YouTubeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{2,64}$"), BeforeValidator(_is_id)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


def _names_a_variable(text: str) -> str:
    if text.startswith("AIza"):
        raise ValueError("this looks like the key itself; write the name of the variable that holds it")
    return text


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"), AfterValidator(_names_a_variable)]


def check_interval(seconds: float) -> float:
    if not 1 <= seconds <= 604_800:
        raise ValueError("expected an interval of 1 second to 7 days")
    return seconds


Interval = Annotated[Seconds, AfterValidator(check_interval)]


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError("expected an address or a network such as 10.0.0.0/8") from error
    return text


Network = Annotated[str, AfterValidator(_check_network)]


class PlainHttpError(ValueError):
    """Plain http to another machine."""


def check_url(text: str, *, plain_http: bool = False) -> str:
    """The same text. Raises ValueError if it is not a URL that CSI may send a request to."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError("expected a URL such as https://host/path") from error
    if parts.scheme not in ("http", "https") or not host or not text.isprintable() or " " in text:
        raise ValueError("expected a URL such as https://host/path")
    if "@" in parts.netloc:
        raise ValueError("a user name or password does not belong in a URL")
    if "#" in text:
        raise ValueError("a URL to be contacted has no fragment (#…)")
    if parts.scheme == "http" and not plain_http and not is_loopback(host):
        raise PlainHttpError("plain http is only allowed to this machine (localhost, 127.0.0.1, ::1); use https")
    return text


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


SourceUrl = Annotated[str, AfterValidator(check_url)]
"""A URL as text: https, or plain http on this machine."""


def _without_slash(text: str) -> str:
    return check_url(text, plain_http=True).rstrip("/")


HostAndPort = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]{1,255}$")]
PublicUrl = Annotated[str, AfterValidator(_without_slash)]
"""An address that operators open and CSI does not contact."""


class Model(BaseModel):
    """Base of every block of the file: unknown keys are refused, and values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_default(cls, data: Any) -> Any:
        """A block or list with all its lines commented out has its default. An empty scalar is an error."""
        if not isinstance(data, dict):
            return data
        fields = {key: cls.model_fields.get(key) for key, value in data.items() if value is None}
        defaults = {key: field.get_default(call_default_factory=True) for key, field in fields.items() if field}
        empty = {key for key, default in defaults.items() if isinstance(default, Model | tuple | dict)}
        return {key: value for key, value in data.items() if key not in empty}

    @field_validator("*", mode="before")
    @classmethod
    def _number_is_no_switch(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and kind in (int, float):
            raise ValueError("expected a number")
        return value


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _time_of_day(value: Any) -> Any:
    # YAML reads 22:00 without quotes as the number 1320.
    if not isinstance(value, str) or not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value):
        raise ValueError('expected a time of day in quotes, such as "22:00"')
    return value


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ValueError("expected a time zone such as UTC or Europe/Berlin") from error
    return name


TimeOfDay = Annotated[str, BeforeValidator(_time_of_day)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]


HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]{1,255}$"), AfterValidator(str.lower)]


class MaintenanceWindow(Model):
    """A time of the week in which operators are not notified."""

    days: tuple[Weekday, ...] = Field(
        WEEKDAYS, min_length=1, description="Days on which it starts: mon, tue, wed, thu, fri, sat, sun; default: all"
    )
    start: TimeOfDay = Field(description='Time of day, in quotes: "02:00"')
    end: TimeOfDay = Field(description="Time of day, in quotes; not later than start: on the next day")
    timezone: TimeZone | None = Field(None, description="Time zone of this window; default: notify.timezone")

    def times(self) -> tuple[int, int]:
        """Minutes after midnight."""
        start, end = (int(text[:2]) * 60 + int(text[3:]) for text in (self.start, self.end))
        return start, end
