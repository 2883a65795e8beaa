"""Both queues: where each is stored, and the key that signs its messages."""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from csi.config.loader import require_queue
from csi.config.secrets import hide_password
from csi.config.settings import Settings, is_server, is_unprotected_redis, looks_like_postgres
from csi.errors import ConfigError, CsiError, MissingSetting, StoreError
from csi.processing.settings import ProcessingSettings
from csi.sql import make_private_dir
from tasks.huey_worker import QueueHuey
from tasks.serializer import JsonSerializer
from tasks.server_queues import PostgresQueueStorage
from tasks.sqlite_queue import SqliteQueueStorage

NAME = "csi"
KEY_FILE = "queue.key"
"""In the state directory: a random secret that only the user of the worker can read."""

SHORTEST_KEY = 32
REDIS_SECONDS = 10
PROCESSING_NAME = "csi-processing"
PROCESSING_SECRET = "CSI_PROCESSING_QUEUE_SECRET"  # noqa: S105 the name of a variable


def create_huey(settings: Settings) -> QueueHuey:
    """The ingester's queue, which `csi.queue` names: a SQLite path, redis://… or postgresql://…"""
    require_queue(settings)
    url = settings.csi.queue_url
    return _create(NAME, url, _signing_secret(settings), f"csi.queue: {hide_password(url)}")


def create_processing_huey(settings: ProcessingSettings) -> QueueHuey:
    return _create(PROCESSING_NAME, settings.queue_url, _processing_secret(settings), "processing's queue")


def _create(name: str, url: str, secret: str, label: str) -> QueueHuey:
    try:
        return QueueHuey(name, **storage_of(url), results=False, utc=True, serializer=JsonSerializer(secret, name))
    except CsiError:
        raise
    except Exception as error:  # no access, a directory of that name, an unreachable server
        raise StoreError(f"{label} cannot be used: {' '.join(str(error).split())[:300]}") from error


def open_storage(url: str) -> Any:
    """The storage alone, for commands: it hands out bytes, and needs no key."""
    options = storage_of(url)
    return options.pop("storage_class")(NAME, **options)


def storage_of(url: str) -> dict[str, Any]:
    """What Huey is made with for this address: a SQLite path, redis://… or postgresql://…"""
    if re.match(r"rediss?://", url):
        return _redis_options(url)
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
            secret = read_key(settings.csi.state_dir / KEY_FILE)
    return None if secret is None else JsonSerializer(secret, NAME)


def _signing_secret(settings: Settings) -> str:
    """Every worker that shares a queue has the same one. Without a variable, a SQLite queue has a random key file."""
    return _configured_secret(settings) or read_or_create_key(settings.csi.state_dir / KEY_FILE)


def _configured_secret(settings: Settings) -> str | None:
    """A queue on a server accepts the shared secret, as version 1.0.0 did: all workers have it. A SQLite queue uses its
    key file instead: commands find it without the worker's environment, and the receiver does not know it."""
    shared = settings.delivery.shared_secret if is_server(settings.csi.queue_url) else None
    secret = settings.secrets.queue_secret or shared
    return secret.get_secret_value() if secret else None


def _processing_secret(settings: ProcessingSettings) -> str:
    """A variable for several hosts, else the key file. On a server only a key file that is there already is used:
    version 1.0.0 created one, and two hosts that created one each would drop each other's messages."""
    if is_unprotected_redis(settings.queue_url) and not settings.allow_unprotected_queue:
        raise ConfigError(
            "queue (processing.yaml) names a Redis on another host without a password. Put the password into the URL "
            "(redis://:PASSWORD@host:6379/0), or set allow_unprotected_queue: true where a firewall protects it."
        )
    path = settings.state_dir / KEY_FILE
    if not is_server(settings.queue_url):
        return os.environ.get(PROCESSING_SECRET) or read_or_create_key(path)
    secret = os.environ.get(PROCESSING_SECRET) or read_key(path)
    if not secret:
        raise MissingSetting(
            f"processing's queue is on a server, and {PROCESSING_SECRET}, which signs its messages, is not set. Set it "
            "to the same value on every host; make one with: openssl rand -hex 32"
        )
    return secret


def _redis_options(url: str) -> dict[str, Any]:
    """With time limits: a server that takes connections and never answers would block every thread of the worker."""
    try:
        from huey.storage import PriorityRedisStorage
        from redis import ConnectionPool
    except ImportError as error:
        raise ConfigError("a queue on Redis needs the extra: pip install 'csi[redis]'") from error
    pool = ConnectionPool.from_url(url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS)
    return {"storage_class": PriorityRedisStorage, "connection_pool": pool, "read_timeout": 1}


def _postgres_storage() -> type:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise ConfigError("a queue on PostgreSQL needs the extra: pip install 'csi[postgres]'") from error
    return PostgresQueueStorage


def read_key(path: Path) -> str | None:
    """The key, or None where there is no file. StoreError where the file cannot be used."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(1024).decode("ascii", "replace").strip() if stat.S_ISREG(mode) else ""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: the queue's key cannot be read: {error.strerror}") from error
    if len(key) < SHORTEST_KEY:
        raise StoreError(f"{path} does not hold a queue key; delete it, and the worker creates a new one")
    if mode & 0o007:
        raise StoreError(f"{path} is open to other users of this machine; delete it, and the worker creates a new one")
    return key


def read_or_create_key(path: Path) -> str:
    """The key of this file. Processes that start together all get the same one."""
    make_private_dir(path.parent)
    return read_key(path) or _create_key(path)


def _create_key(path: Path) -> str:
    """The file appears under its name complete, or not at all: the link fails where another process was first."""
    draft = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as opened:
            opened.write(secrets.token_hex(32))
            opened.flush()
            os.fsync(file)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise StoreError(f"{path}: the queue's key cannot be created: {error.strerror}") from error
    key = read_key(path)
    if key is None:
        raise StoreError(f"{path}: the queue's key was deleted while it was being created; start again")
    return key
