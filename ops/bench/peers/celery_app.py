"""The same job as an ordinary Celery 5 + Redis pipeline: a task per list, one per event, one per delivery, acks late.

Written as its users would: JSON messages, results off, late acknowledgement, a lost worker's tasks are given again,
SQLite in WAL mode for what was seen. Standard events are collected in a Redis list and go out a hundred at a time.
"""

import json
import os
import sqlite3
import threading
import time
from typing import Any

import redis
from celery import Celery

from csi.emitter.http import Receiver, envelope, send
from csi.ingester.signature import canonical, new_request_id
from csi.net import HttpResponse, Net
from ops.bench.floor import event_of, read_list

FACTS: dict[str, Any] = json.loads(os.environ["CSI_BENCH_FACTS"])
PER_REQUEST: int = FACTS["per_request"]
BUFFER = "csi-bench:waiting"
TABLE = "CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, body TEXT, delivered INTEGER DEFAULT 0)"
ADD = "INSERT OR IGNORE INTO events (id, body) VALUES (?, ?)"

app = Celery("peer", broker=FACTS["redis"].replace("unix://", "redis+socket://"))
app.conf.update(
    task_acks_late=FACTS.get("acks_late", True),
    task_reject_on_worker_lost=FACTS.get("acks_late", True),
    task_ignore_result=True,
    worker_prefetch_multiplier=32,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 10},
    worker_hijack_root_logger=False,
)
net, waiting = Net(), redis.Redis.from_url(FACTS["redis"])
target = Receiver(FACTS["endpoint"], FACTS["secret"].encode(), FACTS["secret"], 30.0)
_local = threading.local()


def database() -> sqlite3.Connection:
    if not hasattr(_local, "db"):
        _local.db = sqlite3.connect(f"{FACTS['home']}/peer.db", isolation_level=None, timeout=30)
        _local.db.execute("PRAGMA journal_mode=wal")
        _local.db.execute("PRAGMA synchronous=normal")
        _local.db.execute(
            "CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, body TEXT, delivered INTEGER DEFAULT 0)"
        )
    return _local.db


@app.task
def poll(ref: str) -> None:
    for item in read_list(net, FACTS["api"], ref):
        ingest.delay(item)


@app.task
def ingest(item: dict[str, Any]) -> None:
    event = event_of(item)
    body = json.dumps(event)
    new = (
        database().execute("INSERT OR IGNORE INTO events (id, body) VALUES (?, ?)", (event["event_id"], body)).rowcount
    )
    if not new:
        return
    if PER_REQUEST == 1:
        deliver.delay([event])
    elif waiting.rpush(BUFFER, body) >= PER_REQUEST:
        taken = waiting.lpop(BUFFER, PER_REQUEST)
        if taken:
            deliver.delay([json.loads(text) for text in taken])


@app.task(bind=True, max_retries=2)
def deliver(self: Any, events: list[dict[str, Any]]) -> None:
    request = new_request_id()
    body = canonical(envelope("peer", f"batch_{request}", events), "ascii")
    answer = send(net, target, body, message_id=f"batch_{request}", request_id=request, now=time.time())
    if not isinstance(answer, HttpResponse) or answer.status != 200:
        raise self.retry(countdown=(20, 60)[self.request.retries])
    with database() as db:
        db.executemany("UPDATE events SET delivered = 1 WHERE id = ?", [(event["event_id"],) for event in events])


@app.task
def flush() -> None:
    """What is left of a hundred, as a beat would do it every half second."""
    while taken := waiting.lpop(BUFFER, PER_REQUEST):
        deliver.delay([json.loads(text) for text in taken])
