"""Follow the demo's videos through processing, and report their final states and the cost."""

from dataclasses import dataclass
from pathlib import Path

from csi.errors import StoreError
from csi.net import Net
from csi.processing import receiver_database
from csi.processing.config import load
from csi.processing.pipeline.digests import whole_day, write_digest
from csi.processing.pipeline.later import STREAM_END, TRANSCRIPT
from csi.processing.runtime import Processing
from csi.processing.status import WORKER
from csi.processing.store import db, dead_jobs, heartbeats, jobs, paid_calls, received_events, videos

DEADLINE_SECONDS = 60.0
"""How long the demo waits until everything that arrived is processed."""

UNFINISHED = ("discovered", "transcription_queued", "transcribed")


@dataclass(frozen=True)
class ProcessingAccount:
    """The numbers of videos by final state, and the cost."""

    signals: int
    videos: int
    summarized: int
    skipped: int
    waiting: int
    """Waiting for captions, or for the end of a premiere or stream: longer than a demo runs."""
    dead_letters: int
    unfinished: int
    cost_usd: str
    digest: str = ""


class ProcessingMonitor:
    """Reads processing's database, which its worker creates."""

    def __init__(self, config: Path) -> None:
        self._rt = Processing(load(config, env={}), Net())
        self._opened = False

    def last_heartbeat(self) -> float | None:
        """When the worker last wrote its heartbeat; None before the first."""
        if not Path(self._rt.settings.database_url).exists():
            return None
        if not self._opened:
            db.open_database(self._rt.settings.database_url)
            self._opened = True
        try:
            with db.reading():
                heartbeat = heartbeats.latest(WORKER)
                return heartbeat.beat_at if heartbeat else None
        except StoreError:
            return None

    def is_done(self) -> bool:
        """All signals of the receiver were read, and every video has reached a final state or waits for YouTube."""
        with db.reading():
            waiting = _waiting_for_youtube()
            return (
                not receiver_database.count_after(self._rt.settings.receiver_db, received_events.cursor(), 1)
                and _unfinished(videos.counts()) == waiting
                and jobs.open_count() == waiting
            )

    def account(self) -> ProcessingAccount:
        """The current numbers. Writes today's digest file."""
        with db.reading():
            states, waiting = videos.counts(), _waiting_for_youtube()
            written = write_digest(self._rt, whole_day(self._rt.today()), announce=False)
            return ProcessingAccount(
                signals=sum(received_events.counts().values()),
                videos=sum(states.values()),
                summarized=states.get("summarized", 0),
                skipped=states.get("skipped", 0),
                waiting=waiting,
                dead_letters=dead_jobs.open_count(),
                unfinished=_unfinished(states) - waiting,
                cost_usd=str(paid_calls.used(self._rt.today())),
                digest=str(self._rt.settings.artifacts / written[0].path),
            )


def _unfinished(states: dict[str, int]) -> int:
    return sum(states.get(name, 0) for name in UNFINISHED)


def _waiting_for_youtube() -> int:
    reasons = jobs.waiting_by_reason()
    return reasons.get(TRANSCRIPT, 0) + reasons.get(STREAM_END, 0)


def account_lines(account: ProcessingAccount) -> list[str]:
    numbers = f"{account.videos} videos, {account.summarized} summarized, {account.skipped} skipped"
    if account.waiting:
        numbers += f", {account.waiting} waiting for captions or the end of a stream"
    lines = [f"processing: {numbers}, {account.dead_letters} dead letters, {account.cost_usd} USD"]
    if account.unfinished:
        return [*lines, f"{account.unfinished} videos were not finished."]
    others = "Every other video" if account.waiting else "Every video"
    return [*lines, f"{others} was summarized, was skipped, or became a dead letter."]
