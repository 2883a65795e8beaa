"""Processing's own queue and worker (`huey_consumer tasks.processing.huey`). Tasks carry ids; the work is in rows."""

import os
from collections.abc import Sequence
from functools import cache

os.environ["TZ"] = "UTC"  # in another time zone Huey would shift the schedule by hours

from huey import crontab
from huey.api import Task

from csi.logs import log
from csi.processing import config
from csi.processing.alerting import AlertLoop
from csi.processing.pipeline import maintenance
from csi.processing.runtime import Processing, StepWake, open_processing
from csi.processing.store import db, jobs
from csi.worker_lock import hold_worker_lock
from tasks.huey_worker import WorkerConsumer, WorkerProcess, exit_on_error
from tasks.queue import create_processing_huey

MAINTAIN_EVERY = 10
"""Passes of the maintenance loop between two renewals of leases and heartbeat: five seconds."""

PRIORITY = {"notify": 40, "probe": 35, "summarise": 30, "transcribe": 20, "admit": 15, "intake": 10}
"""Later steps come first: started videos are finished before new ones begin."""


@cache
def runtime() -> Processing:
    """One per process: tasks share its HTTP connections and providers."""
    return open_processing()


class ProcessingWorker(WorkerProcess):
    """The worker of processing."""

    interval_seconds = 0.5

    def boot(self, threads: int) -> int:
        rt = runtime()
        rt.stopping = self.stopping
        if not db.is_postgres():
            hold_worker_lock(rt.settings.state_dir)
        maintenance.recover_claims(rt)
        providers = ",".join(rt.settings.transcription.providers)
        log.info("processing starts", transcription=providers, summarization=rt.summariser.name)
        return threads

    def start(self, consumer: WorkerConsumer) -> None:
        super().start(consumer)
        self.alerts = AlertLoop(runtime(), is_worker=True)
        self.alerts.start()

    def pause(self) -> None:
        super().pause()
        self.alerts.stop()

    def run_pass(self, consumer: WorkerConsumer, number: int) -> None:
        if number % MAINTAIN_EVERY == 0:
            dispatch(maintenance.maintain(runtime()))
        dispatch(maintenance.due_wakes(runtime(), huey.pending_count()))

    def release_leases(self) -> int:
        with db.writing():
            return jobs.release_leases()

    def drop_broken_connection(self) -> None:
        db.drop_broken_connection()


with exit_on_error():
    os.umask(0o077)  # what this process writes is for its own user
    huey = create_processing_huey(config.load())
    huey.worker = ProcessingWorker()


def dispatch(wakes: Sequence[StepWake]) -> None:
    huey.enqueue_wakes(wakes, _task)


@huey.task()
def run_step(step: str, key: str) -> None:
    wake = StepWake(step, key)
    try:
        dispatch(maintenance.run_step(runtime(), wake))
    except Exception as error:  # noqa: BLE001 any error must release the job, or it waits for its lease
        maintenance.release_failed_job(runtime(), wake, error)


@huey.periodic_task(crontab(minute="*"), priority=50)
def rescue_rows() -> None:
    dispatch(maintenance.due_wakes(runtime(), huey.pending_count()))


def _task(wake: StepWake) -> Task:
    return run_step.s(wake.step, wake.key, priority=PRIORITY[wake.step])
