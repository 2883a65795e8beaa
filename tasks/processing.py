"""Processing's own Huey and worker: `huey_consumer tasks.processing.huey`. The rows say what to do; this only wakes."""

import datetime
import hashlib
import hmac
import os
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any

os.environ["TZ"] = "UTC"  # a consumer in another zone shifts the schedule by hours

from huey import crontab
from huey.serializer import SignedSerializer

from csi import logs
from csi.errors import CsiError, StoreError
from csi.logs import log
from csi.processing import config
from csi.processing.pipeline import maintenance
from csi.processing.runtime import Processing, open_processing
from csi.processing.settings import ProcessingSettings
from csi.processing.store import db, jobs
from csi.processing.wake import Wake
from csi.store.worker_lock import hold_worker_lock
from tasks.queue import QueueHuey, WorkerConsumer, storage_of
from tasks.storage import IDLE_SECONDS

NAME = "csi-processing"
SECRET = "CSI_PROCESSING_QUEUE_SECRET"  # noqa: S105 the name of a variable
PULSE_SECONDS = 0.5
SLOW = 10
"""Pulses between two renewals of leases, heartbeats and looks at the run: five seconds."""

PRIORITY = {"notify": 40, "summarise": 30, "transcribe": 20, "admit": 15, "intake": 10}
"""Finish before you begin."""


class ProcessingHuey(QueueHuey):
    """Huey for processing's wake-ups: another queue, another worker, the same habits."""

    def create_consumer(self, **options: Any) -> WorkerConsumer:
        _boot()
        options["max_delay"] = min(options.get("max_delay", IDLE_SECONDS), IDLE_SECONDS)
        consumer = WorkerConsumer(self, **options)
        consumer.worker = Worker()
        return consumer


def create_queue(settings: ProcessingSettings) -> ProcessingHuey:
    common = {"results": False, "utc": True, "serializer": SignedSerializer(secret=_signing_key(settings), salt=NAME)}
    try:
        return ProcessingHuey(NAME, **storage_of(settings.queue_url), **common)
    except CsiError:
        raise
    except Exception as error:  # no access, a folder of that name, a server that is away
        reason = " ".join(str(error).split())[:300]
        raise StoreError(f"processing's queue cannot be used: {reason}") from error


def _signing_key(settings: ProcessingSettings) -> str:
    """Messages are pickles: only our own are opened. One file for one state directory; a variable for several hosts."""
    given = os.environ.get(SECRET) or _key_file(settings.state_dir / "queue.key")
    return hmac.new(given.encode(), b"csi processing messages", hashlib.sha256).hexdigest()


def _key_file(path: Path) -> str:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
        except FileExistsError:
            pass
        return path.read_text("ascii")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: the queue's key cannot be read or made: {error}") from error


@cache
def runtime() -> Processing:
    """One per process: tasks share its HTTP connections and providers."""
    return open_processing()


class Worker:
    """The process around the consumer: its pulse, and its orderly end."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def start(self, consumer: Any) -> None:
        threading.Thread(target=self._pulse, name="Pulse", daemon=True).start()

    def pause(self) -> None:
        self._stopping.set()
        runtime().leaving.set()

    def stop(self) -> None:
        try:
            with db.writing():
                freed = jobs.release_own()
            log.info("processing ends", released=freed)
        except Exception:  # noqa: BLE001 the end of the process: leases run out by themselves
            log.exception("leases could not be released")

    def _pulse(self) -> None:
        count = 0
        while not self._stopping.is_set():
            try:
                _beat(slow=count % SLOW == 0)
            except Exception as error:  # noqa: BLE001 the pulse must outlive a locked database or a lost server
                log.error("processing's rescue failed; it is tried again", error=f"{type(error).__name__}: {error}")
                db.drop_broken_connection()
            count += 1
            self._stopping.wait(PULSE_SECONDS)


def _beat(*, slow: bool) -> None:
    rt = runtime()
    if slow:
        dispatch(maintenance.keep_up(rt))
    dispatch(maintenance.rescue(rt, huey.pending_count()))


def _boot() -> None:
    """Make sure that this process can and may work; an error is one sentence and its exit code."""
    try:
        rt = runtime()
        logs.take_over("huey")
        if not db.is_postgres():
            hold_worker_lock(rt.settings.state_dir)
        maintenance.recover(rt)
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


def dispatch(wakes: Sequence[Wake]) -> None:
    """Make it happen. Should it fail, the rows are due all the same and the next pulse finds them."""
    try:
        now = [_task(wake) for wake in wakes if wake.at is None]
        if now:
            huey.enqueue_many(now)
        for wake in wakes:
            if wake.at is not None:
                huey.add_schedule(_task(wake))
    except Exception as error:  # noqa: BLE001 queue deleted, locked, server away: the rows remain
        log.warning("wake-ups could not be queued; rescue repeats them", wakes=len(wakes), error=str(error))


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The edge of a task: what goes wrong is one line with its context, and the row's lease brings it back."""

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
    wake = Wake(step, key)
    try:
        dispatch(maintenance.step(runtime(), wake))
    except Exception as error:  # noqa: BLE001 the edge: whatever it was, the job must not stay in our hands
        maintenance.give_back(runtime(), wake, error)


@huey.periodic_task(crontab(minute="*"), priority=50)
@guarded
def rescue_rows() -> None:
    dispatch(maintenance.rescue(runtime(), huey.pending_count()))


def _task(wake: Wake) -> Any:
    eta = None if wake.at is None else datetime.datetime.fromtimestamp(wake.at, datetime.UTC).replace(tzinfo=None)
    return run_step.s(wake.step, wake.key, eta=eta, priority=PRIORITY[wake.step])
