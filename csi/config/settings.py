"""The configuration file as a model: all its blocks, and those that are neither sources nor delivery."""

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    SerializeAsAny,
    model_validator,
)

from csi.config.delivery_settings import DeliverySettings, DlqSettings
from csi.config.durations import Seconds
from csi.config.secrets import url_password
from csi.config.setting_types import (
    HostAndPort,
    HostName,
    LogLevel,
    MaintenanceWindow,
    Model,
    Name,
    Network,
    PublicUrl,
    SourceUrl,
    TierName,
    TimeZone,
    VariableName,
    is_loopback,
)
from csi.config.source_settings import SourceSettings


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


def _day(value: object) -> str:
    """YAML reads an unquoted day as a date."""
    try:
        return (value if isinstance(value, date) else date.fromisoformat(str(value))).isoformat()
    except ValueError as error:
        raise ValueError("expected a day such as 2026-08-27") from error


Day = Annotated[str, BeforeValidator(_day)]


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


class RetentionSettings(Model):
    """How long rows are kept."""

    events_days: int = Field(30, ge=1, le=36_500)
    dlq_days: int = Field(90, ge=1, le=36_500)
    dedupe_days: int = Field(90, ge=1, le=36_500)
    youtube_policy: Literal["relaxed", "strict"] = Field(
        "relaxed", description="strict: no statistics of the API are kept longer than 30 days"
    )


class TakeOffSettings(Model):
    """Events of type video_taking_off: a video gets many more views an hour than is usual for its channel."""

    enabled: bool = Field(False, description="Emit video_taking_off, once for a video up to 7 days old")
    factor: float = Field(5.0, gt=1, le=1000, description="How many times the median of the channel's other videos")
    min_hourly_views: int = Field(1000, ge=1, description="Fewer views an hour are never a take-off")


class CatalogSettings(Model):
    """The catalogue of channels and videos, and its jobs."""

    enabled: bool = Field(True, description="Run the catalogue's jobs; false: they wait")
    track_watched: bool = Field(False, description="Add every watched channel to the catalogue")
    units_per_day: int = Field(3000, ge=0, description="API units a day for the catalogue, out of quota_limit")
    stats_units_per_day: int = Field(
        10_000, ge=0, description="API units a day of videos:batchGetStats, a quota of its own; 0: never call it"
    )
    backfill_videos: int | None = Field(None, ge=1, description="Most videos that one backfill fetches; default: all")
    max_attempts: int = Field(5, ge=1, le=100, description="Attempts of a job without progress before it is given up")
    archive_dir: Path | None = Field(None, description="Directory for archived rows; default <state_dir>/archive")
    hourly_stats_days: int = Field(30, ge=2, le=36_500, description="How long every capture of a video is kept")
    daily_stats_days: int = Field(365, ge=2, le=36_500, description="How long one capture per day is kept")
    job_events_days: int = Field(90, ge=1, le=36_500, description="How long the history of jobs is kept")
    jobs_days: int = Field(30, ge=1, le=36_500, description="How long finished jobs keep their payload")
    job_metadata_days: int = Field(365, ge=1, le=36_500, description="How long finished jobs are kept")
    api_budget_days: int = Field(365, ge=2, le=36_500, description="How long the daily rows of the API budget are kept")
    subpartition_rows: int | None = Field(
        None,
        ge=100_000,
        description="PostgreSQL: divide new months of a table of statistics with more rows than this; default: never",
    )
    take_off: TakeOffSettings = TakeOffSettings()
    counting_changed_on: Day | None = Field(
        "2026-08-27", description="YouTube counts views in another way since then: charts mark it; null: no mark"
    )

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
    trusted_proxies: tuple[Network, ...] = Field(
        (), description="Addresses and networks of your proxies: X-Forwarded-For of theirs names the client"
    )
    public_url: PublicUrl | None = Field(
        None, description="Where operators open the dashboard; notifications link to it: https://csi.example.org"
    )
    remote_icons: bool = Field(
        False, description="Show the icons of watches: the browser loads them from the hosts that the sources name"
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
    mcp: bool = Field(True, description="Serve the MCP server at /mcp, if the extra creator-signals[mcp] is installed")
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
