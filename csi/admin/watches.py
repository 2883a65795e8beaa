"""What a person does to watches: add, remove, pause, resume, reset, read now, import, export. For CLI and admin API."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from csi.adapters.youtube.api import ApiSettings, DataApi
from csi.adapters.youtube.lookup import ChannelMatch, find_channel
from csi.adapters.youtube.references import FREE_FORMS, Reference, UnknownReference, parse_reference
from csi.admin import channel_lists
from csi.config.problems import models_in, unknown_name
from csi.config.settings import FirstPollLast, SourceSettings, WatchSettings
from csi.errors import CsiError
from csi.logs import log
from csi.pipeline import quota_schedule
from csi.pipeline.ingest import ingest
from csi.pipeline.poll import poll
from csi.pipeline.schedule import sync_watches
from csi.runtime import Runtime
from csi.scheduling import filters
from csi.status.worker import worker_status
from csi.store import api_units, watch_admin, watches
from csi.store.models import Watch

PLAYLISTS, CHANNELS = "youtube_playlist", "youtube_channel_rss"
PAGE = {PLAYLISTS: "https://www.youtube.com/playlist?list={ref}", CHANNELS: "https://www.youtube.com/channel/{ref}"}
FEED = "https://www.youtube.com/feeds/videos.xml?{name}={ref}"
_FEED_NAMES = {PLAYLISTS: "playlist_id", CHANNELS: "channel_id"}


class WatchRefused(CsiError):
    """A wish that cannot be fulfilled, and what to do instead."""


@dataclass(frozen=True)
class WatchOptions:
    """How a new watch should be; None: as its source has it. Keys are those of a watch in the configuration."""

    options: Mapping[str, Any]

    @property
    def name(self) -> str | None:
        return self.options.get("name")


@dataclass(frozen=True)
class WatchTarget:
    """A thing that can be watched, and what it took to find it."""

    source: str
    ref: str
    title: str | None = None
    units: int = 0
    remark: str | None = None


@dataclass(frozen=True)
class AddWatchResult:
    """What became of the wish to watch something."""

    result: Literal["added", "known"]
    target: WatchTarget
    watch_id: int | None
    name: str | None
    first_poll: Any
    quote: quota_schedule.Quote
    remark: str | None = None


@dataclass(frozen=True)
class PollNowResult:
    """What came of one read. `error` None and neither busy nor held: it was read."""

    ref: str
    new_items: int = 0
    is_busy: bool = False
    error: str | None = None
    units: int = 0


@dataclass(frozen=True)
class ImportLineResult:
    """What became of one line of a file."""

    line: int
    text: str
    result: Literal["added", "known", "invalid"]
    ref: str | None = None
    name: str | None = None
    error: str | None = None


# ── which watch is meant ────────────────────────────────────────────────────────────────────────────────


def sync_without_worker(rt: Runtime) -> None:
    """The worker keeps the watches in step with its configuration; only where none is alive does a command."""
    if not worker_status(rt).is_alive:
        sync_watches(rt)


def find_watch(rt: Runtime, text: str) -> Watch:
    """By number, ref, name or URL. SourcesError when it is none, or more than one."""
    found = watch_admin.matching(text) or watch_admin.matching(reference_value(rt, text))
    if not found:
        raise WatchRefused(f"there is no watch {text[:80]!r}; `csi sources list` shows them all")
    if len(found) > 1:
        numbers = ", ".join(str(watch.id) for watch in found)
        raise WatchRefused(f"{text[:80]!r} is the name of {len(found)} watches; say which by its number: {numbers}")
    return found[0]


def reference_value(rt: Runtime, text: str) -> str:
    """The id or name that a URL holds. Empty: none."""
    try:
        return parse_reference(text, _stand_ins(rt)).value
    except UnknownReference:
        return ""


# ── add ─────────────────────────────────────────────────────────────────────────────────────────────────


def add(rt: Runtime, text: str, wish: WatchOptions, *, dry_run: bool = False) -> AddWatchResult:
    """Watch what the text names. A look-up of a handle, name or video costs a unit, in a dry run, too."""
    return watch_target(rt, target_of(rt, text), wish, dry_run=dry_run)


def target_of(rt: Runtime, text: str) -> WatchTarget:
    """What the text names. A look-up of a handle, name or video costs a unit."""
    return resolve(rt, parse_reference(text, _stand_ins(rt)))


def resolve(rt: Runtime, reference: Reference) -> WatchTarget:
    """The source and ref of a reference; those that are not ids are looked up through the API."""
    if reference.is_ready:
        return WatchTarget(PLAYLISTS if reference.kind == "playlist" else CHANNELS, reference.value)
    found = _look_up(rt, reference)
    if found is None:
        raise WatchRefused(f"YouTube knows no {reference.kind} {reference.value!r}")
    remark = None
    if reference.kind == "custom":
        remark = f"a /c/ name cannot be looked up; the handle @{reference.value} was taken instead: is it the one?"
    return WatchTarget(CHANNELS, found.channel_id, found.title, found.units, remark)


def watch_target(rt: Runtime, target: WatchTarget, wish: WatchOptions, *, dry_run: bool = False) -> AddWatchResult:
    settings = _source_settings(rt, target.source)
    watch = _checked(rt, settings, target, wish)
    new = _new_watch(rt, target, settings, watch)
    quote = quota_schedule.quote(rt, target.source, new.interval, new.via, rt.now())
    found = watch_admin.find(target.source, target.ref)
    if found is not None and found.state != "removed":
        return AddWatchResult("known", target, found.id, found.name, None, quote, _known_remark(found))
    watch_id = None if dry_run else watch_admin.add(new, rt.now())
    if watch_id is not None:
        log.info("watch added by command", source=new.source, watch=new.ref, id=watch_id)
    return AddWatchResult("added", target, watch_id, new.name, new.first_poll, quote, target.remark)


def _look_up(rt: Runtime, reference: Reference) -> ChannelMatch | None:
    api = _api(rt)
    if api is None:
        raise WatchRefused(
            f"finding a channel by its {_noun(reference)} needs an API key (YOUTUBE_API_KEY, one unit); "
            f"without one, give {FREE_FORMS}"
        )
    return find_channel(api, reference.kind, reference.value)


def _noun(reference: Reference) -> str:
    return {"video": "video", "handle": "handle"}.get(reference.kind, "name")


def _api(rt: Runtime) -> DataApi | None:
    """The first source that has a key; None: none has."""
    for name, settings in rt.settings.sources.items():
        if isinstance(settings, ApiSettings):
            api = DataApi(settings, rt.adapter(name).tools)
            if api.usable:
                return api
    return None


def _source_settings(rt: Runtime, source: str) -> SourceSettings:
    settings = rt.settings.sources.get(source)
    if settings is None:
        raise WatchRefused(
            f"sources.{source} is not in the configuration; add `{source}: {{enabled: true}}` and restart the worker"
        )
    if not settings.enabled:
        raise WatchRefused(f"sources.{source} is switched off; set enabled: true and restart the worker")
    return settings


def _checked(rt: Runtime, settings: SourceSettings, target: WatchTarget, wish: WatchOptions) -> WatchSettings:
    """The wish as a watch of the configuration would be: the same checks, the same words."""
    model = _watch_model(settings)
    key = next(name for name, field in model.model_fields.items() if field.is_required())
    options = {name: value for name, value in wish.options.items() if value is not None}
    foreign = sorted(set(options) - set(model.model_fields))
    if foreign:
        raise WatchRefused(f"{foreign[0]} does not apply to {target.source}")
    try:
        watch = model.model_validate({"name": target.title, **options, key: target.ref})
    except ValidationError as error:
        raise WatchRefused(_first_fault(error)) from error
    if watch.route_profile is not None and watch.route_profile not in rt.settings.route_profiles:
        known = rt.settings.route_profiles
        raise WatchRefused(unknown_name(f"route profile {watch.route_profile[:40]!r}", watch.route_profile, known))
    return watch


def _watch_model(settings: SourceSettings) -> type[WatchSettings]:
    field = type(settings).model_fields[str(settings.watch_key)]
    model = next(models_in(field.annotation))
    assert issubclass(model, WatchSettings)
    return model


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    reason = str(fault.get("ctx", {}).get("error", "")) or fault["msg"]
    return f"{'.'.join(str(part) for part in fault['loc'][:1])}: {reason}"


def _new_watch(
    rt: Runtime, target: WatchTarget, settings: SourceSettings, watch: WatchSettings
) -> watch_admin.NewWatch:
    adapter = rt.adapter(target.source)
    first = settings.first_poll if watch.first_poll is None else watch.first_poll
    via = adapter.via_of(watch)
    return watch_admin.NewWatch(
        source=target.source,
        ref=target.ref,
        tier=settings.priority,
        interval=watch.poll_interval_seconds or settings.poll_interval_seconds,
        first_poll=first.model_dump() if isinstance(first, FirstPollLast) else first,
        name=watch.label,
        route_profile=watch.route_profile,
        tags=watch.tags,
        filters=json.dumps(settings.filters_of(watch)),
        via=via,
        host=adapter.host(target.ref, via) or target.source,
        feed_url=adapter.feed_url(target.ref),
    )


def _known_remark(found: Watch) -> str:
    where = "it is in the configuration" if found.origin == "config" else "it was added by command"
    paused = ", paused" if found.state == "paused" else ""
    return f"already watched: {where} (number {found.id}{paused}); nothing changed"


def _stand_ins(rt: Runtime) -> list[str]:
    """Hosts that the configuration reads instead of YouTube's."""
    settings = rt.settings.sources.get(CHANNELS)
    address = urlsplit(getattr(settings, "feed_url_template", "")).hostname
    return [address] if address else []


# ── pause, resume, remove, reset, poll ──────────────────────────────────────────────────────────────────


def pause(rt: Runtime, watch: Watch, *, dry_run: bool = False) -> bool:
    """False: it was paused already."""
    return watch.state == "active" if dry_run else watch_admin.pause(watch.id)


def resume(rt: Runtime, watch: Watch, *, dry_run: bool = False) -> bool:
    """False: it was not paused."""
    return watch.state == "paused" if dry_run else watch_admin.resume(watch.id, rt.now())


def remove(rt: Runtime, watch: Watch, *, dry_run: bool = False) -> None:
    """Only what was added by command: the configuration is the person's own and is never rewritten."""
    if watch.origin == "config":
        key = rt.settings.sources[watch.source].watch_key if watch.source in rt.settings.sources else "watches"
        raise WatchRefused(
            f"{watch.ref} is in the configuration; take it out of sources.{watch.source}.{key} there and restart the "
            "worker, or `csi sources pause` it"
        )
    if not dry_run:
        watch_admin.remove(watch.id)
        log.info("watch removed by command", source=watch.source, watch=watch.ref, id=watch.id)


def reset(rt: Runtime, watch: Watch, emit: Literal["all", "none"], *, dry_run: bool = False) -> None:
    """Forget the baseline: the next read is a first one, and emits all that never became an event, or nothing."""
    if not dry_run:
        watch_admin.reset(watch.id, "all" if emit == "all" else "mark_seen", rt.now())
        log.info("watch reset by command", source=watch.source, watch=watch.ref, id=watch.id, emit=emit)


def poll_now(rt: Runtime, watch: Watch) -> PollNowResult:
    """Read it in this process, and store what is new; the worker sends it."""
    if watch.state == "paused":
        return PollNowResult(watch.ref, error="it is paused; `csi sources resume` it first")
    before = api_units.used(rt.now())
    wakes = [wake for wake in poll(rt, watch.id, early=True) if wake.step == "ingest"]
    for wake in wakes:
        ingest(rt, int(wake.key))
    spent = max(api_units.used(rt.now()) - before, 0)
    return replace(_polled(watch, watches.find(watch.id), len(wakes)), units=spent)


def _polled(before: Watch, after: Watch | None, new_items: int) -> PollNowResult:
    """A poll that was not ours to make has left no time of its own."""
    if new_items:
        return PollNowResult(before.ref, new_items)
    if after is None or after.lease_token is not None or after.last_poll_at == before.last_poll_at:
        return PollNowResult(before.ref, is_busy=True)
    return PollNowResult(before.ref, error=after.last_error)


# ── lists from elsewhere and for elsewhere ──────────────────────────────────────────────────────────────


def import_list(rt: Runtime, content: bytes, wish: WatchOptions, *, dry_run: bool = False) -> list[ImportLineResult]:
    """Add every entry of an OPML, CSV or plain list; one that cannot be added does not stop the others."""
    seen: set[str] = set()
    return [_import_entry(rt, entry, wish, seen, dry_run) for entry in channel_lists.read_list(content, _stand_ins(rt))]


def _import_entry(
    rt: Runtime, entry: channel_lists.ChannelListEntry, wish: WatchOptions, seen: set[str], dry_run: bool
) -> ImportLineResult:
    if entry.reference is None:
        return ImportLineResult(entry.line, entry.text, "invalid", error=entry.error)
    if dry_run and not entry.reference.is_ready:
        return ImportLineResult(
            entry.line, entry.text, "added", name=entry.name, error="not looked up yet: that costs a unit"
        )
    try:
        target = resolve(rt, entry.reference)
        if target.ref in seen:
            return ImportLineResult(entry.line, entry.text, "known", target.ref, entry.name, "in the file twice")
        seen.add(target.ref)
        named = WatchOptions({**wish.options, "name": wish.name or entry.name})
        added = watch_target(rt, target, named, dry_run=dry_run)
    except CsiError as error:
        return ImportLineResult(entry.line, entry.text, "invalid", error=str(error))
    return ImportLineResult(entry.line, entry.text, added.result, added.target.ref, added.name, added.remark)


def export_list(rt: Runtime) -> str:
    """Every watch that is still there, as OPML."""
    rows = [row for row in watch_admin.every() if row.source in PAGE]
    named = [(row.name or row.ref, feed_url(row), page_url(row) or "") for row in rows]
    return channel_lists.write_opml(named, "CSI watches")


def feed_url(watch: Watch) -> str:
    return FEED.format(name=_FEED_NAMES[watch.source], ref=watch.ref)


def page_url(watch: Watch) -> str | None:
    return PAGE[watch.source].format(ref=watch.ref) if watch.source in PAGE else None


# ── what is there ───────────────────────────────────────────────────────────────────────────────────────


def notes_of(rows: Sequence[Watch]) -> dict[int, str]:
    """By number: what the worker noted of a watch, and a title pattern that is not applied."""
    refused = filters.refused_patterns({row.filters_json for row in rows})
    faults = {text: f"title pattern is not applied: {why}" for text, why in refused.items()}
    notes = {row.id: "; ".join(filter(None, (row.note, faults.get(row.filters_json)))) for row in rows}
    return {number: note for number, note in notes.items() if note}
