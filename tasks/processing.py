"""Processing's own queue and worker (`huey_consumer tasks.processing.huey`). Tasks carry ids; the work is in rows."""

import datetime
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

os.environ["TZ"] = "UTC"  # in another time zone Huey would shift the schedule by hours

from huey import crontab

from csi import logs
from csi.config.settings import is_server, is_unprotected_redis
from csi.errors import ConfigError, CsiError, MissingSetting, StoreError
from csi.logs import log
from csi.processing import config
from csi.processing.pipeline import maintenance
from csi.processing.runtime import Processing, open_processing
from csi.processing.settings import ProcessingSettings
from csi.processing.store import db, jobs
from csi.processing.wake import StepWake
from csi.store.worker_lock import hold_worker_lock
from tasks import key_file
from tasks.queue import QueueHuey, WorkerConsumer, storage_of
from tasks.serializer import JsonSerializer
from tasks.sqlite_queue import IDLE_SECONDS

NAME = "csi-processing"
SECRET = "CSI_PROCESSING_QUEUE_SECRET"  # noqa: S105 the name of a variable
LOOP_SECONDS = 0.5
MAINTAIN_EVERY = 10
"""Rounds of the maintenance loop between two renewals of leases and heartbeat: five seconds."""

PRIORITY = {"notify": 40, "summarise": 30, "transcribe": 20, "admit": 15, "intake": 10}
"""Later steps come first: started videos are finished before new ones begin."""


class ProcessingHuey(QueueHuey):
    """Processing's queue. Its consumer checks first that this process may work."""

    def create_consumer(self, **options: Any) -> WorkerConsumer:
        _boot()
        self.drop_messages_of_1_0()
        options["max_delay"] = min(options.get("max_delay", IDLE_SECONDS), IDLE_SECONDS)
        consumer = WorkerConsumer(self, **options)
        consumer.worker = ProcessingWorker()
        return consumer


def create_queue(settings: ProcessingSettings) -> ProcessingHuey:
    common = {"results": False, "utc": True, "serializer": JsonSerializer(_signing_secret(settings), NAME)}
    try:
        return ProcessingHuey(NAME, **storage_of(settings.queue_url), **common)
    except CsiError:
        raise
    except Exception as error:  # no access, a directory of that name, an unreachable server
        reason = " ".join(str(error).split())[:300]
        raise StoreError(f"processing's queue cannot be used: {reason}") from error


def _signing_secret(settings: ProcessingSettings) -> str:
    """A variable for several hosts, else the key file. On a server only a key file that is there already is used:
    version 1.0.0 created one, and two hosts that created one each would drop each other's messages."""
    if is_unprotected_redis(settings.queue_url) and not settings.allow_unprotected_queue:
        raise ConfigError(
            "queue (processing.yaml) names a Redis on another host without a password. Put the password into the URL "
            "(redis://:PASSWORD@host:6379/0), or set allow_unprotected_queue: true where a firewall protects it."
        )
    path = settings.state_dir / key_file.NAME
    if not is_server(settings.queue_url):
        return os.environ.get(SECRET) or key_file.read_or_create_key(path)
    secret = os.environ.get(SECRET) or key_file.read_key(path)
    if not secret:
        raise MissingSetting(
            f"processing's queue is on a server, and {SECRET}, which signs its messages, is not set. Set it to the "
            "same value on every host; make one with: openssl rand -hex 32"
        )
    return secret


@cache
def runtime() -> Processing:
    """One per process: tasks share its HTTP connections and providers."""
    return open_processing()


class ProcessingWorker:
    """The maintenance loop beside the consumer's threads, and the orderly shutdown."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def start(self, consumer: Any) -> None:
        threading.Thread(target=self._maintenance_loop, name="Maintenance", daemon=True).start()

    def pause(self) -> None:
        self._stopping.set()
        runtime().stopping.set()

    def stop(self) -> None:
        try:
            with db.writing():
                released = jobs.release_leases()
            log.info("processing ends", released=released)
        except Exception:  # noqa: BLE001 the process ends: unreleased leases expire
            log.exception("leases could not be released")

    def _maintenance_loop(self) -> None:
        count = 0
        while not self._stopping.is_set():
            try:
                if count % MAINTAIN_EVERY == 0:
                    dispatch(maintenance.maintain(runtime()))
                dispatch(maintenance.due_wakes(runtime(), huey.pending_count()))
            except Exception as error:  # noqa: BLE001 the loop must survive a locked database or a lost server
                log.error("processing maintenance failed; retrying", error=f"{type(error).__name__}: {error}")
                db.drop_broken_connection()
            count += 1
            self._stopping.wait(LOOP_SECONDS)


def _boot() -> None:
    """Open the database and take the worker lock. An error is one sentence on stderr and its exit code."""
    try:
        rt = runtime()
        logs.take_over("huey")
        if not db.is_postgres():
            hold_worker_lock(rt.settings.state_dir)
        maintenance.recover_claims(rt)
    except CsiError as error:
        sys.stderr.write(f"csi: {error}\n")
        raise SystemExit(error.exit_code) from None
    providers = ",".join(rt.settings.transcription.providers)
    log.info("processing starts", transcription=providers, summarization=rt.summariser.name)


try:
    huey = create_queue(config.load())
except CsiError as problem:
    sys.stderr.write(f"csi: {problem}\n")
    raise SystemExit(problem.exit_code) from None


def dispatch(wakes: Sequence[StepWake]) -> None:
    """Enqueue these. When that fails, the rows stay due and the maintenance loop finds them."""
    try:
        now = [_task(wake) for wake in wakes if wake.at is None]
        if now:
            huey.enqueue_many(now)
        for wake in wakes:
            if wake.at is not None:
                huey.add_schedule(_task(wake))
    except Exception as error:  # noqa: BLE001 queue deleted or locked, server unreachable: the rows stay due
        log.warning("wake-ups could not be queued; rescue repeats them", wakes=len(wakes), error=str(error))


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Log the error of a task. Its row becomes due again when the lease expires."""

    @wraps(function)
    def edge(*args: Any) -> None:
        try:
            function(*args)
        except CsiError as error:
            log.error("task failed", task="processing", key=args[:2], error=str(error))
        except db.DatabaseError as error:
            log.error("task met the database in trouble", task="processing", key=args[:2], error=str(error)[:300])
            db.drop_broken_connection()

    return edge


@huey.task()
@guarded
def run_step(step: str, key: str) -> None:
    wake = StepWake(step, key)
    try:
        dispatch(maintenance.run_step(runtime(), wake))
    except Exception as error:  # noqa: BLE001 any error must release the job, or it waits for its lease
        maintenance.release_failed_job(runtime(), wake, error)


@huey.periodic_task(crontab(minute="*"), priority=50)
@guarded
def rescue_rows() -> None:
    dispatch(maintenance.due_wakes(runtime(), huey.pending_count()))


def _task(wake: StepWake) -> Any:
    # Aware: Huey truncates a naive time to whole seconds, and a task that runs before its row is due does nothing.
    eta = None if wake.at is None else datetime.datetime.fromtimestamp(wake.at, datetime.UTC)
    return run_step.s(wake.step, wake.key, eta=eta, priority=PRIORITY[wake.step])
