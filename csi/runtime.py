"""The wiring: settings, database, HTTP client, clock and adapters, in one value that everything takes first."""

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from csi import clock, logs
from csi.adapters import registry
from csi.adapters.base import SourceAdapter, Tools
from csi.emitter.destination import Destination, destinations
from csi.errors import SourceError
from csi.ingester import config_file
from csi.ingester.config import Settings, SourceSettings
from csi.net import Net
from csi.store import budget, db

BUDGET_SPENT = "today's API budget is spent; polling goes on after midnight Pacific time"


@dataclass(frozen=True)
class Share:
    """How a worker's threads are shared out: slow sources leave room for delivery, and slow receivers for polls."""

    threads: int = 8

    @property
    def polls(self) -> int:
        return max(self.threads // 2, 1)

    @property
    def requests(self) -> int:
        """One thread is always left for what is quick: ingest, flush, plan."""
        return max(self.threads - self.polls - 1, 1)

    @property
    def urgent(self) -> int:
        """To one destination."""
        return max(self.threads // 4, 1)


@dataclass
class Runtime:
    """What a step of the walk may use. Time comes from `now`: rules and steps never read the clock."""

    settings: Settings
    net: Net
    now: Callable[[], float] = clock.now
    rng: random.Random = field(default_factory=random.Random)
    adapters: dict[str, SourceAdapter] = field(default_factory=dict)
    share: Share = field(default_factory=Share)

    def adapter(self, source: str) -> SourceAdapter:
        if source not in self.adapters:
            settings = self.settings.sources[source]
            self.adapters[source] = registry.create(source, settings, self._tools(settings))
        return self.adapters[source]

    def enabled_sources(self) -> list[str]:
        return [name for name, source in self.settings.sources.items() if source.enabled]

    @cached_property
    def destinations(self) -> dict[str, Destination]:
        """Where events go, by name. Collecting needs no endpoint yet: the worker refuses to start without one."""
        return destinations(self.settings)

    def _tools(self, settings: SourceSettings) -> Tools:
        limit = settings.budget_units
        return Tools(
            net=self.net,
            charge=lambda units: self._charge(units, limit),
            exhaust=lambda: budget.exhaust(limit, self.now()) if limit else None,
            secret=self._secret,
            now=self.now,
        )

    def _charge(self, units: int, limit: int | None) -> None:
        if limit is not None and not budget.book(units, limit, self.now()):
            raise SourceError(BUDGET_SPENT, kind="quota")

    def _secret(self, name: str) -> str | None:
        value = self.settings.secrets.named.get(name)
        return value.get_secret_value() if value else None


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    return config_file.load(path, env=os.environ if env is None else env, sources=registry.settings_models())


def open_runtime(path: Path | None = None, env: Mapping[str, str] | None = None, *, migrate: bool = True) -> Runtime:
    """Read the config, set up logging, open the database and bring it up to date."""
    settings = load_settings(path, env)
    logs.setup(level=settings.csi.log_level, format=settings.csi.log_format, secrets=secret_values(settings))
    db.make_private_dir(settings.csi.state_dir)
    db.open_database(settings.csi.database_url)
    if migrate:
        db.migrate()
    return Runtime(settings, Net(allow_insecure_http=settings.delivery.allow_insecure_http))


def secret_values(settings: Settings) -> list[str]:
    """Everything that must never appear in a log."""
    delivery, secrets = settings.delivery, settings.secrets
    known = [delivery.shared_secret, delivery.bearer_token, secrets.admin_token, secrets.admin_read_token]
    return [value.get_secret_value() for value in [*known, secrets.queue_secret, *secrets.named.values()] if value]
