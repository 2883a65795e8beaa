"""Step one: find the watches that are due, and make the stored watches those of the configuration."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from csi.config import loader
from csi.config.source_settings import FirstPollLast, WatchSettings
from csi.logs import log
from csi.pipeline import backpressure, clock_check, disk_guard, quota_schedule, watch_removal
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.scheduling import filters
from csi.store import held_removals, watch_admin, watches
from csi.store.db import writing

TICK_SECONDS = 60.0
FUTURE_TIMES_CHECK_SECONDS = 10.0


def sync_watches(rt: Runtime) -> None:
    """Make the stored watches those of the configuration. One that would remove more than half of them is held: they
    are polled, with the settings that their source had, until the operator accepts it (`csi config accept`)."""
    sources = {name: block for name, block in rt.settings.sources.items() if name not in rt.held_sources}
    enabled = [name for name, block in sources.items() if block.enabled]
    with writing():  # an operator changes no options between their reading and the watches' update
        changed = watches.changed_options()
        wanted = [want for source in enabled for want in configured_watches(rt, source, changed)]
        places = {(want.source, want.ref) for want in wanted}
        for row in watch_admin.added_by_command(places):
            log.info(
                "watch added by command is now configured; its configuration applies", source=row.source, watch=row.ref
            )
        now = rt.now()  # one time for all: an incident holds what was removed since it began
        removal = watch_removal.plan(watch_admin.every(), places, sources.keys() - set(enabled))
        watches.sync(wanted, now, held=removal.held)
        watch_removal.report(removal, now)
        watch_removal.close_incidents(now)
        held_removals.remember_settings({name: watch_removal.remembered(sources[name]) for name in enabled})
    rt.use_held_sources()


def keyless(rt: Runtime, found: Iterable[tuple[str, str]]) -> list[str]:
    """One sentence for each source that has watches (source, via) which need the API, and has no access to the API."""
    paid = Counter(source for source, via in found if quota_schedule.costs_units(rt, source, via))
    missing = {source: rt.adapter(source).lacks() for source in paid}
    return [
        f"sources.{source}: {count} {'watch needs' if count == 1 else 'watches need'} the API, "
        f"which is not accessible; set {missing[source]}"
        for source, count in paid.items()
        if missing[source]
    ]


def warn_keyless(rt: Runtime) -> None:
    """At start: log one line per source, instead of one line per watch when each is polled."""
    on = set(rt.enabled_sources())
    for said in keyless(rt, [(row.source, row.via) for row in watches.active() if row.source in on]):
        log.warning("watches cannot be read without access to the API", remedy=said)


def warn_unusable(rt: Runtime) -> None:
    """At start: log the sources that are not polled because their plugin cannot be used."""
    for source, why in rt.unusable_sources():
        log.error("source is not polled: its plugin cannot be used", source=source, reason=why)


def warn_wrong_ids(rt: Runtime) -> None:
    """At start: configured watches with an id that nothing can have. `csi config check` refuses them."""
    for source in rt.enabled_sources():
        for watch in rt.settings.sources[source].watches:
            if fault := loader.watch_fault(watch):
                log.warning("watch cannot be read: its id is wrong", source=source, watch=watch.ref, fault=fault)


def warn_refused_patterns(rt: Runtime) -> None:
    """At start: watches added by command whose title pattern an earlier release accepted. They are read without it."""
    rows = watches.active()
    refused = filters.refused_patterns(row.filters_json for row in rows)
    for row in rows:
        if problem := refused.get(row.filters_json):
            log.warning("title pattern is not applied", source=row.source, watch=row.ref, id=row.id, problem=problem)


def may_poll(rt: Runtime) -> bool:
    """Whether polling is allowed now. Checked again by every poll, because the disk may fill and the clock may jump
    between the moment a poll is queued and the moment it runs."""
    has_room = disk_guard.has_room(rt) and backpressure.may_read(rt)
    return rt.settings.features.polling and has_room and not clock_check.is_held(rt)


def plan(rt: Runtime, horizon: float = TICK_SECONDS) -> list[Wake]:
    """Wake-ups for the watches that are due within the horizon. A second call at the same moment returns none, because
    `plan_due` moves the wake time of what it returns."""
    if not may_poll(rt):
        return []
    now = rt.now()
    # Every FUTURE_TIMES_CHECK_SECONDS, and at once when this clock was set back, also while no worker ran.
    if not 0 <= now - rt.process.times_checked_at < FUTURE_TIMES_CHECK_SECONDS:
        rt.process.times_checked_at = now
        if reset := watches.reset_future_times(now):
            log.warning("clock was set back; due times of watches were moved", watches=reset)
    quota_schedule.look_back(rt, now)
    found = watches.plan_due(now, horizon, sources=rt.enabled_sources())
    return [Wake("poll", due.id, at=due.at if due.at > now else None) for due in found]


ChangedOptions = Mapping[tuple[str, str], Mapping[str, Any]]
"""What operators changed, as `watches.changed_options` returns it."""


def configured_watches(rt: Runtime, source: str, changed: ChangedOptions | None = None) -> list[watches.WantedWatch]:
    """A source without a list of watches is one watch, named like the source."""
    settings = rt.settings.sources[source]
    if not settings.watch_key:
        return [wanted_watch(rt, source, source, WatchSettings())]
    return [
        wanted_watch(rt, source, watch.ref, with_changes(watch, (changed or {}).get((source, watch.ref), {})))
        for watch in settings.watches
    ]


def with_changes(watch: WatchSettings, changed: Mapping[str, Any]) -> WatchSettings:
    """A configured watch with what an operator changed. Changes that do not fit the file any more are ignored."""
    if not changed:
        return watch
    given = {**watch.model_dump(mode="json", exclude_unset=True), **changed}
    try:
        return type(watch).model_validate({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        log.warning(
            "changed options of a watch do not fit its configuration; the configuration applies",
            watch=watch.ref, options=sorted(changed), reason=reason,
        )  # fmt: skip
        return watch


def wanted_watch(rt: Runtime, source: str, ref: str, watch: WatchSettings) -> watches.WantedWatch:
    """A watch with its own settings, and with those of its source for the keys that it leaves out."""
    settings, adapter = rt.settings.sources[source], rt.adapter(source)
    first = settings.first_poll if watch.first_poll is None else watch.first_poll
    via = adapter.via_of(watch)
    return watches.WantedWatch(
        source=source,
        ref=ref,
        name=watch.label,
        route_profile=watch.route_profile,
        tags=watch.tags,
        tier=settings.priority,
        interval=watch.poll_interval_seconds or settings.poll_interval_seconds,
        first_poll=first.model_dump() if isinstance(first, FirstPollLast) else first,
        filters=json.dumps(settings.filters_of(watch)),
        via=via,
        host=adapter.host(ref, via) or source,
        feed_url=adapter.feed_url(ref),
        own_interval=watch.poll_interval_seconds,
    )
