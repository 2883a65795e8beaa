"""A response of the simulated YouTube before any fault is applied, and the items in it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from csi import clock
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
    """A whole response. `made_at` is set on a feed: its cache headers depend on its age."""

    status: int
    body: bytes
    content_type: str
    headers: HeaderPairs = ()
    served: tuple[ServedItem, ...] = field(default=(), repr=False)
    etag: str | None = None
    made_at: float | None = None

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
