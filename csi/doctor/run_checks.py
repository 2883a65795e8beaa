"""Check the whole installation: every failure with its remedy, each outside service asked once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from csi import logs
from csi.adapters import registry
from csi.admin.watches import sync_without_worker
from csi.config.loader import read_config
from csi.config.settings import Settings
from csi.doctor import local_checks, service_checks
from csi.doctor.finding import Finding
from csi.errors import ConfigError, StoreError
from csi.pipeline import schedule
from csi.runtime import Runtime, configured_net, secret_values
from csi.status.facts import gather
from csi.store import db
from csi.store.db import DatabaseError

QueueCheck = Callable[[Settings], Iterable[Finding]]

_ON_HOST = "`csi doctor` on the host looks at it"


@dataclass(frozen=True)
class CheckOptions:
    """What a check-up may do, and what its caller provides."""

    config_path: Path | None
    env: Mapping[str, str]
    queue: QueueCheck
    sidecar_url: Callable[[Settings], str]
    online: bool = True
    """Ask the receiver, the sources and the sidecar."""
    at_work: bool = True
    """Worker, queue and rows are looked at, too; False for an installation that was never started."""


def examine(options: CheckOptions) -> Iterator[Finding]:
    """Findings as they are made: configuration and machine first, then database, services and queue."""
    try:
        loaded = read_config(options.config_path, env=options.env, sources=registry.settings_models())
    except ConfigError as error:
        remedy = "correct each line that is named, then `csi config check`; `csi init` writes a first configuration"
        yield Finding("config", "fail", str(error), remedy)
        yield Finding("everything else", "skip", "cannot be looked at without a configuration")
        return
    for secret in secret_values(loaded.settings):
        logs.register_secret(secret)
    settings = loaded.settings
    yield from local_checks.check_config(loaded)
    yield from local_checks.check_secrets(settings, options.env)
    yield from local_checks.check_state(settings)
    yield from local_checks.check_disk(settings)
    yield from local_checks.check_sqlite(settings)
    found = local_checks.check_database(loaded.settings)
    is_usable = found.level == "ok"
    if options.at_work:
        yield found
    with configured_net(loaded.settings) as net:
        rt = Runtime(loaded.settings, net)
        yield from local_checks.check_clock(rt.now())
        if is_usable:
            seen = set[Finding]()
            for one in _guarded(loaded.settings, _rows(rt, options)):
                if one not in seen:  # several checks may meet the same database error
                    yield one
                seen.add(one)
        elif options.online:
            with scratch_database(rt):
                yield from _guarded(loaded.settings, _outside(rt))
    if options.at_work:
        yield from options.queue(loaded.settings)


def examine_running(rt: Runtime, env: Mapping[str, str], *, online: bool) -> Iterator[Finding]:
    """From inside a process that serves requests: its database stays open, and watches are not synced.

    Neither the configuration file nor the queue is checked: the file is used at the next start, and this process does
    not use the queue."""
    yield Finding("config", "skip", f"this process runs with what it read at its start; the file: {_ON_HOST}")
    yield from local_checks.check_secrets(rt.settings, env)
    yield from local_checks.check_state(rt.settings)
    yield from local_checks.check_disk(rt.settings)
    yield from local_checks.check_sqlite(rt.settings)
    yield from local_checks.check_clock(rt.now())
    yield from _guarded(rt.settings, _open_rows(rt, online=online))
    yield Finding("queue", "skip", f"the product does not know its task queue: {_ON_HOST}")


def _open_rows(rt: Runtime, *, online: bool) -> Iterator[Finding]:
    yield local_checks.check_schema(rt.settings)
    yield from _outside(rt) if online else ()
    yield from _at_work(rt, online=online)


def _rows(rt: Runtime, options: CheckOptions) -> Iterator[Finding]:
    with db.reading():
        try:
            sync_without_worker(rt)
        except (StoreError, DatabaseError) as error:
            yield local_checks.database_fault(rt.settings, error)
        yield from _guarded(rt.settings, _outside(rt)) if options.online else ()
        if options.at_work:
            yield from _guarded(rt.settings, _at_work(rt, online=options.online))
            yield from service_checks.check_sidecar(rt, options.sidecar_url(rt.settings)) if options.online else ()


def _at_work(rt: Runtime, *, online: bool) -> Iterator[Finding]:
    facts = gather(rt)
    yield from service_checks.check_verdict(rt, facts, online=online)
    yield from service_checks.check_watches(rt, facts)
    yield from service_checks.check_jobs(rt)


def _outside(rt: Runtime) -> Iterator[Finding]:
    yield from service_checks.check_receivers(rt)
    yield from service_checks.check_api(rt)
    yield from service_checks.check_sources(rt)


def _guarded(settings: Settings, findings: Iterator[Finding]) -> Iterator[Finding]:
    """A database error during the checks becomes a finding."""
    try:
        yield from findings
    except (StoreError, DatabaseError) as error:
        yield local_checks.database_fault(settings, error)


@contextmanager
def scratch_database(rt: Runtime) -> Iterator[None]:
    """A temporary database, where the real one cannot be used: the checks write rows."""
    with TemporaryDirectory(prefix="csi-doctor-") as home:
        db.open_database(f"{home}/csi.db")
        db.migrate()
        with db.reading():
            schedule.sync_watches(rt)
            yield
