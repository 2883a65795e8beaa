"""A response of the simulated YouTube before any fault is applied; the items in it, and their ledger."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from csi import clock
from csi.errors import CsiError
from csi.simulator.youtube.world import ListEntry, PlaylistSlice, SimulatedVideo

HeaderPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ServedItem:
    """One readable item in a response; the ledger records it once the response was sent in full."""

    kind: str
    video_id: str
    ref: str
    key: str
    occurred_at: str


@dataclass(frozen=True)
class SimulatedResponse:
    """A whole response. `is_feed`: it is a feed, which may be cached."""

    status: int
    body: bytes
    content_type: str
    headers: HeaderPairs = ()
    served: tuple[ServedItem, ...] = field(default=(), repr=False)
    etag: str | None = None
    is_feed: bool = False

    def has_etag(self, condition: str | None) -> bool:
        """The If-None-Match header `condition` names this response; quotes and the weak prefix do not matter."""
        if not condition or not self.etag or self.status != 200:
            return False
        given = {part.strip().removeprefix("W/").strip('"') for part in condition.split(",")}
        return self.etag in given or "*" in given


def served_upload(kind: str, ref: str, video: SimulatedVideo) -> ServedItem:
    """An item of a channel's feed or uploads list; both lead to the same event."""
    return ServedItem(kind, video.id, ref, f"youtube:video:{video.id}", clock.iso(video.published_at))


def served_entries(listing: PlaylistSlice, kind: str, entries: Iterable[ListEntry]) -> tuple[ServedItem, ...]:
    """The readable items of a list. An item of a playlist, named `kind` in the ledger, occurred when it was added."""
    readable = [entry for entry in entries if entry.video.readable]
    if listing.uploads:
        return tuple(served_upload("uploads", listing.ref, entry.video) for entry in readable)
    return tuple(
        ServedItem(
            kind,
            entry.video.id,
            listing.ref,
            f"youtube:video:{entry.video.id}:{listing.ref}",
            clock.iso(entry.added_at),
        )
        for entry in readable
    )


class ServedLedger:
    """Each readable item that left in a complete response, once, as one JSON line.

    The file is flushed after each response: a killed simulator leaves a complete one.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise CsiError(f"cannot write the ledger {path}: {error.strerror}; choose another file") from error
        self._seen: set[tuple[str, str, str]] = set()

    def record(self, served: Iterable[ServedItem], at: float) -> None:
        """Write the items that were not served before."""
        fresh = [item for item in served if (item.kind, item.video_id, item.ref) not in self._seen]
        if fresh:
            self._seen.update((item.kind, item.video_id, item.ref) for item in fresh)
            self._file.writelines(json.dumps({"at": at, **asdict(item)}) + "\n" for item in fresh)
            self._file.flush()
