"""Export channels, videos and captures as CSV or Parquet, page by page."""

import csv
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal, get_type_hints

from csi import clock
from csi.errors import CsiError
from csi.store.catalog import export_rows
from csi.store.catalog.export_rows import ExportKind

ExportFormat = Literal["csv", "parquet"]
TIMES = frozenset({
    "created_at", "tracked_since", "last_refreshed_at", "next_refresh_at", "missing_since", "backfilled_at",
    "published_at", "first_seen_at", "captured_at",
})  # fmt: skip
FREE_TEXT = ("title", "description")
"""Texts of creators: in CSV one that a spreadsheet would run as a formula begins with an apostrophe."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ExportRefused(CsiError):
    """The export cannot be written; the text says why and what to do."""

    exit_code = 2


def write_csv(file: IO[str], kind: ExportKind, channel_id: str | None, since: float) -> int:
    """Returns how many rows were written."""
    names = list(get_type_hints(export_rows.ROWS[kind]))
    writer, count = csv.writer(file, lineterminator="\n"), 0
    writer.writerow(names)
    for page in export_rows.pages(kind, channel_id, since):
        writer.writerows([_cell(name, value) for name, value in zip(names, row, strict=True)] for row in page)
        count += len(page)
    return count


def write_parquet(path: Path, kind: ExportKind, channel_id: str | None, since: float) -> int:
    """Returns how many rows were written. Written beside the file and renamed, so that no reader sees half of it."""
    try:
        import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise ExportRefused(
            "Parquet needs the extra `parquet`: pip install 'creator-signals[parquet]', or use --format csv"
        ) from error
    hints = get_type_hints(export_rows.ROWS[kind])
    schema = pyarrow.schema([(name, _arrow_type(pyarrow, name, hint)) for name, hint in hints.items()])
    temporary, count = path.with_name(f".{path.name}.part"), 0
    try:
        with parquet.ParquetWriter(temporary, schema) as writer:
            for page in export_rows.pages(kind, channel_id, since):
                writer.write_table(_table(pyarrow, schema, page))
                count += len(page)
        temporary.replace(path)
    except OSError as error:
        raise ExportRefused(f"{path}: the export cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return count


def _arrow_type(arrow: ModuleType, name: str, hint: Any) -> Any:
    if name in TIMES:
        return arrow.timestamp("ms", tz="UTC")
    if name == "tags":
        return arrow.list_(arrow.string())
    kinds = {"int": arrow.int64(), "float": arrow.float64(), "bool": arrow.bool_()}
    words = [getattr(part, "__name__", str(part)) for part in getattr(hint, "__args__", (hint,))]
    return next((found for word, found in kinds.items() if word in words), arrow.string())


def _table(arrow: ModuleType, schema: Any, page: Sequence[Sequence[Any]]) -> Any:
    columns = []
    for field, values in zip(schema, zip(*page, strict=True), strict=True):
        if field.name in TIMES:
            values = tuple(None if value is None else datetime.fromtimestamp(value, UTC) for value in values)
        elif field.name == "tags":
            values = tuple(json.loads(value) for value in values)
        elif field.type == arrow.bool_():
            values = tuple(None if value is None else bool(value) for value in values)
        columns.append(arrow.array(values, type=field.type))
    return arrow.Table.from_arrays(columns, schema=schema)


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return ""
    if name in TIMES:
        return clock.iso(value)
    if name == "tags":
        return "; ".join(json.loads(value))
    if name == "caption_available":  # SQLite stores booleans as integers
        return "true" if value else "false"
    if name in FREE_TEXT and str(value).startswith(_FORMULA):
        return f"'{value}"
    return value
