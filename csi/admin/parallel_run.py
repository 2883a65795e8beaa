"""The parallel run with the old poller: compare what both saw, and take over without sending an event twice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from csi.admin.old_poller_log import Sighting
from csi.dlq import discard_and_prune
from csi.errors import CsiError
from csi.logs import log
from csi.runtime import Runtime
from csi.store import dedupe, events, watch_admin
from csi.store.db import writing
from csi.store.events import EmittedEvent

REASON = "taken_over"

Result = Literal["both", "only_old", "only_csi"]


@dataclass(frozen=True)
class ComparedVideo:
    """One video, and which side saw it."""

    video: str
    result: Result
    csi: str | None
    """Its state in CSI: delivered, pending, …, or why it was not sent."""
    ahead: float | None = None
    """Seconds by which CSI saw it before the old poller; negative when after."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of both sides by video."""

    seen: tuple[ComparedVideo, ...]

    def of(self, result: Result) -> list[ComparedVideo]:
        return [one for one in self.seen if one.result == result]

    @property
    def median_ahead(self) -> float | None:
        times = [one.ahead for one in self.seen if one.ahead is not None]
        return median(times) if times else None


@dataclass(frozen=True)
class Takeover:
    """What the takeover changed, or would change."""

    videos: int
    new_keys: int
    pending: int
    """Pending events that are dropped."""


class NothingToCompare(CsiError):
    """No watch has items with video ids."""


def compare(
    rt: Runtime, sightings: Sequence[Sighting], *, sources: Sequence[str] = (), since: float = 0.0
) -> Comparison:
    """Compare the videos seen since then. A sighting without a time always counts."""
    places = _places(rt, sources, removed=True)
    theirs = [one for one in sightings if one.at is None or one.at >= since]
    keys = {one: _keys(rt, places, one) for one in theirs}
    every = [key for found in keys.values() for key in found]
    ours, reasons = events.emitted(sorted({source for source, _ in places}), since), dedupe.reasons(every)
    judged = [_judge(one, keys[one], reasons, ours) for one in theirs]
    # A video that was in several playlists counts once; `both` takes precedence.
    compared = {one.video: one for one in judged}
    compared |= {one.video: one for one in reversed(judged) if one.result == "both"}
    # Against all sightings: a video that the old poller saw just before `since` was not missed by it.
    seen = {one.video for one in sightings}
    left = {_video(key): event for key, event in ours.items() if _video(key) not in seen}
    only_ours = [ComparedVideo(video, "only_csi", event.state) for video, event in left.items()]
    return Comparison((*compared.values(), *only_ours))


def take_over(
    rt: Runtime, sightings: Sequence[Sighting], *, sources: Sequence[str] = (), dry_run: bool = False
) -> Takeover:
    """Mark everything that the old poller has seen as known, so that it is not sent, and drop pending events of it."""
    places = _places(rt, sources)
    keys = list(dict.fromkeys(key for one in sightings for key in _keys(rt, places, one)))
    videos = len({one.video for one in sightings})
    if dry_run:
        return Takeover(videos, len(keys) - len(dedupe.known(keys)), discard_and_prune.count_pending(keys))
    now = rt.now()
    # Keys first: an item that is polled from now on is known. A crash before the next step leaves pending events, which
    # a second takeover drops.
    with writing():
        new = len(dedupe.remember(keys, REASON, now, rt.settings.retention.dedupe_days))
    pending = discard_and_prune.drop_sent_by_old_poller(keys, now)
    log.info("ids of the old poller taken over", videos=videos, keys=new, pending=pending)
    return Takeover(videos, new, pending)


def _places(rt: Runtime, sources: Sequence[str], *, removed: bool = False) -> list[tuple[str, str]]:
    """Source and ref of every watch whose items are identified by a video id."""
    rows = [row for row in watch_admin.every(removed=removed) if row.source in rt.settings.sources]
    found = [(row.source, row.ref) for row in rows if not sources or row.source in sources]
    usable = [(source, ref) for source, ref in found if rt.adapter(source).known_key(ref, "x" * 11) is not None]
    if not usable:
        raise NothingToCompare("no watch can be compared; check --source and csi sources list")
    return usable


def _keys(rt: Runtime, places: Iterable[tuple[str, str]], sighting: Sighting) -> list[str]:
    """Every dedupe key that this video could have. When the sighting names a playlist, only that playlist's keys."""
    found = [(ref, rt.adapter(source).known_key(ref, sighting.video)) for source, ref in places]
    named = [key for ref, key in found if key and ref == sighting.playlist]
    return list(dict.fromkeys(named or [key for _, key in found if key]))


def _judge(
    sighting: Sighting, keys: Sequence[str], reasons: Mapping[str, str], ours: Mapping[str, EmittedEvent]
) -> ComparedVideo:
    sent = [ours[key] for key in keys if key in ours]
    if sent:
        first = min(one.first_seen_at for one in sent)
        ahead = None if sighting.at is None else sighting.at - first
        return ComparedVideo(sighting.video, "both", sent[0].state, ahead)
    known = [reasons[key] for key in keys if key in reasons]
    if known:
        reason = next((one for one in known if one != dedupe.WAITING), dedupe.WAITING)
        return ComparedVideo(sighting.video, "both", reason)
    return ComparedVideo(sighting.video, "only_old", None)


def _video(key: str) -> str:
    """`youtube:video:<id>` and `youtube:video:<id>:<playlist>`."""
    return key.split(":")[2] if key.count(":") >= 2 else key
