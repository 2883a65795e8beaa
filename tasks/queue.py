"""The Huey of this project: signed messages, no results, no revocation, and a consumer that boots the worker."""

import hashlib
import hmac
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huey import Huey
from huey.api import Task
from huey.consumer import Consumer
from huey.serializer import SignedSerializer

from csi.config.secrets import hide_password
from csi.config.settings import Settings, looks_like_postgres
from csi.errors import ConfigError, CsiError, StoreError
from csi.logs import log
from csi.store.db import make_private_dir
from tasks.storage import IDLE_SECONDS, WakefulSqliteStorage

NAME = "csi"


class WorkerConsumer(Consumer):
    """Huey's consumer, between the worker's boot and its orderly end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._signal_actions.pop(signal.SIGHUP, None)  # Huey would restart the process; ours reloads its configuration
        self._stop_flag_timeout = 0.5  # how often the main thread looks whether a signal came: ten times a second

    def start(self) -> None:
        super().start()
        self.worker.start(self)

    def stop(self, graceful: bool = False) -> None:
        self.worker.pause()
        storage = self.huey.storage if isinstance(self.huey.storage, WakefulSqliteStorage) else None
        if storage is not None:
            storage.let_go()
        super().stop(graceful=graceful)
        if storage is not None:
            storage.put_back()
        self.worker.stop()


class QueueHuey(Huey):
    """Huey for wake-ups: what cannot be read is dropped with one line, and nothing is stored that nobody reads."""

    leads: Callable[[], bool] = staticmethod(lambda: True)
    """Whether this process plans for all that share the queue."""
    looked_at: float = 0.0
    """When the scheduler of this process last looked at what waits for its time. Monotonic."""

    def dequeue(self) -> Task | None:
        """The next task. Garbage and foreign messages are dropped: the rows they might have meant are found again."""
        task, dropped = None, 0
        while task is None and (data := self.storage.dequeue()) is not None:
            task = self._read(data)
            dropped += task is None
        if dropped:
            log.warning("unreadable messages were dropped from the queue", messages=dropped)
        return task

    def _deserialize_all(self, messages: Sequence[bytes]) -> list[Task]:
        """The same for messages that waited for their time, and for those who look at the queue."""
        found = [self._read(data) for data in messages]
        dropped = sum(task is None for task in found)
        if dropped:
            log.warning("unreadable messages were dropped from the queue", messages=dropped)
        return [task for task in found if task is not None]

    def _read(self, data: bytes) -> Task | None:
        try:
            return self.deserialize_task(data)
        except Exception:  # noqa: BLE001 a message from outside may break in any way
            return None

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
        options["max_delay"] = min(options.get("max_delay", IDLE_SECONDS), IDLE_SECONDS)
        consumer = WorkerConsumer(self, **options)
        consumer.worker = worker
        return consumer


def create_huey(settings: Settings) -> QueueHuey:
    """The queue that `csi.queue` names: a SQLite path, redis://… or postgresql://…"""
    url = settings.csi.queue_url
    common = {"results": False, "utc": True, "serializer": create_serializer(settings)}
    try:
        return QueueHuey(NAME, **storage_of(url), **common)
    except CsiError:
        raise
    except Exception as error:  # no access, a folder of that name, a server that is away
        reason = " ".join(str(error).split())[:300]
        raise StoreError(f"csi.queue: {hide_password(url)} cannot be used: {reason}") from error


def create_serializer(settings: Settings) -> SignedSerializer:
    return SignedSerializer(secret=_signing_key(settings), salt=NAME)


def storage_of(url: str) -> dict[str, Any]:
    """What Huey is made with for this address: a SQLite path, redis://… or postgresql://…"""
    if re.match(r"rediss?://", url):
        return {"storage_class": _redis_storage(), "url": url, "read_timeout": 1}
    if looks_like_postgres(url):
        return {"storage_class": _postgres_storage(), "dsn": url}
    if "://" in url:
        raise ConfigError("csi.queue: expected a SQLite path, redis://… or postgresql://…")
    make_private_dir(Path(url).parent)
    return {"storage_class": WakefulSqliteStorage, "filename": url, "timeout": 10}


def _signing_key(settings: Settings) -> str:
    """Messages are pickles: only those signed by us are opened. Every worker of an installation has the same key."""
    own, shared = settings.secrets.queue_secret, settings.delivery.shared_secret
    secret = (own or shared).get_secret_value() if own or shared else "unconfigured"
    return hmac.new(secret.encode(), b"csi queue messages", hashlib.sha256).hexdigest()


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
