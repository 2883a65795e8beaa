"""The Huey of this project: signed messages, no results, no revocation, and a consumer that boots the worker."""

import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from huey import Huey
from huey.api import Task
from huey.consumer import Consumer

from csi.config.loader import require_queue
from csi.config.secrets import hide_password
from csi.config.settings import Settings, is_server, looks_like_postgres
from csi.errors import ConfigError, CsiError, StoreError
from csi.logs import log
from csi.sql import make_private_dir
from tasks import key_file
from tasks.serializer import JsonSerializer, is_from_1_0
from tasks.sqlite_queue import IDLE_SECONDS, SqliteQueueStorage

NAME = "csi"
SCHEDULER_INTERVAL = 0.25
"""Seconds between two looks at the schedule, which carries polls, flushes and retries. Huey's own least is 1."""

DROPS_LOGGED_SECONDS = 60.0
"""Between two log lines about dropped messages: a stranger who can write to the queue must not fill the log."""


class WorkerConsumer(Consumer):
    """Huey's consumer, between the worker's boot and its orderly end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._signal_actions.pop(signal.SIGHUP, None)  # Huey would restart the process; ours reloads its configuration
        self._stop_flag_timeout = 0.5  # how often the main thread looks whether a signal came: ten times a second

    def _create_scheduler(self) -> Any:
        scheduler = super()._create_scheduler()
        scheduler.interval = SCHEDULER_INTERVAL
        return scheduler

    def start(self) -> None:
        super().start()
        self.worker.start(self)

    def stop(self, graceful: bool = False) -> None:
        self.worker.pause()
        storage = self.huey.storage if isinstance(self.huey.storage, SqliteQueueStorage) else None
        if storage is not None:
            storage.stop_blocking()
        super().stop(graceful=graceful)
        if storage is not None:
            storage.return_taken()
        self.worker.stop()


class QueueHuey(Huey):
    """Huey for wake-ups: unreadable messages are dropped and counted in the log; no results are stored."""

    leads: Callable[[], bool] = staticmethod(lambda: True)
    """Whether this process plans for all that share the queue."""
    looked_at: float = 0.0
    """When the scheduler of this process last looked at what waits for its time. Monotonic."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._counting = threading.Lock()
        self._dropped = 0
        self._drops_logged = float("-inf")

    def dequeue(self) -> Task | None:
        """The next task. Unreadable messages are dropped: rescue finds the rows they may have been for."""
        task, dropped = None, 0
        while task is None and (data := self.storage.dequeue()) is not None:
            task = self._read(data)
            dropped += task is None
        self._count_dropped(dropped)
        return task

    def _deserialize_all(self, messages: Sequence[bytes]) -> list[Task]:
        """The same for messages that waited for their time, and for callers that list the queue."""
        found = [self._read(data) for data in messages]
        self._count_dropped(sum(task is None for task in found))
        return [task for task in found if task is not None]

    def _read(self, data: bytes) -> Task | None:
        """None: the key did not sign the message, or no task has this name."""
        try:
            return self.deserialize_task(data)
        except Exception:  # noqa: BLE001 a message from outside may break in any way
            return None

    def _count_dropped(self, number: int) -> None:
        with self._counting:
            self._dropped += number
            if not self._dropped or time.monotonic() - self._drops_logged < DROPS_LOGGED_SECONDS:
                return
            number, self._dropped, self._drops_logged = self._dropped, 0, time.monotonic()
        log.warning("unreadable messages were dropped from the queue", messages=number)

    def drop_messages_of_1_0(self) -> None:
        """Empty a queue that holds messages of version 1.0.0, without opening one. Rescue wakes the rows again.

        Called once, when the worker starts: dropped one by one, as each falls due, they would be many log lines.
        """
        try:
            found = [*self.storage.enqueued_items(), *self.storage.scheduled_items()]
            old = sum(map(is_from_1_0, found))
            if old:
                self.storage.flush_queue()
                self.storage.flush_schedule()
                log.warning("queue was emptied: messages of version 1.0.0 are not read", messages=len(found), old=old)
        except Exception as error:  # noqa: BLE001 a server that is away: `dequeue` drops them later
            log.warning("queue could not be searched for messages of version 1.0.0", error=str(error)[:300])

    def enqueue_many(self, tasks: Sequence[Task]) -> None:
        """Many tasks in one commit, where the storage can; one by one where not."""
        messages = [(self.serialize_task(task), task.priority or 0) for task in tasks]
        if hasattr(self.storage, "enqueue_many"):
            self.storage.enqueue_many(messages)
        else:
            for data, priority in messages:
                self.storage.enqueue(data, priority)

    def read_schedule(self, timestamp: Any = None) -> list[Task]:
        self.looked_at = time.monotonic()
        return list(super().read_schedule(timestamp))

    def read_periodic(self, timestamp: Any) -> list[Task]:
        """Of several workers one puts what is to be done every minute and every hour."""
        return list(super().read_periodic(timestamp)) if self.leads() else []

    def is_revoked(self, task: Task, timestamp: Any = None, peek: bool = True) -> bool:
        return False  # rows decide whether work is still wanted; this saves a read per task

    def delete(self, key: str) -> bool:
        return False  # only revocations and results are stored under keys, and we have neither

    def create_consumer(self, **options: Any) -> WorkerConsumer:
        """Called by huey_consumer only: here the process becomes the worker."""
        from tasks import worker

        worker.boot(threads=options.get("workers", 1))
        self.leads, self.looked_at = worker.has_led, time.monotonic()
        self.drop_messages_of_1_0()
        options["max_delay"] = min(options.get("max_delay", IDLE_SECONDS), IDLE_SECONDS)
        consumer = WorkerConsumer(self, **options)
        consumer.worker = worker
        return consumer


def create_huey(settings: Settings) -> QueueHuey:
    """The queue that `csi.queue` names: a SQLite path, redis://… or postgresql://…"""
    url = settings.csi.queue_url
    require_queue(settings)
    common = {"results": False, "utc": True, "serializer": JsonSerializer(_signing_secret(settings), NAME)}
    try:
        return QueueHuey(NAME, **storage_of(url), **common)
    except CsiError:
        raise
    except Exception as error:  # no access, a folder of that name, a server that is away
        reason = " ".join(str(error).split())[:300]
        raise StoreError(f"csi.queue: {hide_password(url)} cannot be used: {reason}") from error


def open_storage(url: str) -> Any:
    """The storage alone, for commands: it hands out bytes, and needs no key."""
    options = storage_of(url)
    return options.pop("storage_class")(NAME, **options)


def storage_of(url: str) -> dict[str, Any]:
    """What Huey is made with for this address: a SQLite path, redis://… or postgresql://…"""
    if re.match(r"rediss?://", url):
        return {"storage_class": _redis_storage(), "url": url, "read_timeout": 1}
    if looks_like_postgres(url):
        return {"storage_class": _postgres_storage(), "dsn": url}
    if "://" in url:
        raise ConfigError("csi.queue: expected a SQLite path, redis://… or postgresql://…")
    make_private_dir(Path(url).parent)
    return {"storage_class": SqliteQueueStorage, "filename": url, "timeout": 10}


def known_serializer(settings: Settings) -> JsonSerializer | None:
    """For commands: None where this process does not have the key. It never creates one: root's would lock the worker
    out."""
    secret = _configured_secret(settings)
    if secret is None and not is_server(settings.csi.queue_url):
        with suppress(StoreError):
            secret = key_file.read_key(settings.csi.state_dir / key_file.NAME)
    return None if secret is None else JsonSerializer(secret, NAME)


def _signing_secret(settings: Settings) -> str:
    """Every worker that shares a queue has the same one. Without a variable, a SQLite queue has a random key file."""
    return _configured_secret(settings) or key_file.read_or_create_key(settings.csi.state_dir / key_file.NAME)


def _configured_secret(settings: Settings) -> str | None:
    """A queue on a server accepts the shared secret, as version 1.0.0 did: all workers have it. A SQLite queue uses its
    key file instead: commands find it without the worker's environment, and the receiver does not know it."""
    shared = settings.delivery.shared_secret if is_server(settings.csi.queue_url) else None
    secret = settings.secrets.queue_secret or shared
    return secret.get_secret_value() if secret else None


def _redis_storage() -> type:
    try:
        import redis  # noqa: F401
        from huey.storage import PriorityRedisStorage
    except ImportError as error:
        raise ConfigError("a queue on Redis needs the extra: pip install 'csi[redis]'") from error
    return PriorityRedisStorage


def _postgres_storage() -> type:
    try:
        import psycopg  # noqa: F401
        from huey.storage import PostgresStorage
    except ImportError as error:
        raise ConfigError("a queue on PostgreSQL needs the extra: pip install 'csi[postgres]'") from error
    return PostgresStorage
