"""Queues on a server: Huey's storages for PostgreSQL and Redis, for any number of workers that start together."""

import struct
import time
from collections.abc import Sequence

from huey.storage import PostgresStorage, PriorityRedisStorage

TABLES_LOCK = 7_234_503
"""The advisory lock of the transaction that creates the tables; the migrations of the databases have others."""


class PostgresQueueStorage(PostgresStorage):
    """Creates its tables once. `CREATE TABLE IF NOT EXISTS` fails where two transactions do it at the same moment."""

    def initialize_schema(self) -> None:
        """Nothing is created where the tables exist: the role of a worker may lack the right to create any."""
        tables = (self.table_kv, self.table_schedule, self.table_task, self.table_counter)
        missing = "select 1 from unnest(%s::text[]) as t (name) where to_regclass(t.name) is null limit 1"
        with self.db(commit=True, close=True) as cursor:
            cursor.execute("select pg_advisory_xact_lock(%s)", (TABLES_LOCK,))
            cursor.execute(missing, (list(tables),))
            if cursor.fetchone():
                for sql in self.ddl:
                    cursor.execute(sql)

    def enqueue_many(self, messages: Sequence[tuple[bytes, float]]) -> None:
        """All or none, in one commit. The notification reaches every thread that waits."""
        insert = f"insert into {self.table_task} (queue, data, priority) values (%s, %s, %s)"  # noqa: S608 our own name
        with self.db(commit=True) as cursor:
            cursor.executemany(insert, [(self.name, data, priority) for data, priority in messages])
            cursor.execute("select pg_notify(%s, '')", (self.channel,))


class RedisQueueStorage(PriorityRedisStorage):
    """Many messages in one request: each of their own is a round trip, which costs more than the work of an item."""

    def enqueue_many(self, messages: Sequence[tuple[bytes, float]]) -> None:
        """In this order among those of one priority."""
        now = int(time.time() * 1e6)
        # As Huey's own `enqueue` writes one: eight bytes of time, then the message; the score is the negative priority.
        members = {struct.pack(">Q", now + place) + data: -priority for place, (data, priority) in enumerate(messages)}
        self.conn.zadd(self.queue_key, members)
