"""What the simulated YouTube is about to answer, before any fault spoils it."""

from dataclasses import dataclass, field

from csi import clock
from csi.simulator.youtube.world import ListEntry, SimulatedVideo

HeaderPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ServedItem:
    """One readable item in an answer: what the ledger S writes down once the answer got out."""

    kind: str
    video_id: str
    ref: str
    key: str
    occurred_at: str


@dataclass(frozen=True)
class SimulatedResponse:
    """A whole answer. `made_at` is set on a feed, whose cache headers depend on its age."""

    status: int
    body: bytes
    content_type: str
    headers: HeaderPairs = ()
    served: tuple[ServedItem, ...] = field(default=(), repr=False)
    etag: str | None = None
    made_at: float | None = None

    def has_etag(self, condition: str | None) -> bool:
        """If-None-Match names this very answer, quoted or not, weak or not."""
        if not condition or not self.etag or self.status != 200:
            return False
        given = {part.strip().removeprefix("W/").strip('"') for part in condition.split(",")}
        return self.etag in given or "*" in given


def served_upload(kind: str, ref: str, video: SimulatedVideo) -> ServedItem:
    """An item of a channel's feed or uploads list; both give the same event."""
    return ServedItem(kind, video.id, ref, f"youtube:video:{video.id}", clock.iso(video.published_at))


def served_item(kind: str, ref: str, entry: ListEntry) -> ServedItem:
    """An item of a playlist: it happened when it was added."""
    key = f"youtube:video:{entry.video.id}:{ref}"
    return ServedItem(kind, entry.video.id, ref, key, clock.iso(entry.added_at))
