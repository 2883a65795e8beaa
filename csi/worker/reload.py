"""A new configuration for a running worker: checked first, then taken whole, or refused with the old one in place."""

from collections.abc import Callable
from dataclasses import replace

from csi import logs
from csi.config import loader
from csi.config.settings import Settings
from csi.errors import CsiError
from csi.logs import log, redact
from csi.pipeline import quota_schedule, receiver_test, schedule
from csi.runtime import Runtime, load_settings, secret_values
from csi.store import api_refusals, backups, counters, reload_results
from csi.store.db import writing
from csi.worker import alerting

FIXED = (
    "csi.state_dir",
    "csi.database",
    "csi.queue",
    "delivery.allow_insecure_http",
    "web.host",
    "web.port",
    "web.allowed_hosts",
    "web.trusted_proxies",
    "features.admin_api",
)
"""What a running process cannot change: where its files and queue are, and what belongs to the sidecar."""


def reload(rt: Runtime, load: Callable[[], Settings] = load_settings) -> Runtime:
    """The runtime to go on with: a new one, or the old one where the new configuration is not good."""
    try:
        wanted = load()
        loader.require_delivery(wanted)
        fresh = renewed(rt, wanted)
        fresh.use_managed_destinations()
        alerting.check_targets(fresh)
        schedule.sync_watches(fresh)
        quota_schedule.wake_throttled(fresh)
    except CsiError as error:
        reason = redact(str(error))
        with writing():
            _note_in_force(rt, reason)
            counters.add("config_reloads", label="refused")
        log.error("configuration could not be reloaded; the old one stays", error=reason)
        return rt
    if rt.net.guard is not None:
        rt.net.guard.allow(fresh.settings.net.allowed_private_hosts)
    _accept(fresh, changed_fixed(rt.settings, wanted))
    return fresh


def renewed(rt: Runtime, wanted: Settings) -> Runtime:
    """The same process with other settings."""
    return Runtime(
        settings=keep_fixed(rt.settings, wanted),
        net=rt.net,
        now=rt.now,
        steady=rt.steady,
        clock_trust=rt.clock_trust,
        rng=rt.rng,
        share=rt.share,
        stopping=rt.stopping,
        process=replace(rt.process, activity_counted_at=None),
    )


def changed_fixed(old: Settings, new: Settings) -> list[str]:
    """The keys that differ and need a restart."""
    return [key for key in FIXED if _value(old, key) != _value(new, key)]


def keep_fixed(old: Settings, new: Settings) -> Settings:
    """The new settings, with the old values where only a restart can bring the new ones."""
    for key in changed_fixed(old, new):
        block, _, name = key.partition(".")
        held = getattr(new, block).model_copy(update={name: _value(old, key)})
        new = new.model_copy(update={block: held})
    return new


def note_start(rt: Runtime) -> None:
    """A process that starts has taken its configuration: what was refused before is over. Receivers are tested, and
    backups are expected from the first start on."""
    with writing():
        _note_in_force(rt)
        api_refusals.forget()
        backups.note_expected(rt.now())
    receiver_test.request_all(rt)


def _note_in_force(rt: Runtime, error: str | None = None) -> None:
    features = rt.settings.features.model_dump()
    reload_results.note(rt.now(), error, sources=rt.enabled_sources(), features=features)


def _value(settings: Settings, key: str) -> object:
    block, _, name = key.partition(".")
    return getattr(getattr(settings, block), name)


def _accept(fresh: Runtime, fixed: list[str]) -> None:
    settings = fresh.settings
    logs.setup(level=settings.csi.log_level, format=settings.csi.log_format, secrets=secret_values(settings))
    with writing():
        _note_in_force(fresh)
        api_refusals.forget()
        counters.add("config_reloads", label="loaded")
    receiver_test.request_all(fresh)
    log.info("configuration is reloaded")
    if fixed:
        log.warning("some settings need a restart; they stay as they were", keys=", ".join(fixed))
    if (needed := fresh.streaming_threads()) > fresh.share.streaming:
        log.warning(
            "max_concurrent_events needs more threads: restart the worker", needed=needed, threads=fresh.share.streaming
        )
    schedule.warn_wrong_ids(fresh)
    quota_schedule.warn_infeasible(fresh)
