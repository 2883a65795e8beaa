"""Operator actions on channels, for the CLI and the admin API: register, pause, resume, set priority, backfill."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from csi.adapters.youtube.api import BATCH
from csi.admin import channel_lists, watches
from csi.admin.channel_lists import ChannelListEntry
from csi.admin.watches import CHANNELS, ImportLineResult, WatchOptions, WatchRefused, WatchTarget
from csi.catalog import capture, data_api
from csi.errors import CsiError, SourceError
from csi.jobs import job_admin
from csi.logs import log
from csi.runtime import Runtime
from csi.store import watch_admin
from csi.store.catalog import channel_removal, channels, videos
from csi.store.catalog.channels import Channel, ChannelFacts
from csi.store.catalog.jobs import CatalogJob, EnqueueResult
from csi.store.db import writing
from csi.store.watches import untracked

WATCHED_AT_ONCE = 50
_LATER = ("budget", "quota", "transient", "throttled", "paused", "malformed")


class CatalogRefused(CsiError):
    """The request cannot be fulfilled; the text says why and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class RegisterResult:
    """The result of registering a channel."""

    result: Literal["added", "known"]
    channel: Channel
    job: CatalogJob | None
    watch: str
    """The result for its feed: `added`, `known`, or why it is not watched."""
    remark: str | None = None


def find_channel(rt: Runtime, text: str) -> Channel:
    """By id, title, handle or URL. CatalogRefused when none or several match."""
    found = channels.matching(text) or channels.matching(watches.reference_value(rt, text))
    if not found:
        raise CatalogRefused(f"channel {text[:80]!r} is not in the catalogue; see `csi channels list`")
    if len(found) > 1:
        raise CatalogRefused(f"{text[:80]!r} is the title of {len(found)} channels; give the id")
    return found[0]


# ── register ────────────────────────────────────────────────────────────────────────────────────────────


def register(
    rt: Runtime, text: str, *, priority: int = 5, watch: bool = True, videos: int | None = None
) -> RegisterResult:
    """Track the channel that the text names, watch its feed, and enqueue a backfill. The lookup costs one API unit."""
    _check_priority(priority)
    try:
        target = watches.target_of(rt, text)
    except WatchRefused as error:
        raise CatalogRefused(str(error)) from error
    if target.source != CHANNELS:
        raise CatalogRefused("this is a playlist; the catalogue tracks channels (UC…, a channel URL or an @handle)")
    known = channels.find(target.ref)
    if known is None:
        facts, remark = _look_up(rt, target)
        job = _store(rt, target, facts, priority, videos)
        if job is not None:
            title = facts.title if facts else target.title
            watched = _watch_feed(rt, replace(target, title=title, units=0, remark=None)) if watch else "not requested"
            log.info("channel added by the operator", channel=target.ref, job=job.id)
            return RegisterResult("added", _stored(target.ref), job, watched, remark)
        known = _stored(target.ref)
    return RegisterResult("known", known, None, "known", f"already tracked, {known.status}; nothing changed")


def _look_up(rt: Runtime, target: WatchTarget) -> tuple[ChannelFacts | None, str | None]:
    """The channel's facts and a remark. No facts when the API cannot be asked now: the backfill fetches them later."""
    try:
        facts = data_api.read_channels(data_api.open_api(rt), [target.ref]).get(target.ref)
    except SourceError as error:
        if error.kind in _LATER:
            return None, f"not looked up yet: {error}"
        raise CatalogRefused(str(error)) from error
    if facts is None:
        raise CatalogRefused(f"YouTube has no channel {target.ref}")
    return facts, target.remark


def _store(
    rt: Runtime, target: WatchTarget, facts: ChannelFacts | None, priority: int, videos: int | None
) -> CatalogJob | None:
    """Store the channel and its backfill job in one transaction. None when another process added it just before."""
    now = rt.now()
    with writing():
        if not channels.add(target.ref, facts.title if facts else target.title or "", priority, now):
            return None
        if facts is not None:
            capture.record_channel(facts, now)
        return backfill(rt, _stored(target.ref), videos=videos).job


def import_list(
    rt: Runtime, content: bytes, *, priority: int = 5, watch: bool = True, dry_run: bool = False
) -> list[ImportLineResult]:
    """Track every channel of an OPML, CSV or plain list; an invalid entry does not stop the others. 50 channels are
    looked up for one API unit. UnreadableList when the whole file is unusable."""
    _check_priority(priority)
    entries = channel_lists.read_list(content, watches.replacement_hosts(rt))
    targets: dict[int, WatchTarget] = {}
    results: dict[int, ImportLineResult] = {}
    for place, entry in enumerate(entries):
        try:
            targets[place] = _listed_channel(rt, entry, dry_run=dry_run)
        except CsiError as error:
            results[place] = ImportLineResult(entry.line, entry.text, "invalid", name=entry.name, error=str(error))
    known, seen = channels.known([target.ref for target in targets.values()]), set[str]()
    wanted = list(dict.fromkeys(one.ref for one in targets.values() if one.ref and one.ref not in known))
    shown, remark = ({}, None) if dry_run else _look_up_many(rt, wanted)
    for place, target in targets.items():
        entry = entries[place]
        facts = shown.get(target.ref)
        name = (facts.title if facts else None) or entry.name or target.title
        line = partial(ImportLineResult, entry.line, entry.text, ref=target.ref or None, name=name)
        if target.ref and (target.ref in known or target.ref in seen):
            results[place] = line("known", error="in the file twice" if target.ref in seen else None)
        elif dry_run:
            results[place] = line("added", error=None if target.ref else "not looked up in a dry run")
        elif facts is None and remark is None:
            results[place] = line("invalid", error=f"YouTube has no channel {target.ref}")
        else:
            job = _store(rt, replace(target, title=name), facts, priority, None)
            if job is not None and watch:
                _watch_feed(rt, replace(target, title=name, units=0, remark=None))
            results[place] = line("added" if job is not None else "known", error=remark)
        seen.add(target.ref)
    return [results[place] for place in range(len(entries))]


def _listed_channel(rt: Runtime, entry: ChannelListEntry, *, dry_run: bool) -> WatchTarget:
    """The channel that the entry names. In a dry run one that would have to be looked up has no id."""
    if entry.exported is not None:
        source, ref, _ = entry.exported
        target = WatchTarget(source, ref, entry.name)
    elif entry.reference is None:
        raise CatalogRefused(entry.error or "that is not a channel")
    elif dry_run and not entry.reference.is_ready:
        return WatchTarget(CHANNELS, "", entry.name)
    else:
        target = watches.resolve(rt, entry.reference)
    if target.source != CHANNELS:
        raise CatalogRefused("that is not a channel; the catalogue tracks channels (UC…, a channel URL or an @handle)")
    return target


def _look_up_many(rt: Runtime, refs: list[str]) -> tuple[dict[str, ChannelFacts], str | None]:
    """The facts of these channels. With a remark the API could not be asked now: the backfills fetch the facts."""
    found: dict[str, ChannelFacts] = {}
    try:
        for start in range(0, len(refs), BATCH):
            found |= data_api.read_channels(data_api.open_api(rt), refs[start : start + BATCH])
    except SourceError as error:
        if error.kind in _LATER:
            return found, f"not looked up yet: {error}"
        raise CatalogRefused(str(error)) from error
    return found, None


def _watch_feed(rt: Runtime, target: WatchTarget) -> str:
    """The feed shows new uploads within minutes; without it they are found once a day."""
    try:
        return watches.watch_target(rt, target, WatchOptions({})).result
    except CsiError as error:
        return f"not watched: {error}"


def register_watched(rt: Runtime) -> int:
    """With `catalog.track_watched`: track watched channels that are not tracked yet, up to 50 per call."""
    if not rt.settings.catalog.track_watched:
        return 0
    rows = untracked(CHANNELS, WATCHED_AT_ONCE)
    for ref, name in rows:
        _store(rt, WatchTarget(CHANNELS, ref, name), None, 5, None)
        log.info("watched channel added to the catalogue", channel=ref)
    return len(rows)


# ── tracked channels ───────────────────────────────────────────────────────────────────────────────────────


def backfill(
    rt: Runtime, channel: Channel, *, priority: int | None = None, videos: int | None = None, until_known: bool = False
) -> EnqueueResult:
    """Enqueue a backfill: all videos, the newest `videos`, or back to the first known video (`until_known`)."""
    if priority is not None:
        _check_priority(priority)
    wanted: dict[str, object] = {"videos": videos, "until_known": until_known}
    payload = {name: value for name, value in wanted.items() if value}
    priority = priority or channel.priority
    return job_admin.enqueue(rt, "BACKFILL_CHANNEL", channel_id=channel.id, priority=priority, payload=payload)


def pause(rt: Runtime, channel: Channel, *, with_feed: bool = True) -> bool:
    """Stop refreshing the channel and polling its feed; running jobs finish. False when it was already paused."""
    with writing():
        if not channels.pause(channel.id):
            return False
        videos.stop_refreshing(channel.id)
        feed = channels.feed_of(channel.id)
        if feed is not None and with_feed:
            watch_admin.pause(feed.watch_id)
    log.info("channel paused by the operator", channel=channel.id)
    return True


def resume(rt: Runtime, channel: Channel, *, with_feed: bool = True) -> CatalogJob | None:
    """Poll its feed again, make its refreshes due, and enqueue a backfill. None when it was not paused."""
    now = rt.now()
    with writing():
        if not channels.resume(channel.id, now):
            return None
        videos.refresh_now(channel.id, now)
        feed = channels.feed_of(channel.id)
        if feed is not None and with_feed:
            watch_admin.resume(feed.watch_id, now)
        job = backfill(rt, channel, until_known=channel.backfilled_at is not None).job
    log.info("channel resumed by the operator", channel=channel.id)
    return job


def track(rt: Runtime, channel_id: str) -> bool:
    """Fetch the channel's videos and refresh its statistics; its feed is polled as before. False: that is done already.
    A channel that the catalogue does not have costs one API unit."""
    row = channels.find(channel_id)
    if row is None:
        return register(rt, channel_id, watch=False).result == "added"
    return resume(rt, row, with_feed=False) is not None


def untrack(rt: Runtime, channel_id: str) -> bool:
    """Stop refreshing the channel's statistics, and keep them; its feed is polled as before. False: nothing changed."""
    row = channels.find(channel_id)
    return row is not None and pause(rt, row, with_feed=False)


def remove(rt: Runtime, channel: Channel, *, dry_run: bool = False) -> dict[str, int]:
    """Delete a channel from the catalogue with its videos, statistics and jobs. Its feed is still polled, and archive
    files are kept. Returns the deleted rows by table.

    It is paused first, and its own row is deleted last: a removal that is interrupted is repeated.
    """
    if rt.settings.catalog.track_watched and channels.feed_of(channel.id) is not None:
        raise CatalogRefused(  # `register_watched` would add it again
            f"{channel.title or channel.id} is watched, and catalog.track_watched tracks every watched channel: "
            "pause it (`csi channels pause`), or remove its watch first"
        )
    if dry_run:
        return channel_removal.counts(channel.id)
    pause(rt, channel, with_feed=False)
    removed = channel_removal.remove(channel.id, rt.now())
    if removed is None:
        raise CatalogRefused(f"a job of {channel.title or channel.id} is running; try again when it is finished")
    log.info("channel removed by the operator", channel=channel.id, **removed)
    return removed


def set_priority(channel: Channel, priority: int) -> None:
    """Set the priority of its future jobs."""
    _check_priority(priority)
    channels.set_priority(channel.id, priority)


def _stored(channel_id: str) -> Channel:
    found = channels.find(channel_id)
    assert found is not None
    return found


def _check_priority(priority: int) -> None:
    if not 1 <= priority <= 10:
        raise CatalogRefused("a priority is a whole number from 1 to 10; higher runs sooner")
