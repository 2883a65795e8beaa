"""Both queues: where each is stored, and the key that signs its messages."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from csi.config.key_files import read_key, read_or_create_key
from csi.config.loader import require_queue
from csi.config.secrets import hide_password
from csi.config.settings import Settings, is_server, is_unprotected_redis, looks_like_postgres
from csi.errors import ConfigError, CsiError, MissingSetting, StoreError
from csi.processing.settings import ProcessingSettings
from csi.sql import make_private_dir
from tasks.huey_worker import QueueHuey
from tasks.serializer import JsonSerializer
from tasks.server_queues import PostgresQueueStorage, RedisQueueStorage
from tasks.sqlite_queue import SqliteQueueStorage

NAME = "csi"
KEY_FILE = "queue.key"
"""In the state directory: a random secret that only the user of the worker can read."""

REDIS_SECONDS = 10
PROCESSING_NAME = "csi-processing"
PROCESSING_SECRET = "CSI_PROCESSING_QUEUE_SECRET"  # noqa: S105 the name of a variable


def create_huey(settings: Settings) -> QueueHuey:
    """The ingester's queue, which `csi.queue` names: a SQLite path, redis://… or postgresql://…"""
    require_queue(settings)
    url = settings.csi.queue_url
    # Every worker that shares a queue has the same one. Without a variable, a SQLite queue has a random key file.
    signing_secret = _configured_secret(settings) or read_or_create_key(settings.csi.state_dir / KEY_FILE)
    return _create(NAME, url, signing_secret, f"csi.queue: {hide_password(url)}")


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
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "a queue on PostgreSQL needs the extra: pip install 'creator-signals[postgres]'"
            ) from error
        return {"storage_class": PostgresQueueStorage, "dsn": url}
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
        from redis import ConnectionPool
    except ImportError as error:
        raise ConfigError("a queue on Redis needs the extra: pip install 'creator-signals[redis]'") from error
    pool = ConnectionPool.from_url(url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS)
    return {"storage_class": RedisQueueStorage, "connection_pool": pool, "read_timeout": 1}
