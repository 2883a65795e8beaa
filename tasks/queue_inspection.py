"""Looking into the queue: messages are read without being taken, and without a task being made of them."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote

from csi.cli.output import plural
from csi.config.secrets import hide_password
from csi.config.settings import Settings, is_server
from csi.doctor.finding import Finding
from csi.errors import CsiError, StoreError
from tasks.queue import NAME, known_serializer, open_storage
from tasks.serializer import JsonSerializer, UnreadableMessage

STEPS = {
    "poll_watch": "poll",
    "ingest_item": "ingest",
    "ingest_ahead": "ahead",
    "flush_tier": "flush",
    "deliver_batch": "deliver",
    "probe_receiver": "probe",
}
CROWDED = 2_000
WITHOUT_KEY = "this shell has neither CSI_QUEUE_SECRET nor the worker's key, so it opens none"


@dataclass(frozen=True)
class Queued:
    """One message: a wake-up for a row."""

    id: str
    task: str
    key: str
    state: str
    """`pending`: the next free thread takes it. `scheduled`: its time has not come."""
    due_at: float | None

    @property
    def step(self) -> str | None:
        """None: a periodic task, or one that this version does not know."""
        return STEPS.get(self.task)


@dataclass(frozen=True)
class Queue:
    """All messages that the key of the queue signed, and the number of the others."""

    messages: tuple[Queued, ...]
    unreadable: int = 0
    has_key: bool = True
    """False: this process cannot verify any message. All are counted as unreadable, and none is parsed."""
    is_there: bool = True


def inspect(settings: Settings) -> Queue:
    """The queue as it is now. StoreError when it cannot be read; a queue that was never made is empty."""
    is_on_server = is_server(settings.csi.queue_url)
    if not is_on_server and not Path(settings.csi.queue_url).exists():  # reading must not make the file
        return Queue((), is_there=False)
    try:
        read = _read_server if is_on_server else _read_file
        pending, scheduled = read(settings.csi.queue_url)
    except CsiError:
        raise
    except Exception as error:  # sqlite3, redis and psycopg have no error in common
        raise _unusable(settings, error) from error
    serializer = known_serializer(settings)
    if serializer is None:
        return Queue((), len(pending) + len(scheduled), has_key=False)
    messages = [*((data, "pending") for data in pending), *((data, "scheduled") for data in scheduled)]
    found = [_read(serializer, data, state) for data, state in messages]
    known = tuple(one for one in found if one is not None)
    return Queue(known, len(found) - len(known))


def _read_file(path: str) -> tuple[list[bytes], list[bytes]]:
    """Read-only and by hand: Huey's storage would make a file that is not there, and ours set a broken one aside."""
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=10)) as file:
        pending = file.execute("SELECT data FROM task WHERE queue = ? ORDER BY priority DESC, id", (NAME,)).fetchall()
        scheduled = file.execute("SELECT data FROM schedule WHERE queue = ? ORDER BY timestamp", (NAME,)).fetchall()
    return [row[0] for row in pending], [row[0] for row in scheduled]


def _read_server(url: str) -> tuple[list[bytes], list[bytes]]:
    storage = open_storage(url)
    return list(storage.enqueued_items()), list(storage.scheduled_items())


def empty(settings: Settings) -> None:
    """Throw all messages away. Rows that are due are woken again within seconds."""
    try:
        storage = open_storage(settings.csi.queue_url)
        storage.flush_queue()
        storage.flush_schedule()
    except CsiError:
        raise
    except Exception as error:
        raise _unusable(settings, error) from error


def unreadable_words(found: Queue) -> str:
    """One sentence about the messages that were not opened."""
    why = "another key signed them, version 1.0.0 wrote them, or they are damaged"
    return f"{plural(found.unreadable, 'message')} cannot be verified: {why if found.has_key else WITHOUT_KEY}"


def _unusable(settings: Settings, error: Exception) -> StoreError:
    reason = " ".join(str(error).split())[:200]
    return StoreError(f"csi.queue: {hide_password(settings.csi.queue_url)} cannot be read: {reason}")


def _read(serializer: JsonSerializer, data: Any, state: str) -> Queued | None:
    try:
        message = serializer.deserialize(data)
    except UnreadableMessage:
        return None
    return Queued(
        id=message.id,
        task=message.name.rpartition(".")[2],
        key=str(message.args[0] if message.args else ""),
        state=state,
        due_at=message.eta.replace(tzinfo=UTC).timestamp() if message.eta else None,
    )


def examine(settings: Settings) -> Iterable[Finding]:
    """For `csi doctor`: can the queue be used, and does it drain?"""
    where = hide_password(settings.csi.queue_url)
    try:
        found = inspect(settings)
    except StoreError as error:
        url = settings.csi.queue_url
        remedy = f"it holds wake-ups only, and may be deleted at any time: `rm -rf {url} {url}-wal {url}-shm`"
        if is_server(url):
            remedy = "start the server that csi.queue (CSI_QUEUE_URL) names, or correct the address"
        yield Finding("queue", "fail", str(error), remedy)
        return
    if not found.is_there:
        yield Finding("queue", "ok", f"{where} is not there yet; the worker makes it")
    elif found.unreadable:
        empty_it = "`csi tasks purge --yes` empties it; rows that are due are woken again"
        remedy = empty_it if found.has_key else "run the command with the environment and as the user of the worker"
        yield Finding("queue", "warn", unreadable_words(found), remedy)
    elif len(found.messages) > CROWDED:
        text = f"{len(found.messages):,} messages wait: the worker does not keep up, or does not run"
        yield Finding("queue", "warn", text, "see what waits with `csi tasks stats`, and whether the worker runs")
    else:
        yield Finding("queue", "ok", f"{len(found.messages):,} messages in {where}")
