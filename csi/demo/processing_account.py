"""What became of the demo's signals on the other side: watched through processing's rows, and told at the end."""

from dataclasses import asdict, dataclass
from pathlib import Path

from csi.errors import StoreError
from csi.net import Net
from csi.processing import receiver_database
from csi.processing.config import load
from csi.processing.pipeline.digest import write_digest
from csi.processing.pipeline.maintenance import WORKER
from csi.processing.pipeline.runs import today_of
from csi.processing.runtime import Processing
from csi.processing.store import db, dead_jobs, heartbeats, jobs, paid_calls, signals, videos

PATIENCE = 60.0
"""How long everything that arrived may take to be summarised."""


@dataclass(frozen=True)
class ProcessingAccount:
    """Where the videos are, and what it cost."""

    signals: int
    videos: int
    summarized: int
    skipped: int
    dead_letters: int
    unfinished: int
    cost_usd: str
    digest: str = ""


class ProcessingMonitor:
    """Processing, seen from outside: its database is opened once its worker has made it."""

    def __init__(self, config: Path) -> None:
        self._rt = Processing(load(config, env={}), Net())
        self._opened = False

    def beats(self) -> float | None:
        """When its worker last gave a sign of life; None before the first."""
        if not Path(self._rt.settings.database_url).exists():
            return None
        if not self._opened:
            db.open_database(self._rt.settings.database_url)
            self._opened = True
        try:
            with db.reading():
                return heartbeats.last_beat(WORKER)
        except StoreError:
            return None

    def is_done(self) -> bool:
        """Everything that the receiver has was taken over, and no video is on its way."""
        with db.reading():
            known = videos.counts()
            waiting = sum(known.get(name, 0) for name in ("discovered", "transcription_queued", "transcribed"))
            return (
                not receiver_database.waiting(self._rt.settings.receiver_db, signals.cursor(), 1)
                and not waiting
                and not jobs.open_count()
            )

    def account(self) -> ProcessingAccount:
        """The numbers of now, and today's digest as a file."""
        with db.reading():
            known = videos.counts()
            made = write_digest(self._rt, today_of(self._rt), announce=False)
            return ProcessingAccount(
                signals=sum(signals.counts().values()),
                videos=sum(known.values()),
                summarized=known.get("summarized", 0),
                skipped=known.get("skipped", 0),
                dead_letters=dead_jobs.open_count(),
                unfinished=sum(known.get(name, 0) for name in ("discovered", "transcription_queued", "transcribed")),
                cost_usd=str(paid_calls.used(self._rt.today())),
                digest=str(self._rt.settings.artifacts / made[0].path),
            )


def account_lines(account: ProcessingAccount) -> list[str]:
    """The account in words."""
    told = asdict(account)
    numbers = ", ".join(f"{told[name]} {name.replace('_', ' ')}" for name in ("videos", "summarized", "skipped"))
    ends = "Every video ends in a summary, skipped for a reason, or in a dead letter."
    late = f"{account.unfinished} videos were still on their way."
    lines = [f"processing: {numbers}, {account.dead_letters} dead letters, {account.cost_usd} USD"]
    return [*lines, late if account.unfinished else ends]
