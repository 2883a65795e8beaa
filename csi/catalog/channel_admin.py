"""What a person does to channels: register, pause, resume, rank, backfill. For CLI and admin API."""

from dataclasses import dataclass
from typing import Literal

from csi.admin import watches as sources
from csi.admin.watches import CHANNELS, WatchOptions, WatchRefused, WatchTarget
from csi.catalog import capture, data_api
from csi.errors import CsiError, SourceError
from csi.jobs.job_kinds import new_job
from csi.logs import log
from csi.runtime import Runtime
from csi.store import watch_admin, watches
from csi.store.catalog import channels, jobs, videos
from csi.store.catalog.channels import Channel, ChannelFacts
from csi.store.catalog.jobs import CatalogJob, EnqueueResult
from csi.store.db import writing

WATCHED_AT_ONCE = 50
_LATER = ("budget", "quota", "transient", "throttled", "paused", "malformed")


class CatalogRefused(CsiError):
    """A wish that cannot be fulfilled, and what to do instead."""

    exit_code = 2


@dataclass(frozen=True)
class RegisterResult:
    """What became of the wish to track a channel."""

    result: Literal["added", "known"]
    channel: Channel
    job: CatalogJob | None
    watch: str
    """What became of its feed: `added`, `known`, or why it is not watched."""
    remark: str | None = None


def find_channel(rt: Runtime, text: str) -> Channel:
    """By id, title, handle or URL. CatalogRefused when it is none, or more than one."""
    found = channels.matching(text) or channels.matching(sources.reference_value(rt, text))
    if not found:
        raise CatalogRefused(f"channel {text[:80]!r} is not in the catalogue; `csi channels list` shows them all")
    if len(found) > 1:
        raise CatalogRefused(f"{text[:80]!r} is the title of {len(found)} channels; say which by its id")
    return found[0]


# ── register ────────────────────────────────────────────────────────────────────────────────────────────


def register(
    rt: Runtime, text: str, *, priority: int = 5, watch: bool = True, videos: int | None = None
) -> RegisterResult:
    """Track the channel that the text names, watch its feed, and fetch what it published. Costs a unit to look."""
    _check_priority(priority)
    target = _target(rt, text)
    if target.source != CHANNELS:
        raise CatalogRefused("that is a playlist; the catalogue tracks channels (UC…, a channel URL or an @handle)")
    known = channels.find(target.ref)
    if known is not None:
        return _known(known)
    facts, remark = _look(rt, target)
    job = _store(rt, target, facts, priority, videos)
    if job is None:
        return _known(_stored(target.ref))
    watched = _watch(rt, target, facts) if watch else "not wished for"
    log.info("channel added by command", channel=target.ref, job=job.id)
    return RegisterResult("added", _stored(target.ref), job, watched, remark)


def _known(channel: Channel) -> RegisterResult:
    return RegisterResult("known", channel, None, "known", f"tracked already, {channel.status}; nothing changed")


def _target(rt: Runtime, text: str) -> WatchTarget:
    try:
        return sources.target_of(rt, text)
    except WatchRefused as error:
        raise CatalogRefused(str(error)) from error


def _look(rt: Runtime, target: WatchTarget) -> tuple[ChannelFacts | None, str | None]:
    """What YouTube says of it now; where it cannot be asked now, the backfill asks later."""
    try:
        facts = data_api.read_channels(data_api.open_api(rt), [target.ref]).get(target.ref)
    except SourceError as error:
        if error.kind in _LATER:
            return None, f"not looked at yet: {error}"
        raise CatalogRefused(str(error)) from error
    if facts is None:
        raise CatalogRefused(f"YouTube knows no channel {target.ref}")
    return facts, target.remark


def _store(
    rt: Runtime, target: WatchTarget, facts: ChannelFacts | None, priority: int, videos: int | None
) -> CatalogJob | None:
    """None: somebody else added it a moment ago."""
    now = rt.now()
    with writing():
        if not channels.add(target.ref, facts.title if facts else target.title or "", priority, now):
            return None
        if facts is not None:
            capture.record_channel(facts, now)
        return backfill(rt, _stored(target.ref), videos=videos).job


def _watch(rt: Runtime, target: WatchTarget, facts: ChannelFacts | None) -> str:
    """The feed tells of new uploads at once; without it they are found once a day."""
    try:
        title = facts.title if facts else target.title
        return sources.watch_target(rt, WatchTarget(target.source, target.ref, title), WatchOptions({})).result
    except CsiError as error:
        return f"not watched: {error}"


def register_watched(rt: Runtime) -> int:
    """`catalog.track_watched`: channels that are watched and not tracked yet, some at a time."""
    if not rt.settings.catalog.track_watched:
        return 0
    rows = watches.untracked(CHANNELS, WATCHED_AT_ONCE)
    for ref, name in rows:
        _store(rt, WatchTarget(CHANNELS, ref, name), None, 5, None)
        log.info("watched channel is tracked", channel=ref)
    return len(rows)


# ── what is there ───────────────────────────────────────────────────────────────────────────────────────


def backfill(
    rt: Runtime, channel: Channel, *, priority: int | None = None, videos: int | None = None, until_known: bool = False
) -> EnqueueResult:
    """Fetch what it published: everything, the newest so many, or back to what is known."""
    if priority is not None:
        _check_priority(priority)
    payload: dict[str, object] = {"videos": videos} if videos else {}
    new = new_job(
        "BACKFILL_CHANNEL",
        channel_id=channel.id,
        priority=priority or channel.priority,
        payload=payload | ({"until_known": True} if until_known else {}),
        max_attempts=rt.settings.catalog.max_attempts,
    )
    return jobs.enqueue(new, rt.now())


def pause(rt: Runtime, channel: Channel) -> bool:
    """No new work for it, and its feed rests, too; jobs in flight finish. False: it is paused already."""
    with writing():
        if not channels.pause(channel.id):
            return False
        videos.stop_refreshing(channel.id)
        feed = channels.feed_of(channel.id)
        if feed is not None:
            watch_admin.pause(feed.watch_id)
    log.info("channel paused by command", channel=channel.id)
    return True


def resume(rt: Runtime, channel: Channel) -> CatalogJob | None:
    """Its feed is read again, everything of it is due, and what it published meanwhile is fetched. None: not paused."""
    now = rt.now()
    with writing():
        if not channels.resume(channel.id, now):
            return None
        videos.refresh_now(channel.id, now)
        feed = channels.feed_of(channel.id)
        if feed is not None:
            watch_admin.resume(feed.watch_id, now)
        job = backfill(rt, channel, until_known=channel.backfilled_at is not None).job
    log.info("channel resumed by command", channel=channel.id)
    return job


def set_priority(channel: Channel, priority: int) -> None:
    """For its jobs from now on."""
    _check_priority(priority)
    channels.set_priority(channel.id, priority)


def _stored(channel_id: str) -> Channel:
    found = channels.find(channel_id)
    assert found is not None
    return found


def _check_priority(priority: int) -> None:
    if not 1 <= priority <= 10:
        raise CatalogRefused("a priority is a whole number from 1 to 10; higher is more important")
