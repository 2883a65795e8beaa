"""Queues on a server: Huey's storages for PostgreSQL and Redis, for any number of workers that start together."""

from huey.storage import PostgresStorage

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
