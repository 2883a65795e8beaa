"""The last reads of a watch in figures: how many failed, how long they took, and one mark for each."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.poll_history import PastRead


@dataclass(frozen=True)
class ReadSummary:
    """Figures over the stored reads. Durations in seconds; None without a read that succeeded."""

    reads: int
    failed: int
    with_news: int
    median: float | None
    slowest: float | None

    @property
    def words(self) -> str:
        if not self.reads:
            return "none yet"
        text = f"{self.reads} stored, {self.failed} failed, {self.with_news} with new items"
        return text if self.median is None else f"{text}; usually {self.median:.2f} s, at most {self.slowest:.2f} s"


def read_summary(reads: Sequence[PastRead]) -> ReadSummary:
    times = sorted(one.seconds for one in reads if one.result != "failed")
    return ReadSummary(
        reads=len(reads),
        failed=sum(one.result == "failed" for one in reads),
        with_news=sum(one.result == "new" for one in reads),
        median=times[len(times) // 2] if times else None,
        slowest=times[-1] if times else None,
    )
