"""A bench for tests of processing: a receiver's database to fill, a manual clock, and the pipeline without a queue."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from csi.ingester.event import CreatorSignalEvent
from csi.net import Net
from csi.processing.config import ProcessingSecrets
from csi.processing.pipeline import maintenance
from csi.processing.runtime import Processing, create
from csi.processing.settings import ProcessingSettings
from csi.processing.store import jobs, videos
from csi.processing.store.db import fetch
from csi.receiver.batch import read_batch
from csi.receiver.store import SignalStore, VerifiedRequest

EXAMPLE: dict[str, Any] = dict(CreatorSignalEvent.model_config["json_schema_extra"]["example"])  # type: ignore[index, arg-type]
TEXT = (
    "Today we build a small language model from scratch. First you tokenize the text with byte pair encoding. "
    "Then you train the model on the tokens. Attention lets the model look back at earlier tokens. "
    "Finally you measure the loss of the model on text that it has never seen. Thank you for watching."
)


class ProcessKilled(BaseException):
    """The process ended at a failpoint: nothing after it ran, and no lease was released."""


class ProcessingBench:
    """Everything a test of the pipeline needs."""

    def __init__(self, home: Path, clock: Any, **settings: Any) -> None:
        self.home, self.clock = home, clock
        (home / "transcripts").mkdir(exist_ok=True)
        given = {
            "state_dir": home / "state",
            "receiver_db": home / "receiver.db",
            "transcription": {"providers": ["file"], "file": {"directory": home / "transcripts"}},
        }
        self.settings = ProcessingSettings.model_validate(given | settings)
        self.inbox = SignalStore(self.settings.receiver_db)
        self.rt = self.start()
        self._count = 0

    def start(self, secrets: ProcessingSecrets | None = None) -> Processing:
        """A new process with the same files."""
        held = secrets or ProcessingSecrets(
            assemblyai="assembly-key-1", openai="openai-key-1", webhook="webhook-secret-1"
        )
        self.rt = create(self.settings, held, net=Net(), now=self.clock)
        return self.rt

    def deliver(
        self, video: str, *, pipeline: str = "creator_watchlist_handler", text: str | None = TEXT, **changes: Any
    ) -> str:
        """A signal in the receiver's database, and a transcript of its video on the disk."""
        self._count += 1
        event_id = str(changes.pop("event_id", f"src:test:{video}:{self._count}"))
        subject = {**EXAMPLE["subject"], "video_id": video, "title": f"Title of {video}", "duration_seconds": 600}
        subject |= changes.pop("subject", {})
        routing = {"pipeline": pipeline, "priority": "standard", "tags": ["t"]}
        event = {**EXAMPLE, "event_id": event_id, "subject": subject, "routing": routing, **changes}
        body = {"csi_version": "1", "csi_instance_id": "csi-1", "batch_id": "b", "events": [event]}
        batch = read_batch(json.dumps(body).encode(), frozenset())
        self.inbox.accept(batch, VerifiedRequest(f"req{self._count}", str(self._count), self.clock()))
        if text is not None:
            (self.home / "transcripts" / f"{video}.txt").write_text(text)
        return event_id

    def drain(self, *, rounds: int = 400) -> None:
        """Run everything that is due now, found by maintenance alone: as if every wake-up were lost."""
        for _ in range(rounds):
            wakes = maintenance.due_wakes(self.rt)
            if not wakes:
                return
            for wake in wakes:
                maintenance.run_step(self.rt, wake)
        raise AssertionError("there is always more work due")

    def work_for(self, seconds: float) -> None:
        """Like the worker: a step that fails releases its job, and time passes in steps of 5 s."""
        for _ in range(int(seconds // 5) + 1):
            for wake in maintenance.due_wakes(self.rt):
                try:
                    maintenance.run_step(self.rt, wake)
                except Exception as error:
                    maintenance.release_failed_job(self.rt, wake, error)
            maintenance.maintain(self.rt)
            self.clock.move(5)

    def run_for(self, seconds: float, *, stride: float = 5.0) -> None:
        """Time passes in steps of `stride`, and everything that becomes due is run."""
        end = self.clock() + seconds
        while True:
            self.drain()
            maintenance.maintain(self.rt)
            if self.clock() >= end:
                return
            self.clock.move(min(stride, end - self.clock()))

    def kill_at(self, name: str, *, times: int = 1) -> Callable[[], int]:
        """End the process the next `times` times it reaches this failpoint."""
        left = [times]

        def hit(place: str) -> None:
            if place == name and left[0]:
                left[0] -= 1
                raise ProcessKilled(name)

        self.rt.failpoint = hit
        return lambda: times - left[0]

    def drain_through_deaths(self, *, wait: float = 61.0, seconds: float = 0.0) -> int:
        """Drain; after each crash a new process starts when the lease has expired. Returns the number of crashes."""
        deaths, hook = 0, self.rt.failpoint
        while True:
            try:
                self.run_for(seconds, stride=15) if seconds else self.drain()
                return deaths
            except ProcessKilled:
                deaths += 1
                self.clock.move(wait)
                self.start().failpoint = hook

    def status(self, video: str) -> str:
        return videos.get(video).status

    def statuses(self) -> dict[str, str]:
        return dict(fetch("SELECT video_id, status FROM videos ORDER BY 1"))

    def job(self, job_id: str) -> jobs.ProcessingJob:
        found = jobs.find(job_id)
        assert found is not None
        return found

    def close(self) -> None:
        self.inbox.close()
        self.rt.net.close()
