"""The settings models of the configuration file: names, types, limits and defaults of all keys but those of sources."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)

from csi.config.destination_profiles import (
    PRESETS,
    SECRET_HEADER,
    Answers,
    BodyForm,
    HeaderName,
    HeaderText,
    Preset,
    SecretForm,
    SignatureScheme,
    profile_fault,
)
from csi.config.durations import Seconds
from csi.config.secrets import url_password
from csi.patterns import check_pattern

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


def _check_interval(seconds: float) -> float:
    if not 1 <= seconds <= 604_800:
        raise ValueError("expected an interval of 1 second to 7 days")
    return seconds


Interval = Annotated[Seconds, AfterValidator(_check_interval)]


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


class FirstPollLast(Model):
    """`first_poll: {last: N}`: emit the newest N and mark the rest as seen."""

    last: int = Field(ge=0, le=1000)


def _first_poll(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """One message instead of one per member of the union."""
    try:
        return check(value)
    except ValueError as error:
        raise ValueError("expected mark_seen, all, or last: N with N from 0 to 1000") from error


FirstPoll = Annotated[Literal["mark_seen", "all"] | FirstPollLast, WrapValidator(_first_poll)]


ItemKind = Literal["video", "short", "live", "upcoming"]
KINDS: tuple[ItemKind, ...] = ("video", "short", "live", "upcoming")
"""The kinds of an item (`subject.kind`). All are included by default."""


def _some_kind(kinds: tuple[ItemKind, ...]) -> tuple[ItemKind, ...]:
    if not kinds:
        raise ValueError(f"expected at least one of {', '.join(KINDS)}")
    return tuple(dict.fromkeys(kinds))


ItemKinds = Annotated[tuple[ItemKind, ...], AfterValidator(_some_kind)]
Pattern = Annotated[str, AfterValidator(check_pattern)]
Length = Annotated[Seconds, Field(ge=0)]

# Created by a call because `not`, one of its keys, is a keyword of Python.
TitleFilter = create_model(
    "TitleFilter",
    __base__=Model,
    __doc__="Regular expressions that a title must match, and must not match; (?i) ignores case.",
    **{  # type: ignore[call-overload]
        "match": (Pattern | None, Field(None, description="Only items whose title matches")),
        "not": (Pattern | None, Field(None, description="No items whose title matches")),
    },
)

FILTERS = ("include", "title", "min_duration_seconds", "max_duration_seconds")
"""The keys that filter items. A watch's own value wins over that of its source."""


W = TypeVar("W", "WatchSettings", "SourceSettings")


def _check_lengths(settings: W) -> W:
    low, high = settings.min_duration_seconds, settings.max_duration_seconds
    if low is not None and high is not None and low > high:
        raise ValueError("min_duration_seconds is more than max_duration_seconds, so no item would be included")
    return settings


class WatchSettings(Model):
    """One watch. Subclasses add the field that identifies it."""

    name: str | None = Field(None, max_length=200, description="A name that is shown beside the id")
    route_profile: str | None = Field(None, description="A key of route_profiles")
    tags: tuple[str, ...] = Field((), description="Added to the route profile's tags")
    poll_interval_seconds: Interval | None = Field(None, description="Overrides the source's interval")
    first_poll: FirstPoll | None = Field(None, description="Overrides the source's first_poll")
    include: ItemKinds | None = Field(None, description="Overrides the source's include")
    title: TitleFilter | None = Field(None, description="Overrides the source's title")
    min_duration_seconds: Length | None = Field(None, description="Overrides the source's")
    max_duration_seconds: Length | None = Field(None, description="Overrides the source's")

    _lengths_fit = model_validator(mode="after")(_check_lengths)

    @property
    def label(self) -> str | None:
        """The name that is shown beside the ref."""
        return self.name

    @property
    def ref_fault(self) -> str | None:
        """Why nothing can have this ref, and how to find the right one. None: it has the right form."""
        return None

    @property
    def ref(self) -> str:
        """What identifies this watch within its source."""
        raise NotImplementedError(f"{type(self).__name__} must define what identifies a watch")


class AdaptivePolling(Model):
    """Two polling intervals (FR-1.3): a short one while new items appear, a long one otherwise."""

    enabled: bool = Field(True, description="Poll at the idle interval while nothing new appears, if that saves quota")
    active_interval_seconds: Seconds | None = Field(
        None, gt=0, description="Interval while active; default: poll_interval_seconds"
    )
    idle_interval_seconds: Seconds = Field(300, gt=0, description="Interval while idle")
    activity_threshold_minutes: float = Field(15, ge=0, description="Idle after this long without a new item")
    min_quota_buffer: int = Field(1000, ge=0, description="API units kept back for other work")


class SourceSettings(Model):
    """The keys of every source. Each adapter's module has a subclass with its own."""

    enabled: bool = Field(True, description="Poll this source")
    poll_interval_seconds: Seconds = Field(300, description="Time between two polls of one watch")
    priority: TierName = Field("standard", description="Delivery tier of this source's events")
    first_poll: FirstPoll = Field("mark_seen", description="What the first successful read of a watch emits")
    include: ItemKinds = Field(KINDS, description="Kinds of items that become events")
    title: TitleFilter = Field(TitleFilter(), description="Titles of items that become events")
    min_duration_seconds: Length | None = Field(None, description="Drop shorter items, if their length is known")
    max_duration_seconds: Length | None = Field(None, description="Drop longer items, if their length is known")

    streaming_mode: bool = Field(False, description="Send each event at once and alone, several in parallel, unordered")
    max_concurrent_events: int = Field(10, ge=1, le=64, description="With streaming_mode: events in flight at once")

    watch_key: ClassVar[str | None] = None
    """The key of the list of watches. None: the source has no such list and is one watch."""

    @property
    def adaptive(self) -> AdaptivePolling | None:
        """The two intervals of a source that polls adaptively."""
        return getattr(self, "adaptive_polling", None)

    @property
    def budget_units(self) -> int | None:
        """Units of the YouTube Data API that this source may use in a day. None: it uses none."""
        return getattr(self, "quota_limit", None)

    @property
    def websub(self) -> "PushSettings | None":
        """The `push` block of a source that has one."""
        return getattr(self, "push", None)

    @property
    def waits_for_caches(self) -> bool:
        """Whether a watch is read when the source's cached response expires, and not at its interval."""
        return bool(getattr(self, "respect_cache_headers", False))

    @property
    def watches(self) -> tuple[WatchSettings, ...]:
        return getattr(self, self.watch_key) if self.watch_key else ()

    def filters_of(self, watch: WatchSettings | None = None) -> dict[str, Any]:
        """The filters that exclude items, as plain JSON; the watch's own keys win."""
        own, plain = watch or WatchSettings(), dict[str, Any]()
        for key in FILTERS:
            value = getattr(self if getattr(own, key) is None else own, key)
            if isinstance(value, BaseModel):
                value = value.model_dump(exclude_none=True)
            elif isinstance(value, tuple):
                value = [kind for kind in KINDS if kind in value]
            if value and value != list(KINDS):
                plain[key] = value
        return plain

    _lengths_fit = model_validator(mode="after")(_check_lengths)
    # Not in the annotation: subclasses redeclare the field with another default.
    _interval_is_sane = field_validator("poll_interval_seconds")(_check_interval)


class UnusableSource(SourceSettings):
    """The block of a plugin that cannot be used: whatever the block says, the source is not polled."""

    model_config = ConfigDict(extra="ignore")
    fault: ClassVar[str] = ""
    wanted: bool = Field(True, exclude=True, description="The configuration enables it")

    @model_validator(mode="before")
    @classmethod
    def _never_polled(cls, data: Any) -> Any:
        return {"enabled": False, "wanted": not isinstance(data, dict) or data.get("enabled") is not False}


def unusable_source(name: str, fault: str) -> type[UnusableSource]:
    members = {"__doc__": f"sources.{name}", "__module__": __name__, "fault": fault}
    return type(f"Unusable_{name}", (UnusableSource,), members)


class PushSettings(Model):
    """WebSub: a hub announces changes of feeds, and each announcement is confirmed by a read."""

    callback_url: PublicUrl = Field(description="Where the hub reaches this sidecar: https://csi.example.org")
    hub_url: SourceUrl | None = Field(None, description="The hub; default: the one that the source or feed names")
    lease_seconds: Seconds = Field(432_000, ge=3600, le=2_592_000, description="The lease that the hub is asked for")
    stretch: bool = Field(
        True, description="Poll less often while pushes are complete: 4 times the interval, 1 h at most"
    )
    removed_events: bool = Field(False, description="Emit video_removed when the hub announces that a video is gone")

    @property
    def callback_base(self) -> str:
        """The address in front of `/hooks`, whatever follows it."""
        return self.callback_url.partition("/hooks")[0]


class RouteProfile(Model):
    """Routing hints for the receiver."""

    pipeline: str = Field(min_length=1, max_length=200)
    priority: TierName = "standard"
    tags: tuple[str, ...] = ()


def _place(text: str, *schemes: str) -> str:
    """A path, or a URL with a known scheme. `sqlite:///x` is the path x, so an absolute path has four slashes."""
    path, known = text.removeprefix("sqlite:///"), (*schemes, "postgresql://", "postgres://")
    if "://" in path and not path.startswith(known):
        raise ValueError(f"expected a path or {' or '.join(scheme + '…' for scheme in known)}")
    return path


DatabaseUrl = Annotated[str, Field(max_length=2000), AfterValidator(_place)]
QueueUrl = Annotated[
    str, Field(max_length=2000), AfterValidator(lambda text: _place(text, "redis://", "rediss://", "unix://"))
]


class CsiSettings(Model):
    """The instance itself."""

    instance_id: Name = Field("csi-vps-01", description="Names this instance to the receiver")
    environment: str = Field("production", max_length=64, description="Free text, for example production or staging")
    log_level: LogLevel = Field("INFO", description="Least level logged")
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else json")
    state_dir: Path = Field(Path("/var/lib/csi"), description="Database, queue and locks live here (mode 0700)")
    database: DatabaseUrl | None = Field(None, description="SQLite path or postgresql://…; default <state_dir>/csi.db")
    queue: QueueUrl | None = Field(
        None, description="SQLite path, redis://… or postgresql://…; default <state_dir>/queue.db"
    )
    allow_unprotected_queue: bool = Field(False, description="Allow a Redis queue on another host without a password")

    min_free_mb: int = Field(
        64, ge=0, le=1_000_000, description="Below this much free disk space polling is paused; 0: no limit"
    )
    max_backlog_events: int = Field(
        200_000,
        ge=0,
        le=100_000_000,
        description="From half of these waiting on, sources are read less often; from all on not at all; 0: no limit",
    )
    backup_max_age_seconds: Seconds | None = Field(
        93_600,
        ge=3600,
        description="A problem is reported when the last `csi db backup` is older; null: backups are made otherwise",
    )

    @property
    def database_url(self) -> str:
        return self.database or str(self.state_dir / "csi.db")

    @property
    def queue_url(self) -> str:
        return self.queue or str(self.state_dir / "queue.db")


class TierSettings(Model):
    """When a tier is flushed."""

    batch_size: int = Field(ge=1, le=10_000, description="Flush when this many wait")
    max_delay_seconds: Seconds = Field(le=3600, description="Flush when the oldest has waited this long")


STREAM = "stream"
"""The lane of sources with streaming_mode: one event per request, sent at once."""

RESEND = "resend"
"""The lane of events that an operator sends again: batches of their own, which no figure of first deliveries counts."""

_STREAM = TierSettings(batch_size=1, max_delay_seconds=0)


class PriorityBehavior(Model):
    """The three tiers."""

    urgent: TierSettings = TierSettings(batch_size=1, max_delay_seconds=5)
    standard: TierSettings = TierSettings(batch_size=100, max_delay_seconds=30)
    high_volume: TierSettings = TierSettings(batch_size=500, max_delay_seconds=60)

    @field_validator("urgent", "standard", "high_volume", mode="before")
    @classmethod
    def _rest_is_default(cls, value: Any, info: ValidationInfo) -> Any:
        """A key that a tier leaves out keeps that tier's default."""
        default: TierSettings = cls.model_fields[str(info.field_name)].default
        return default.model_dump() | value if isinstance(value, dict) else value

    def of(self, tier: str) -> TierSettings:
        """The settings of a tier, or of the lane of streaming sources; what is sent again is batched as standard."""
        settings: TierSettings = _STREAM if tier == STREAM else self.standard if tier == RESEND else getattr(self, tier)
        return settings


def _shorter_than_a_lease(value: float) -> float:
    if not 0.1 <= value <= 45:
        raise ValueError("expected 0.1 to 45 seconds: the lease of a batch, 60 s at most, must outlast the request")
    return value


RequestTime = Annotated[Seconds, AfterValidator(_shorter_than_a_lease)]
JsonForm = Literal["auto", "ascii", "utf8"]


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


class SecretHeader(Model):
    """A header whose value comes from the environment."""

    value_env: VariableName = Field(description="Variable that holds the value")
    prefix: str = Field("", max_length=40, pattern=r"^[\x20-\x7e]*$", description='Text before it, such as "Bearer "')


class DestinationSettings(Model):
    """A destination beside `ua_endpoint`, from the configuration file or from a row of the database. A key that it
    leaves out has the value of its preset, then that of `delivery`, then the PRD's contract."""

    preset: Preset | None = Field(None, description="Ready-made values of the keys below: slack, n8n …")
    type: Literal["http", "notify"] = Field("http", description="notify: messages to people, through apprise")
    endpoint: SourceUrl | None = Field(None, description="URL that events are sent to")
    endpoint_env: VariableName | None = Field(
        None, description="Variable that holds the URL, where it is a secret; for notify an apprise URL"
    )
    secret_env: VariableName | None = Field(None, description="Variable that holds the secret of its signature")
    secret_form: SecretForm = Field("raw", description="raw: the secret's own bytes; whsec: whsec_ and base64")
    bearer_env: VariableName | None = Field(None, description="Variable that holds its bearer token, if not the secret")
    answers: Answers = Field("contract", description="status: every 2xx is delivered, whatever its body says")
    body: BodyForm = Field("batch", description="One event per request, CloudEvents, or our own envelope")
    signature: SignatureScheme = Field("csi", description="Scheme of the signature")
    method: Literal["POST", "PUT", "PATCH"] = Field("POST", description="HTTP method")
    headers: dict[HeaderName, HeaderText | SecretHeader] = Field(
        default_factory=dict, description="Headers of its own; a secret one as {value_env: VARIABLE}"
    )
    template: str | None = Field(None, min_length=1, max_length=20_000, description="Jinja2 template of the body")
    title: str | None = Field(None, min_length=1, max_length=2000, description="Jinja2 template of a message's title")
    group_seconds: Seconds | None = Field(
        None, ge=0, le=86_400, description="Collect events this long into one message; default of notify: 5 minutes"
    )
    quiet_hours: tuple[MaintenanceWindow, ...] = Field((), description="Times of the week in which nothing is sent")
    sources: tuple[str, ...] = Field((), description="Only events of these sources; empty: all")
    event_types: tuple[str, ...] = Field((), description="Only events of these types; empty: all")
    tags: tuple[str, ...] = Field((), description="Only events with one of these tags; empty: all")
    watches: tuple[str, ...] = Field(
        (), description="Only events of these watches (playlist, channel, feed); empty: all"
    )
    tiers: tuple[TierName, ...] = Field((), description="Only events of these tiers; empty: all")
    priority_behavior: PriorityBehavior | None = Field(None, description="Tier settings of its own")
    timeout_seconds: RequestTime | None = Field(None, description="Total time for one request")
    max_events_per_request: int | None = Field(None, ge=1, le=100, description="Events in one request")
    max_concurrent_requests: int | None = Field(None, ge=1, le=64, description="Requests at once")
    canonical_json: JsonForm | None = Field(None, description="Form of the signed JSON")
    standard_webhooks: bool | None = Field(None, description="Send Standard Webhooks headers, too")

    @model_validator(mode="before")
    @classmethod
    def _take_preset(cls, data: Any) -> Any:
        """Keys that are given win over those of the preset; an unknown preset is reported by its own field."""
        if not isinstance(data, dict):
            return data
        name = data.get("preset")
        preset = PRESETS.get(name, {}) if isinstance(name, str) else {}
        kind = {"answers": "status", "signature": "none"} if data.get("type") == "notify" else {}
        return {**kind, **preset, **data}

    @field_validator("headers")
    @classmethod
    def _no_secret_in_the_file(cls, value: dict[str, str | SecretHeader]) -> dict[str, str | SecretHeader]:
        for name, given in value.items():
            if isinstance(given, str) and SECRET_HEADER.search(name):
                raise ValueError(
                    f"a secret does not belong in the file; write {name}: {{value_env: VARIABLE}} and set that variable"
                )
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if fault := profile_fault(self):
            raise ValueError(fault)
        return self


class DeliverySettings(Model):
    """The default destination and what all destinations share. Worker and sidecar do not start without endpoint and
    secret, which come from the environment."""

    allow_insecure_http: bool = Field(False, description="Allow plain http to a host in a private network")
    ua_endpoint: str | None = Field(None, description="URL of the receiver's ingest endpoint")
    shared_secret: SecretStr | None = Field(None, description="HMAC secret; only as ${CSI_UA_SHARED_SECRET}")
    bearer_token: SecretStr | None = Field(None, description="Bearer token, if it is not the secret")
    priority_behavior: PriorityBehavior = PriorityBehavior()
    timeout_seconds: RequestTime = Field(30, description="Total time for one request, connect to last byte")
    max_events_per_request: int = Field(100, ge=1, le=100)
    max_concurrent_requests: int = Field(4, ge=1, le=64, description="Standard and high_volume requests at once")
    canonical_json: JsonForm = Field("auto", description="Form of the signed JSON; auto learns it from the receiver")
    standard_webhooks: bool = Field(False, description="Send Standard Webhooks headers beside ours")
    destinations: dict[Name, DestinationSettings] = Field(
        default_factory=dict, description="More destinations by name, each with its own filters and circuit breaker"
    )

    @field_validator("destinations")
    @classmethod
    def _default_is_taken(cls, value: dict[str, DestinationSettings]) -> dict[str, DestinationSettings]:
        if "default" in value:
            raise ValueError("the name default belongs to ua_endpoint; choose another")
        return value

    @field_validator("ua_endpoint")
    @classmethod
    def _safe_endpoint(cls, value: str | None, info: ValidationInfo) -> str | None:
        # pydantic validates in the order of the fields: allow_insecure_http is declared first, so it is known here.
        plain_http = info.data.get("allow_insecure_http", False)
        try:
            return check_url(value, plain_http=plain_http) if value else None
        except PlainHttpError as error:
            raise ValueError(f"{error}, or set allow_insecure_http: true") from error


class DlqSettings(Model):
    """Dead letters."""

    auto_redrive: bool = Field(True, description="Resend dead letters of a failing receiver once it accepts events")
    max_redrive_rounds: int = Field(3, ge=1, le=100)


class RetentionSettings(Model):
    """How long rows are kept."""

    events_days: int = Field(30, ge=1, le=36_500)
    dlq_days: int = Field(90, ge=1, le=36_500)
    dedupe_days: int = Field(90, ge=1, le=36_500)
    youtube_policy: Literal["relaxed", "strict"] = Field(
        "relaxed", description="strict: no statistics of the API are kept longer than 30 days"
    )


class CatalogSettings(Model):
    """The catalogue of channels and videos, and its jobs."""

    enabled: bool = Field(True, description="Run the catalogue's jobs; false: they wait")
    track_watched: bool = Field(False, description="Add every watched channel to the catalogue")
    units_per_day: int = Field(3000, ge=0, description="API units a day for the catalogue, out of quota_limit")
    backfill_videos: int | None = Field(None, ge=1, description="Most videos that one backfill fetches; default: all")
    max_attempts: int = Field(5, ge=1, le=100, description="Attempts of a job without progress before it is given up")
    archive_dir: Path | None = Field(None, description="Directory for archived rows; default <state_dir>/archive")
    hourly_stats_days: int = Field(30, ge=2, le=36_500, description="How long every capture of a video is kept")
    daily_stats_days: int = Field(365, ge=2, le=36_500, description="How long one capture per day is kept")
    job_events_days: int = Field(90, ge=1, le=36_500, description="How long the history of jobs is kept")
    jobs_days: int = Field(30, ge=1, le=36_500, description="How long finished jobs keep their payload")
    job_metadata_days: int = Field(365, ge=1, le=36_500, description="How long finished jobs are kept")
    api_budget_days: int = Field(365, ge=2, le=36_500, description="How long the daily rows of the API budget are kept")

    @model_validator(mode="after")
    def _times_fit(self) -> "CatalogSettings":
        if self.daily_stats_days < self.hourly_stats_days:
            raise ValueError("daily_stats_days is less than hourly_stats_days")
        if self.job_metadata_days < max(self.jobs_days, self.job_events_days):
            raise ValueError("job_metadata_days is less than jobs_days or job_events_days, which need the job")
        return self


class WebSettings(Model):
    """The sidecar."""

    host: str = Field("127.0.0.1", description="Address to listen on; anything wider needs CSI_ADMIN_TOKEN")
    port: int = Field(8091, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = Field(
        ("127.0.0.1", "localhost", "[::1]"), description="Accepted Host headers for /admin and the dashboard"
    )
    public_url: PublicUrl | None = Field(
        None, description="Where operators open the dashboard; notifications link to it: https://csi.example.org"
    )
    processing_url: SourceUrl | None = Field(
        None, description="The receiver, if it serves processing: transcripts and summaries are read there"
    )
    processing_password_env: VariableName = Field(
        "UA_SIGNALS_DASHBOARD_PASSWORD", description="Variable with the password of its dashboard"
    )


class HostSettings(Model):
    """How often one host is asked. A key that is left out has its default: Reddit 61 s, other hosts no spacing."""

    min_spacing_seconds: Seconds | None = Field(
        None, ge=0, le=3600, description="Least time between two requests, of all processes together"
    )
    max_concurrent: int | None = Field(None, ge=1, le=64, description="Watches of this host that are read at once")
    learn: bool | None = Field(
        None, description="Widen the spacing after 429 and rate-limit headers, and narrow it slowly after successes"
    )


HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]{1,255}$"), AfterValidator(str.lower)]


class InboundSettings(Model):
    """The listener for pushes and webhooks, under /hooks of the sidecar."""

    enabled: bool | None = Field(None, description="Serve /hooks; not set: while a source has a `push` block")
    host: str | None = Field(None, description="An address of its own to listen on; not set: the sidecar's")
    port: int | None = Field(None, ge=0, le=65535, description="The port of that address; nothing else is served there")
    public_url: PublicUrl | None = Field(
        None, description="Where senders reach /hooks; `csi inbound` prints it: https://csi.example.org"
    )
    max_body_bytes: int = Field(262_144, ge=1024, le=16_777_216, description="A larger message is refused (413)")
    max_messages_per_minute: int = Field(
        600, ge=1, le=1_000_000, description="More from one sender are answered with 503 and Retry-After"
    )
    keep_days: int = Field(7, ge=3, le=365, description="How long handled messages are kept, and repeats recognized")

    @model_validator(mode="after")
    def _address_is_complete(self) -> "InboundSettings":
        if (self.host is None) != (self.port is None):
            raise ValueError("host and port belong together: set both, or neither")
        return self


class NetSettings(Model):
    """Requests to hosts that sources are read from."""

    allowed_private_hosts: tuple[HostAndPort, ...] = Field(
        (),
        description="Hosts in private networks that feeds may be read from, and public names of destinations that "
        "resolve to private addresses: name, address, name:port or address:port",
    )
    hosts: dict[HostName, HostSettings] = Field(
        {}, description="Pace of requests by registrable domain (example.org), host name or address:port"
    )


class NotifySettings(Model):
    """Notifications. The addresses are secrets: CSI_NOTIFY_URLS and CSI_HEARTBEAT_URL."""

    enabled: bool = Field(True, description="Send notifications of alerts to CSI_NOTIFY_URLS")
    after_seconds: Seconds | None = Field(
        None,
        ge=0,
        le=86_400,
        description="A notification is sent after its problem lasted this long. Not set: at once where one answer "
        "proves the problem (401, a refused reload), else after three minutes",
    )
    heartbeat_seconds: Seconds = Field(60, ge=15, le=86_400, description="Time between two pings of CSI_HEARTBEAT_URL")
    weekly_test: bool = Field(True, description="Send a test message every Monday at 9:00")
    daily_summary: bool = Field(
        True, description="Send a summary at 9:00 of each day with quiet or gone watches, dead letters or notices"
    )
    timezone: TimeZone = Field("UTC", description="Time zone of the test, the summary and the windows: Europe/Berlin")
    windows: tuple[MaintenanceWindow, ...] = Field(
        (), description="Maintenance windows: alerts are recorded, and notified after the window if they still fire"
    )


class FeatureFlags(Model):
    """Switches for parts of the pipeline (FR-6.3)."""

    polling: bool = Field(True, description="Read sources; off: only deliver what is stored")
    delivery: bool = Field(True, description="Send events; off: only collect them")
    admin_api: bool = Field(True, description="Serve /admin")
    dashboard: bool = Field(True, description="Serve the dashboard at /")
    mcp: bool = Field(True, description="Serve the MCP server at /mcp, if the extra csi[mcp] is installed")
    mcp_write: bool = Field(False, description="Let agents with CSI_ADMIN_TOKEN change things through /mcp")
    mcp_events: bool = Field(False, description="Let agents subscribe to events through the MCP server (a draft)")


class EnvironmentSecrets(BaseModel):
    """Secrets of the environment. Every field is a SecretStr, which is never printed."""

    model_config = ConfigDict(frozen=True)

    admin_token: SecretStr | None = None
    admin_read_token: SecretStr | None = None
    feed_token: SecretStr | None = None
    queue_secret: SecretStr | None = None
    notify_urls: SecretStr | None = None
    heartbeat_url: SecretStr | None = None
    inbound_key: SecretStr | None = None
    named: dict[str, SecretStr] = Field(default_factory=dict)
    """Secrets whose variable is named in the config (`api_key_env`), by that name."""


class ConfigFile(Model):
    """The file without `sources`, whose blocks are defined by the adapters."""

    csi: CsiSettings = Field(CsiSettings(), description="The instance itself")
    route_profiles: dict[str, RouteProfile] = Field({}, description="Routing hints for the receiver, by name")
    delivery: DeliverySettings = Field(DeliverySettings(), description="Where and how events are sent")
    dlq: DlqSettings = Field(DlqSettings(), description="Dead letters")
    retention: RetentionSettings = Field(RetentionSettings(), description="How long rows are kept")
    catalog: CatalogSettings = Field(CatalogSettings(), description="Channels, videos and statistics over time")
    web: WebSettings = Field(WebSettings(), description="The sidecar")
    net: NetSettings = Field(NetSettings(), description="Requests to hosts that sources are read from")

    inbound: InboundSettings = Field(InboundSettings(), description="The listener for pushes and webhooks")
    notify: NotifySettings = Field(NotifySettings(), description="Notifications")
    features: FeatureFlags = Field(FeatureFlags(), description="Switches for parts of the pipeline")


class Settings(ConfigFile):
    """The whole configuration: the file, its sources, and the secrets."""

    sources: dict[str, SerializeAsAny[SourceSettings]] = Field(default_factory=dict)

    @property
    def serves_hooks(self) -> bool:
        """Whether the sidecar listens for pushes and webhooks."""
        on = self.inbound.enabled
        return any(source.websub for source in self.sources.values()) if on is None else on

    secrets: EnvironmentSecrets = Field(default_factory=EnvironmentSecrets, exclude=True)


def looks_like_postgres(url: str) -> bool:
    return re.match(r"postgres(ql)?://", url) is not None


def is_server(url: str) -> bool:
    """Whether a database or queue is on a server and not a SQLite file."""
    return "://" in url


def is_unprotected_redis(url: str) -> bool:
    """A Redis on another host whose URL has no password: every host that reaches it can write to the queue."""
    parts = urlsplit(url)
    return (
        parts.scheme in ("redis", "rediss") and not is_loopback(parts.hostname or "localhost") and not url_password(url)
    )
