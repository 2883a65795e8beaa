"""The parallel run: what the old poller saw, what we saw, and how we take over without sending anything twice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from csi.admin.old_poller_log import Sighting
from csi.dlq import sent_by_old_poller
from csi.errors import CsiError
from csi.logs import log
from csi.runtime import Runtime
from csi.store import dedupe, watch_admin
from csi.store.db import writing
from csi.store.queries import known_items
from csi.store.queries.known_items import Emitted, Known

REASON = "taken_over"

Result = Literal["both", "only_old", "only_csi"]


@dataclass(frozen=True)
class ComparedVideo:
    """One video, and who saw it."""

    video: str
    result: Result
    csi: str | None
    """What became of it here: delivered, pending, …, or why it was not sent."""
    ahead: float | None = None
    """Seconds that we saw it before the other side did; negative: after."""


@dataclass(frozen=True)
class Comparison:
    """Both sides, video by video."""

    seen: tuple[ComparedVideo, ...]

    def of(self, result: Result) -> list[ComparedVideo]:
        return [one for one in self.seen if one.result == result]

    @property
    def median_ahead(self) -> float | None:
        times = [one.ahead for one in self.seen if one.ahead is not None]
        return median(times) if times else None


@dataclass(frozen=True)
class Takeover:
    """What taking over changes, or would change."""

    videos: int
    new_keys: int
    pending: int
    """Events that waited to be sent and are not sent any more."""


class NothingToCompare(CsiError):
    """No watch whose items have the ids that an old poller knows."""


@dataclass(frozen=True)
class _Place:
    """A watch that an item could have been seen in."""

    source: str
    ref: str


def compare(
    rt: Runtime, sightings: Sequence[Sighting], *, sources: Sequence[str] = (), since: float = 0.0
) -> Comparison:
    """Who saw what since then. An entry without a time counts always."""
    places = _places(rt, sources, removed=True)
    theirs = [one for one in sightings if one.at is None or one.at >= since]
    keys = {one: _keys(rt, places, one) for one in theirs}
    every = [key for found in keys.values() for key in found]
    ours = known_items.emitted(sorted({place.source for place in places}), since)
    known, waiting = known_items.known(every), known_items.waiting(every)
    judged = [_judge(one, keys[one], known, ours, waiting) for one in theirs]
    return Comparison((*_once(judged), *_only_ours(sightings, ours)))


def take_over(
    rt: Runtime, sightings: Sequence[Sighting], *, sources: Sequence[str] = (), dry_run: bool = False
) -> Takeover:
    """What the other side has seen is known from here on: it is never sent, unless it was already."""
    places = _places(rt, sources)
    keys = list(dict.fromkeys(key for one in sightings for key in _keys(rt, places, one)))
    videos = len({one.video for one in sightings})
    if dry_run:
        return Takeover(videos, len(keys) - len(dedupe.known(keys)), sent_by_old_poller.count_pending(keys))
    now = rt.now()
    with writing():
        new = dedupe.remember(keys, REASON, now, rt.settings.retention.dedupe_days)
    pending = sent_by_old_poller.drop_pending(keys, now)
    log.info("seen ids are taken over", videos=videos, keys=new, pending=pending)
    return Takeover(videos, new, pending)


def _places(rt: Runtime, sources: Sequence[str], *, removed: bool = False) -> list[_Place]:
    rows = [row for row in watch_admin.every(removed=removed) if row.source in rt.settings.sources]
    found = [_Place(row.source, row.ref) for row in rows if not sources or row.source in sources]
    usable = [place for place in found if rt.adapter(place.source).known_key(place.ref, "x" * 11) is not None]
    if not usable:
        raise NothingToCompare("nothing is watched that could be compared; is --source right? csi sources list")
    return usable


def _keys(rt: Runtime, places: Iterable[_Place], sighting: Sighting) -> list[str]:
    """Every key that this video could have here. Where the other side names a list, only those of that list."""
    found = [(place, rt.adapter(place.source).known_key(place.ref, sighting.video)) for place in places]
    named = [key for place, key in found if key and place.ref == sighting.playlist]
    return list(dict.fromkeys(named or [key for _, key in found if key]))


def _judge(
    sighting: Sighting, keys: Sequence[str], known: Mapping[str, Known], ours: Mapping[str, Emitted], waiting: set[str]
) -> ComparedVideo:
    sent = [ours[key] for key in keys if key in ours]
    marked = [known[key] for key in keys if key in known]
    if sent:
        first = min(one.first_seen_at for one in sent)
        ahead = None if sighting.at is None else sighting.at - first
        return ComparedVideo(sighting.video, "both", sent[0].state, ahead)
    if marked or any(key in waiting for key in keys):
        return ComparedVideo(sighting.video, "both", marked[0].reason if marked else "waiting")
    return ComparedVideo(sighting.video, "only_old", None)


def _once(judged: Sequence[ComparedVideo]) -> list[ComparedVideo]:
    """A video that was in several lists counts once; what we saw wins."""
    found: dict[str, ComparedVideo] = {}
    for seen in sorted(judged, key=lambda one: one.result != "both"):
        found.setdefault(seen.video, seen)
    return [found[video] for video in dict.fromkeys(seen.video for seen in judged)]


def _only_ours(theirs: Sequence[Sighting], ours: Mapping[str, Emitted]) -> list[ComparedVideo]:
    """`theirs` is all that they ever saw: who was a moment earlier than the window has not missed it."""
    videos = {one.video for one in theirs}
    left = {_video(key): event for key, event in ours.items() if _video(key) not in videos}
    return [ComparedVideo(video, "only_csi", event.state) for video, event in left.items()]


def _video(key: str) -> str:
    """`youtube:video:<id>` and `youtube:video:<id>:<playlist>`."""
    return key.split(":")[2] if key.count(":") >= 2 else key
