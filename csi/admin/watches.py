"""Operator actions on watches, for CLI and admin API: add, pause, resume, remove, reset, poll, import, export."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import ValidationError

from csi.adapters import reddit_subreddit
from csi.adapters.youtube import page_lookup
from csi.adapters.youtube.api import ApiSettings, DataApi
from csi.adapters.youtube.references import FREE_FORMS, Reference, UnknownReference, is_youtube_address, parse_reference
from csi.admin import channel_lists
from csi.config.problems import models_in, unknown_name
from csi.config.source_settings import SourceSettings, WatchSettings
from csi.errors import CsiError, SourceError
from csi.logs import log
from csi.pipeline import quota_schedule, schedule
from csi.pipeline.ingest import ingest
from csi.pipeline.poll import poll_early
from csi.runtime import Runtime
from csi.scheduling import filters
from csi.status import host_pace
from csi.status.worker import worker_status
from csi.store import api_units, held_removals, subscriptions, watch_admin, watches
from csi.store.db import writing
from csi.store.held_removals import LostWatch, names
from csi.store.models import Watch

PLAYLISTS, CHANNELS, FEEDS = "youtube_playlist", "youtube_channel_rss", "feed"
SUBREDDITS = "reddit_subreddit"
PAGE = {PLAYLISTS: "https://www.youtube.com/playlist?list={ref}", CHANNELS: "https://www.youtube.com/channel/{ref}"}
FEED = "https://www.youtube.com/feeds/videos.xml?{name}={ref}"
_FEED_NAMES = {PLAYLISTS: "playlist_id", CHANNELS: "channel_id"}


WatchOptions = dict[str, Any]
"""Options of a new watch, by the keys of a configured watch. None means the source's default."""


class WatchRefused(CsiError):
    """The request cannot be fulfilled; the text says why and what to do."""


@dataclass(frozen=True)
class WatchTarget:
    """A channel or playlist that can be watched, and the API units spent to find it."""

    source: str
    ref: str
    title: str | None = None
    units: int = 0
    remark: str | None = None


@dataclass(frozen=True)
class AddWatchResult:
    """The result of adding a watch."""

    result: Literal["added", "known"]
    target: WatchTarget
    watch_id: int | None
    name: str | None
    first_poll: Any
    quote: quota_schedule.Quote
    remark: str | None = None


@dataclass(frozen=True)
class PollNowResult:
    """The result of one poll by command. It succeeded when `error` is None and `is_busy` is False."""

    ref: str
    new_items: int = 0
    is_busy: bool = False
    error: str | None = None
    units: int = 0
    waits_until: float | None = None
    """The pace of its host allows the read then: the worker reads it."""


@dataclass(frozen=True)
class ImportLineResult:
    """The result of one line of an imported file."""

    line: int
    text: str
    result: Literal["added", "known", "invalid"]
    ref: str | None = None
    name: str | None = None
    error: str | None = None


# ── follow the configuration ────────────────────────────────────────────────────────────────────────────


def accept_removal(rt: Runtime, *, dry_run: bool = False) -> tuple[LostWatch, ...]:
    """Remove the watches that the configuration no longer has and that are held for that reason. Returns them."""
    with writing():
        held = held_removals.current().watches
        if held and not dry_run:
            held_removals.accept(held, rt.now())
            log.warning("removal of watches accepted by the operator", watches=len(held), names=names(held))
    return held


# ── find ────────────────────────────────────────────────────────────────────────────────────────────────


def sync_without_worker(rt: Runtime) -> None:
    """Sync the watches with the configuration, unless a worker is alive: it does that with its own configuration."""
    if not worker_status(rt).is_alive:
        schedule.sync_watches(rt)


def find_watch(rt: Runtime, text: str) -> Watch:
    """By number, ref, name or URL. WatchRefused when none or several match."""
    found = watch_admin.matching(text) or watch_admin.matching(reference_value(rt, text))
    if not found:
        raise WatchRefused(f"there is no watch {text[:80]!r}; see `csi sources list`")
    if len(found) > 1:
        numbers = ", ".join(str(watch.id) for watch in found)
        raise WatchRefused(f"{text[:80]!r} is the name of {len(found)} watches; give the number: {numbers}")
    return found[0]


def reference_value(rt: Runtime, text: str) -> str:
    """The id or name in a URL, or an empty string."""
    try:
        return parse_reference(text, replacement_hosts(rt)).value
    except UnknownReference:
        return ""


# ── add ─────────────────────────────────────────────────────────────────────────────────────────────────


def add(
    rt: Runtime, text: str, options: WatchOptions, *, source: str | None = None, dry_run: bool = False
) -> AddWatchResult:
    """Watch what the text names. Looking up a handle, name or video costs one API unit, also in a dry run."""
    return watch_target(rt, target_of(rt, text, source), options, dry_run=dry_run)


def target_of(rt: Runtime, text: str, source: str | None = None) -> WatchTarget:
    """What the text names. Looking up a handle, name or video costs one API unit if there is a key; a URL that is not
    YouTube's is offered to each source in turn, which may read it. `source`: only this source is asked."""
    if source is not None and source not in rt.settings.sources:
        raise WatchRefused(unknown_name(f"source {source[:40]!r}", source, rt.settings.sources))
    if source in (None, PLAYLISTS, CHANNELS):
        try:
            return resolve(rt, parse_reference(text, replacement_hosts(rt)))
        except UnknownReference:
            if is_youtube_address(text) or source is not None:
                raise
    names = [source] if source else sorted(rt.enabled_sources(), key=lambda name: (name == FEEDS, name))
    for name in names:
        if target := _discovered(rt, name, text.strip()):
            return target
    if source is None and reddit_subreddit.reference(text):
        _enabled_source(rt, SUBREDDITS)  # raises: the other sources do not know subreddits
    if source is None:
        if text.strip().lower().startswith(("http://", "https://")):
            _enabled_source(rt, FEEDS)  # raises: no other source knows this address
        parse_reference(text, replacement_hosts(rt))  # raises: says what is accepted
    raise WatchRefused(f"{text.strip()[:80]!r} names nothing that sources.{source} can watch")


def _discovered(rt: Runtime, source: str, text: str) -> WatchTarget | None:
    if watch_admin.find(source, text) is not None:
        return WatchTarget(source, text)
    try:
        found = rt.adapter(source).discover(text)
    except SourceError as error:
        remedy = "" if error.kind == "malformed" else "; check the address in a browser"
        raise WatchRefused(f"{error}{remedy}") from error
    return None if found is None else WatchTarget(source, found.ref, found.title, remark=found.remark)


def resolve(rt: Runtime, reference: Reference) -> WatchTarget:
    """The source and ref of a reference. A handle, name or video is looked up through the API, or on YouTube's
    page where the API cannot be used."""
    if reference.is_ready:
        return WatchTarget(PLAYLISTS if reference.kind == "playlist" else CHANNELS, reference.value)
    found = _ask_api(rt, reference) or _read_page(rt, reference)
    if found is None:
        raise WatchRefused(f"YouTube has no {reference.kind} {reference.value!r}")
    return found


def _ask_api(rt: Runtime, reference: Reference) -> WatchTarget | None:
    """None: the API cannot be used now, or does not know it; YouTube's page is read then."""
    sources = [(name, one) for name, one in rt.settings.sources.items() if isinstance(one, ApiSettings)]
    apis = (DataApi(settings, rt.adapter(name).tools) for name, settings in sources)
    api = next((api for api in apis if api.usable), None)
    if api is None:
        return None
    try:
        found = api.find_channel(reference.kind, reference.value)
    except SourceError as error:
        log.info("channel is not looked up through the API", error=str(error), kind=error.kind)
        return None
    if found is None:
        raise WatchRefused(f"YouTube has no {reference.kind} {reference.value!r}")
    remark = None
    if reference.kind == "custom":
        remark = f"a /c/ name cannot be looked up; the handle @{reference.value} was used instead: check the channel"
    channel_id, title = found
    return WatchTarget(CHANNELS, channel_id, title, 1, remark)


def _read_page(rt: Runtime, reference: Reference) -> WatchTarget | None:
    settings = _enabled_source(rt, CHANNELS)
    base = page_lookup.page_base(getattr(settings, "feed_url_template", page_lookup.YOUTUBE))
    try:
        found = page_lookup.find_channel(rt.net, reference, base)
    except SourceError as error:
        raise WatchRefused(f"{error}; give {FREE_FORMS}, or set an API key (YOUTUBE_API_KEY)") from error
    return None if found is None else WatchTarget(CHANNELS, found.id, found.title)


def _enabled_source(rt: Runtime, name: str) -> SourceSettings:
    settings = rt.settings.sources.get(name)
    if settings is None:
        raise WatchRefused(
            f"sources.{name} is not in the configuration; add `{name}: {{enabled: true}}` and restart the worker"
        )
    if not settings.enabled:
        raise WatchRefused(f"sources.{name} is disabled; set enabled: true and restart the worker")
    return settings


def watch_target(rt: Runtime, target: WatchTarget, options: WatchOptions, *, dry_run: bool = False) -> AddWatchResult:
    """Store a watch, or return the existing one as `known`. WatchRefused when the options are invalid."""
    settings = _enabled_source(rt, target.source)
    if settings.watch_key is None:
        raise WatchRefused(f"sources.{target.source} has no list of watches; it is configured as a whole")
    checked = validated_options(rt, target, options)
    new = schedule.wanted_watch(rt, target.source, target.ref, checked)
    quote = quota_schedule.quote(rt, target.source, new.interval, new.via, rt.now())
    found = watch_admin.find(target.source, target.ref)
    if found is not None and found.state != "removed":
        where = "in the configuration" if found.origin == "config" else "added by command"
        paused = ", paused" if found.state == "paused" else ""
        remark = f"already watched: {where} (number {found.id}{paused}); nothing changed"
        return AddWatchResult("known", target, found.id, found.name, None, quote, remark)
    plain = checked.model_dump(mode="json", exclude_none=True)
    kept = json.dumps({key: plain[key] for key, value in options.items() if value is not None})
    watch_id, plan = None if dry_run else watch_admin.add(new, rt.now(), kept), target.remark
    if watch_id is not None:
        log.info("watch added by the operator", source=new.source, watch=new.ref, id=watch_id)
    if target.source == host_pace.REDDIT:
        plan = f"with it, {host_pace.reddit_sentence(rt, extra=int(dry_run))}"
    return AddWatchResult("added", target, watch_id, new.name, new.first_poll, quote, plan)


def watch_model(settings: SourceSettings) -> type[WatchSettings]:
    """The model of one watch of a source that has a list of them."""
    model = next(models_in(type(settings).model_fields[str(settings.watch_key)].annotation))
    assert issubclass(model, WatchSettings)
    return model


def validated_options(rt: Runtime, target: WatchTarget, options: WatchOptions) -> WatchSettings:
    """Validate the options with the model of a configured watch: the same rules and the same messages."""
    model = watch_model(_enabled_source(rt, target.source))
    key = next(name for name, field in model.model_fields.items() if field.is_required())
    given = {name: value for name, value in options.items() if value is not None}
    foreign = sorted(set(given) - set(model.model_fields))
    if foreign:
        raise WatchRefused(f"{foreign[0]} does not apply to {target.source}")
    try:
        watch = model.model_validate({"name": target.title, **given, key: target.ref})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        reason = str(fault.get("ctx", {}).get("error", "")) or fault["msg"]
        raise WatchRefused(f"{'.'.join(str(part) for part in fault['loc'][:1])}: {reason}") from error
    if watch.route_profile is not None and watch.route_profile not in rt.settings.route_profiles:
        known = rt.settings.route_profiles
        raise WatchRefused(unknown_name(f"route profile {watch.route_profile[:40]!r}", watch.route_profile, known))
    return watch


def replacement_hosts(rt: Runtime) -> list[str]:
    """Hosts, with their ports, that the configuration uses instead of YouTube's, such as a simulator."""
    settings = rt.settings.sources.get(CHANNELS)
    address = urlsplit(getattr(settings, "feed_url_template", "")).netloc.lower()
    return [address] if address else []


# ── pause, resume, remove, reset, poll ──────────────────────────────────────────────────────────────────


def pause(rt: Runtime, watch: Watch, *, dry_run: bool = False) -> bool:
    """False when it was already paused."""
    return watch.state == "active" if dry_run else watch_admin.pause(watch.id)


def resume(rt: Runtime, watch: Watch, *, dry_run: bool = False) -> bool:
    """False when it was not paused."""
    return watch.state == "paused" if dry_run else watch_admin.resume(watch.id, rt.now())


def remove(rt: Runtime, watch: Watch, *, dry_run: bool = False) -> None:
    """Remove a watch that was added by command. WatchRefused for a configured one: the file is never rewritten."""
    if watch.removal_held_at is not None:
        raise WatchRefused(f"{watch.ref} is no longer in the configuration; `csi config accept` removes it")
    if watch.origin == "config":
        key = rt.settings.sources[watch.source].watch_key if watch.source in rt.settings.sources else "watches"
        raise WatchRefused(
            f"{watch.ref} is in the configuration; delete it from sources.{watch.source}.{key} and restart the worker, "
            "or use `csi sources pause`"
        )
    if not dry_run:
        watch_admin.remove(watch.id)
        log.info("watch removed by the operator", source=watch.source, watch=watch.ref, id=watch.id)


def reset(rt: Runtime, watch: Watch, emit: Literal["all", "none"], *, dry_run: bool = False) -> None:
    """Delete the baseline: the next poll is a first poll, and emits all items that never became events, or none."""
    if not dry_run:
        watch_admin.reset(watch.id, "all" if emit == "all" else "mark_seen", rt.now())
        log.info("watch reset by the operator", source=watch.source, watch=watch.ref, id=watch.id, emit=emit)


def poll_now(rt: Runtime, watch: Watch) -> PollNowResult:
    """Poll the watch in this process and store new items; the worker delivers them."""
    if watch.state == "paused":
        return PollNowResult(watch.ref, error="it is paused; run `csi sources resume` first")
    before = api_units.used(rt.now())
    wakes = [wake for wake in poll_early(rt, watch.id) if wake.step == "ingest" and wake.at is None]
    for wake in wakes:
        ingest(rt, int(wake.key))
    units = max(api_units.used(rt.now()) - before, 0)
    if wakes:
        return PollNowResult(watch.ref, len(wakes), units=units)
    after = watches.find(watch.id)
    if after is not None and after.slot_at is not None and after.slot_at > rt.now():
        return PollNowResult(watch.ref, units=units, waits_until=after.slot_at)
    # No new poll time: another process holds the lease, or the host is paused.
    if after is None or after.lease_token is not None or after.last_poll_at == watch.last_poll_at:
        return PollNowResult(watch.ref, is_busy=True, units=units)
    return PollNowResult(watch.ref, error=after.last_error, units=units)


# ── import and export ──────────────────────────────────────────────────────────────────────────────────


def import_list(rt: Runtime, content: bytes, options: WatchOptions, *, dry_run: bool = False) -> list[ImportLineResult]:
    """Add every entry of an OPML, CSV or plain list; an invalid entry does not stop the others."""
    entries, seen = channel_lists.read_list(content, replacement_hosts(rt)), set[str]()
    return [_import_entry(rt, entry, options, seen, dry_run=dry_run) for entry in entries]


def _import_entry(
    rt: Runtime, entry: channel_lists.ChannelListEntry, options: WatchOptions, seen: set[str], *, dry_run: bool
) -> ImportLineResult:
    result = partial(ImportLineResult, entry.line, entry.text)
    if entry.exported is None and entry.reference is None:
        return result("invalid", error=entry.error)
    if entry.exported is None and entry.reference is not None and dry_run and not entry.reference.is_ready:
        return result("added", name=entry.name, error="not looked up in a dry run: that costs a unit")
    try:
        kept = WatchOptions({})
        if entry.exported is not None:
            source, ref, kept = entry.exported
            if source not in rt.settings.sources:
                raise WatchRefused(unknown_name(f"source {source[:40]!r}", source, rt.settings.sources))
            target = WatchTarget(source, ref)
        else:
            assert entry.reference is not None
            target = resolve(rt, entry.reference)
        if target.ref in seen:
            return result("known", target.ref, entry.name, "in the file twice")
        seen.add(target.ref)
        given = {key: value for key, value in options.items() if value is not None}
        named = WatchOptions({"name": entry.name, **kept, **given})
        added = watch_target(rt, target, named, dry_run=dry_run)
    except CsiError as error:
        return result("invalid", error=str(error))
    return result(added.result, added.target.ref, added.name, added.remark)


def export_list(rt: Runtime, options_of: Callable[[Watch], WatchOptions] | None = None) -> str:
    """Every watch with a feed that is not removed, as OPML. With `options_of`, the options of each are in attributes
    that feed readers ignore and `import_list` reads."""
    rows = [(row, feed_url(rt, row)) for row in watch_admin.every()]
    named = [
        (
            row.name or row.ref,
            address,
            page_url(row) or "",
            (row.source, row.ref, options_of(row)) if options_of else None,
        )
        for row, address in rows
        if address
    ]
    return channel_lists.write_opml(named, "CSI watches")


def feed_url(rt: Runtime, watch: Watch) -> str | None:
    if watch.source in _FEED_NAMES:
        return FEED.format(name=_FEED_NAMES[watch.source], ref=watch.ref)
    return rt.adapter(watch.source).feed_url(watch.ref) if watch.source in rt.enabled_sources() else None


def page_url(watch: Watch) -> str | None:
    return PAGE[watch.source].format(ref=watch.ref) if watch.source in PAGE else None


# ── notes ───────────────────────────────────────────────────────────────────────────────────────────────


class NotedWatch(Protocol):
    """The columns of a watch that its notes are made of."""

    @property
    def id(self) -> int: ...
    @property
    def note(self) -> str | None: ...
    @property
    def filters_json(self) -> str: ...


def notes_of(rows: Sequence[NotedWatch]) -> dict[int, str]:
    """By watch id: the worker's note, a title pattern that is not applied, and what is wrong with its push."""
    refused = filters.refused_patterns({row.filters_json for row in rows})
    faults = {text: f"title pattern is not applied: {why}" for text, why in refused.items()}
    pushes = {one.watch_id: f"push: {one.last_error}" for one in subscriptions.every() if one.last_error}
    notes = {
        row.id: "; ".join(filter(None, (row.note, faults.get(row.filters_json), pushes.get(row.id)))) for row in rows
    }
    return {number: note for number, note in notes.items() if note}
