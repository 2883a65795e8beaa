"""The wiring: settings, database, HTTP client, clock and adapters, in one value that everything takes first."""

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from pydantic import SecretStr

from csi import clock, logs, systemd
from csi.adapters import registry
from csi.adapters.base import SourceAdapter, Tools
from csi.config import destination_secrets, key_files, loader
from csi.config.delivery_settings import DestinationSettings
from csi.config.destination_profiles import signing_key
from csi.config.loader import variable_names
from csi.config.secrets import read_secret, read_variable
from csi.config.settings import Settings
from csi.config.source_settings import UnusableSource
from csi.emitter.destination import Destination, build, destinations
from csi.emitter.http import PreviousKey
from csi.errors import ConfigError, SourceError
from csi.host_pacer import HostPacer
from csi.ingester.webhook_signature import InboundKeys
from csi.logs import log
from csi.net import AddressGuard, Net
from csi.net.address_guard import ConfiguredHosts
from csi.notifications import Target, split_urls, targets_of
from csi.scheduling.backpressure import Pressure
from csi.scheduling.clock_trust import ClockTrust
from csi.scheduling.poll_concurrency import PollSlots
from csi.sql import make_private_dir
from csi.store import api_refusals, api_units, damage, db, held_removals, managed_destinations
from csi.store.database_faults import DatabaseFault
from csi.store.managed_destinations import ManagedDestination

API_KEYS = ("api_base_url", "api_key_env", "oauth", "quota_limit")
ACCESS_SECONDS = 60.0
BUDGET_SPENT = "today's API budget is spent; polling resumes after midnight Pacific time"


@dataclass(frozen=True)
class Share:
    """A worker's threads as slots: slow sources leave slots for delivery, slow receivers for polls, and both for urgent
    batches. One thread is always left for quick steps: ingest, flush, schedule."""

    threads: int = 16
    streaming: int = 0
    """Threads beside these, for streamed events. 0: streamed events use the slots of `requests`."""

    @property
    def total(self) -> int:
        return self.threads + self.streaming

    @property
    def jobs(self) -> int:
        """Jobs of the catalogue, which can wait."""
        return max(self.threads // 4, 1)

    @property
    def urgent(self) -> int:
        """Concurrent requests of the urgent lane. No other lane uses these slots."""
        return max(self.threads // 8, 1)

    @property
    def requests(self) -> int:
        """Concurrent requests of the other lanes."""
        return max(self.threads * 3 // 16, 1)

    @property
    def polls(self) -> int:
        """Reads mostly wait for the network, so most threads are for them."""
        return max(self.threads - self.urgent - self.requests - 1, 1)


@dataclass(frozen=True)
class CatalogUnits:
    """API units a day that refreshing the catalogue needs, as counted at this time."""

    counted_at: float
    hourly: int
    channels: int


class RecentIds:
    """The ids that were added last. Threads may share it."""

    def __init__(self, most: int = 20_000) -> None:
        self._most, self._ids, self._lock = most, dict[int, None](), threading.Lock()

    def add(self, ids: Iterable[int]) -> None:
        with self._lock:
            self._ids.update(dict.fromkeys(ids))
            for old in list(islice(self._ids, max(len(self._ids) - self._most, 0))):
                del self._ids[old]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._ids


@dataclass
class ProcessState:
    """What this process remembers between two steps. Losing it costs time only: the rows decide."""

    poll_slots: PollSlots = field(default_factory=PollSlots)
    ingested: RecentIds = field(default_factory=RecentIds)
    """Items that this process deleted from the inbox: a wake-up for one of them is dropped. Ids are never reused."""
    scheduled_flushes: dict[str, float] = field(default_factory=dict)
    """By lane, when Huey flushes it next: one wake-up per lane, however many events wait for it."""
    queue_depth: int | None = None
    """Wake-ups in the queue when the maintenance loop looked last."""
    is_leader: bool = False
    has_room: bool = True
    """False: the disk is nearly full."""
    pressure: Pressure | None = None
    """What waited when this process counted it last (csi.pipeline.backpressure). None: not counted yet."""
    pressure_measured_at: float = -math.inf
    has_long_log: bool = False
    """The database's write-ahead log is long."""
    times_checked_at: float = -math.inf
    """When watches were last searched for times that a clock set back left in the future."""
    usual_activity: dict[int, int] = field(default_factory=dict)
    """By watch, its active spells of the last day."""
    activity_counted_at: float | None = None
    jobs_woken_at: float = -math.inf
    catalog_units: CatalogUnits | None = None
    subscriptions_synced_at: float = -math.inf
    icons_looked_at: float = -math.inf
    api_accepted_at: dict[str, float] = field(default_factory=dict)
    """By API credentials, when it was last recorded that the API accepts them."""
    backlog_sampled_at: float = -math.inf
    ping_fault: str | None = None
    """Why the heartbeat URL could not be reached last time."""
    database_fault: DatabaseFault | None = None
    """Why the last write of this process failed; None: it succeeded, or failed once for a reason that may pass."""
    poll_ended_at: float | None = None
    """When a watch was last polled, with or without success. Monotonic."""
    progressed_at: dict[int, float] = field(default_factory=dict)
    """By thread, when its task last finished a part of its work. Monotonic; only long tasks note it."""

    def note_progress(self) -> None:
        """A long task has done a part of its work, so its thread does not hang."""
        self.progressed_at[threading.get_ident()] = time.monotonic()


@dataclass
class Runtime:
    """What a step of the pipeline may use. Time comes from `now`: rules and steps never read the clock."""

    settings: Settings
    net: Net
    now: Callable[[], float] = clock.now
    steady: Callable[[], float] = clock.steady
    clock_trust: ClockTrust | None = None
    """None: this process does not compare its clocks (csi.pipeline.clock_check)."""
    rng: random.Random = field(default_factory=random.Random)
    adapters: dict[str, SourceAdapter] = field(default_factory=dict)
    share: Share = field(default_factory=Share)
    stopping: Callable[[], bool] = lambda: False
    """Whether this process is about to end: long work stops at its next step."""
    process: ProcessState = field(default_factory=ProcessState)
    managed_versions: tuple[str, ...] = ()
    """The rows of `managed_destinations` that `destinations` was built from."""
    held_sources: frozenset[str] = frozenset()
    """Sources that the configuration has lost. They are in `settings` while their watches are held."""

    def __post_init__(self) -> None:
        # YouTube's hosts are paced only where the configuration says so.
        self.net.pacer = self._pacer(learns_by_default=False)

    def use_held_sources(self) -> None:
        """Add the sources of held watches that the configuration does not have, with the last settings they had."""
        own = {name: block for name, block in self.settings.sources.items() if name not in self.held_sources}
        models = registry.settings_models()
        stored = held_removals.settings_of_held_sources()
        held = {
            name: models[name].model_validate_json(text)
            for name, text in stored.items()
            if name in models and name not in own
        }
        if held.keys() == self.held_sources:
            return
        named = {}  # secrets that the environment has; the loader reads only those of the configuration
        for block in held.values():
            for name in loader.variable_names(block):
                if value := read_variable(name, os.environ):
                    logs.register_secret(value)
                    named[name] = SecretStr(value)
        secrets = self.settings.secrets
        secrets = secrets.model_copy(update={"named": named | secrets.named})
        self.settings = self.settings.model_copy(update={"sources": own | held, "secrets": secrets})
        self.held_sources = frozenset(held)

    def adapter(self, source: str) -> SourceAdapter:
        if source not in self.adapters:
            # All sources share one API project: a source without own API settings uses those of another source
            settings = self.settings.sources[source]
            if settings.budget_units is not None:
                others = [other for other in self.settings.sources.values() if other.budget_units is not None]
                said = {
                    name: getattr(other, name)
                    for other in others
                    for name in API_KEYS
                    if name in other.model_fields_set
                }
                own = settings.model_fields_set
                settings = settings.model_copy(update={name: value for name, value in said.items() if name not in own})
            limit = None if settings.budget_units is None else self.api_limit()

            def charge(units: int) -> None:
                if limit is not None and not api_units.book(units, limit, self.now()):
                    raise SourceError(BUDGET_SPENT, kind="budget")

            tools = Tools(
                net=self.net,
                web=self.web,
                charge=charge,
                exhaust=lambda: api_units.exhaust(limit, self.now()) if limit else None,
                note_access=self._note_access,
                spare=lambda units: limit is None or self.has_spare(units),
                secret=self._secret,
                now=lambda: self.now(),
                spacing=lambda host: self.pacer.spacing(host),
            )
            self.adapters[source] = registry.create(source, settings, tools)
        return self.adapters[source]

    def api_limit(self) -> int:
        """Units of the Data API for a day. One project, one number: the smallest `quota_limit` that is set."""
        blocks = [source for source in self.settings.sources.values() if source.budget_units is not None]
        named = [source for source in blocks if "quota_limit" in source.model_fields_set]
        return min((source.budget_units or 0 for source in named or blocks), default=0)

    def streaming_sources(self) -> list[str]:
        """Sources whose events have the lane `stream`, whatever their tier."""
        return [name for name, source in self.settings.sources.items() if source.streaming_mode]

    def streaming_threads(self) -> int:
        """Threads that a worker needs beside those of `-w` for `max_concurrent_events`: a request occupies one until it
        is answered. One more for each further destination, so that a slow one leaves a slot for it. Decision 0017."""
        streaming = [one for one in self.settings.sources.values() if one.enabled and one.streaming_mode]
        if not streaming:
            return 0
        return max(one.max_concurrent_events for one in streaming) + max(len(self.destinations) - 1, 0)

    def enabled_sources(self) -> list[str]:
        return [name for name, source in self.settings.sources.items() if source.enabled]

    def unusable_sources(self) -> list[tuple[str, str]]:
        """Sources that the configuration enables and whose plugin cannot be used, and why."""
        blocks = self.settings.sources.items()
        return [(name, it.fault) for name, it in blocks if isinstance(it, UnusableSource) and it.wanted]

    @cached_property
    def web(self) -> Net:
        """The HTTP client for URLs that users or feeds choose."""
        web = Net(guard=AddressGuard(self.settings.net.allowed_private_hosts))
        web.pacer = self.pacer
        return web

    def net_to(self, destination: Destination) -> Net:
        """The HTTP client for requests to this destination."""
        return self.web if destination.is_guarded else self.net

    @cached_property
    def pacer(self) -> HostPacer:
        """The pace of requests to hosts, shared by everything that reads sources."""
        return self._pacer(learns_by_default=True)

    def _pacer(self, *, learns_by_default: bool) -> HostPacer:
        hosts = self.settings.net.hosts
        return HostPacer(hosts, lambda: self.now(), random.Random(), learns_by_default=learns_by_default)

    @cached_property
    def destinations(self) -> dict[str, Destination]:
        """Where events go, by name. Collecting needs no endpoint yet: the worker refuses to start without one."""
        return destinations(self.settings)

    @cached_property
    def inbound_keys(self) -> InboundKeys:
        """Tokens and secrets of /hooks. Worker and sidecar create the key file, commands only read it."""
        given = self.settings.secrets.inbound_key
        key = given.get_secret_value() if given else key_files.read_or_create_key(self.inbound_key_file, "inbound")
        logs.register_secret(key)
        return InboundKeys(key)

    @property
    def inbound_key_file(self) -> Path:
        return self.settings.csi.state_dir / "inbound.key"

    def use_managed_destinations(self) -> None:
        """Add the destinations of the database to those of the configuration, when a row has changed. Called at start,
        before a reload takes effect, by every pass of the maintenance loop and by every request of the sidecar."""
        versions = managed_destinations.versions(self.now())
        if versions == self.managed_versions:
            return
        found = destinations(self.settings)
        try:
            kept = destination_secrets.read(self.settings.csi.state_dir)
        except ConfigError as error:
            kept = {}
            log.error("destination cannot be used", error=str(error))
        for row in managed_destinations.every(self.now()):
            is_wanted = row.owner is None or self.settings.features.mcp_events
            try:
                if row.name not in found and is_wanted:
                    found[row.name] = self._managed(row, kept.get(row.name, {}))
            except ValueError as error:  # ValidationError is one
                log.error("destination cannot be used", destination=row.name, error=str(error).splitlines()[0])
        self.__dict__["destinations"] = found
        self.managed_versions = versions

    def _managed(self, row: ManagedDestination, kept: Mapping[str, SecretStr]) -> Destination:
        given = DestinationSettings.model_validate_json(row.settings_json)
        named = {name: SecretStr(text) for name in variable_names(given) if (text := read_secret(name, os.environ))}
        named |= kept
        for variable, value in named.items():
            # An address that an agent chose is not masked in every text: it could be that of a whole website.
            if row.owner is None or variable != given.endpoint_env:
                logs.register_secret(value.get_secret_value())
        if missing := [name for name in variable_names(given) if name not in named]:
            # Without an address nothing is sent, and its events wait behind an open circuit breaker.
            log.error("destination cannot be used", destination=row.name, error=f"the secret {missing[0]} is missing")
            given = given.model_copy(update={"endpoint": None, "endpoint_env": None})
        made = replace(build(row.name, given, self.settings, named), is_guarded=row.owner is not None)
        old = named.get(f"{given.secret_env}{destination_secrets.PREVIOUS}")
        if old is None or row.previous_until is None:
            return made
        text = old.get_secret_value()
        bearer = made.receiver.bearer if given.bearer_env or given.signature != "csi" else text
        previous = PreviousKey(
            signing_key(text, given.secret_form),
            bearer,
            row.previous_until,
            lambda now: managed_destinations.note_previous_needed(row.name, now),
        )
        return replace(made, receiver=replace(made.receiver, previous=previous))

    def _note_access(self, name: str, error: str | None) -> None:
        """A refusal is recorded at once; that the API accepts the credentials, once in ACCESS_SECONDS."""
        now, accepted = self.now(), self.process.api_accepted_at
        if error is not None:
            accepted.pop(name, None)
            api_refusals.note(name, error, now)
        elif not 0 <= now - accepted.get(name, -math.inf) < ACCESS_SECONDS:
            accepted[name] = now
            api_refusals.accepted(name)

    def has_spare(self, units: int) -> bool:
        """Whether work that can wait may use so many units now, without the buffer that is reserved for polling."""
        rules, limit = [source.adaptive for source in self.settings.sources.values()], self.api_limit()
        buffer = max((rule.min_quota_buffer for rule in rules if rule is not None), default=0)
        return api_units.used(self.now()) + units + min(buffer, limit // 2) <= limit

    def _secret(self, name: str) -> str | None:
        value = self.settings.secrets.named.get(name)
        return value.get_secret_value() if value else None


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    return loader.load(path, env=os.environ if env is None else env, sources=registry.settings_models())


def configured_net(settings: Settings) -> Net:
    """The HTTP client for hosts that the configuration names: destinations, API bases, hubs."""
    guard = ConfiguredHosts(settings.net.allowed_private_hosts)
    return Net(allow_insecure_http=settings.delivery.allow_insecure_http, guard=guard)


def open_runtime(
    path: Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    migrate: bool = True,
    refuse_damaged: bool = False,
    log_level: str | None = None,
) -> Runtime:
    """Read the config, set up logging, open the database and bring it up to date.

    `refuse_damaged`: StoreError where a check of the whole SQLite file finds damage. `log_level`: instead of the
    configured one, for commands whose output must not be mixed with log lines."""
    settings = load_settings(path, env)
    level = log_level or settings.csi.log_level
    logs.setup(level=level, format=settings.csi.log_format, secrets=secret_values(settings))
    make_private_dir(settings.csi.state_dir)
    db.open_database(settings.csi.database_url)
    rt = Runtime(settings, configured_net(settings))
    with systemd.more_time_to_start("checking and migrating the database"):
        if refuse_damaged and not db.is_postgres():
            damage.refuse_damaged(Path(settings.csi.database_url), settings.csi.state_dir)
        if migrate:
            db.migrate()
    if migrate:
        with db.connection():
            rt.use_held_sources()
            rt.use_managed_destinations()
    return rt


def secret_values(settings: Settings) -> list[str]:
    """Everything that must never appear in a log."""
    delivery, secrets = settings.delivery, settings.secrets
    known = [delivery.shared_secret, delivery.bearer_token, secrets.admin_token, secrets.admin_read_token]
    known += [
        secrets.feed_token,
        secrets.queue_secret,
        secrets.heartbeat_url,
        secrets.inbound_key,
        *secrets.named.values(),
    ]
    urls = [target.url for target in notification_targets(settings)]
    return [*(value.get_secret_value() for value in known if value), *urls]


def notification_targets(settings: Settings) -> list[Target]:
    """The services of CSI_NOTIFY_URLS."""
    urls = settings.secrets.notify_urls
    return targets_of(split_urls(urls.get_secret_value())) if urls else []
