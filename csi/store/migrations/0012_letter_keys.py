"""A dead letter is found by the key of its item, through an index: its payload need not be searched."""

from typing import Any

COLUMN = "ALTER TABLE dead_letter ADD COLUMN item_key TEXT"
INDEX = "CREATE INDEX idx_dead_item ON dead_letter (item_key{order})"
# A letter of an item that never became an event has its key as `event_id`.
FILL = "UPDATE dead_letter SET item_key = COALESCE({key}, event_id)"
IN_SQLITE = "CASE WHEN json_valid(event_json) THEN json_extract(event_json, '$.dedupe_key') END"
IN_POSTGRES = """substring(event_json from '"dedupe_key": "([^"]+)"')"""


def up(migrator: Any, db: Any) -> None:
    is_sqlite = type(db).__name__.startswith("Sqlite")
    db.execute_sql(COLUMN)
    db.execute_sql(FILL.format(key=IN_SQLITE if is_sqlite else IN_POSTGRES))
    db.execute_sql(INDEX.format(order="" if is_sqlite else " text_pattern_ops"))
