"""The whole walk in one thread with a clock in hand: what Huey would do, without waiting for it."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from csi.pipeline import deliver, flush, ingest, poll, schedule
from csi.pipeline.wake import Wake
from csi.runtime import Runtime, open_runtime
from csi.worker import maintenance
from csi.worker.maintenance import QueueHealth
from tests.fakes.receiver import SECRET


class Line:
    """A runtime and the wake-ups that are under way."""

    def __init__(
        self, tmp_path: Path, clock: Any, ua_url: str, *, secrets: dict[str, str] | None = None, **blocks: Any
    ) -> None:
        blocks.setdefault("csi", {})
        blocks["csi"] |= {"state_dir": str(tmp_path / "state"), "log_level": "ERROR"}
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(blocks))
        env = {"CSI_UA_ENDPOINT": ua_url, "CSI_UA_SHARED_SECRET": SECRET, "YOUTUBE_API_KEY": "demo-key"}
        self.clock = clock
        self.rt: Runtime = open_runtime(config, env | (secrets or {}))
        self.rt.now = clock
        self.rt.rng = random.Random(7)
        self.scheduled: list[Wake] = []
        schedule.sync_watches(self.rt)

    def run_without_delivery(self) -> None:
        """`run` with `features.delivery` switched off: events wait in the outbox."""
        settings = self.rt.settings
        off = settings.features.model_copy(update={"delivery": False})
        self.rt.settings = settings.model_copy(update={"features": off})
        self.run()
        self.rt.settings = settings

    def run(self) -> None:
        """Everything that is due at this moment, to its end."""
        todo = [*self._due(), *maintenance.run_pass(self.rt, QueueHealth(0), self.clock(), with_heartbeat=True)]
        for _ in range(10_000):
            if not todo:
                return
            todo += self._take(self.step(todo.pop(0)))
        raise AssertionError("the line does not come to rest")

    def step(self, wake: Wake) -> Sequence[Wake]:
        match wake.step:
            case "poll":
                return [wake for wakes in poll.poll(self.rt, int(wake.key)) for wake in wakes]
            case "ingest":
                return ingest.ingest(self.rt, int(wake.key))
            case "flush":
                return flush.flush(self.rt, str(wake.key))
            case "probe":
                return deliver.probe(self.rt, str(wake.key))
            case "deliver":
                return [wake for wakes in deliver.deliver(self.rt, int(wake.key)) for wake in wakes]

    def wait(self, seconds: float, step: float = 1.0) -> None:
        """Time passes; what falls due is done when it does."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.move(min(step, end - self.clock(), self._next_wake()))
            self.run()

    def _next_wake(self) -> float:
        """Seconds until the next scheduled wake-up: a coarse step must not make a retry late."""
        return max(min((wake.at or 0.0 for wake in self.scheduled), default=float("inf")) - self.clock(), 0.001)

    def _take(self, wakes: Sequence[Wake]) -> list[Wake]:
        self.scheduled += [wake for wake in wakes if wake.at is not None and wake.at > self.clock()]
        return [wake for wake in wakes if wake.at is None or wake.at <= self.clock()]

    def _due(self) -> list[Wake]:
        due = [wake for wake in self.scheduled if wake.at is not None and wake.at <= self.clock()]
        self.scheduled = [wake for wake in self.scheduled if wake not in due]
        return due
