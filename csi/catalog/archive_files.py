"""Archive files: old rows in one compressed file per kind and month, written, read and restored."""

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from csi.errors import CsiError
from csi.logs import log
from csi.runtime import Runtime
from csi.sql import give_to_owner_of_directory, make_private_dir
from csi.store.catalog import archives
from csi.store.catalog.archives import Archive, ArchiveKind
from csi.store.db import writing

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Rows = Sequence[tuple[Any, ...]]
KEEP_DAYS = 7.0
DAY = 86_400.0


class ArchiveError(CsiError):
    """An archive file cannot be written or read. Rows that were not written stay in the database."""


@dataclass(frozen=True)
class RestoreResult:
    name: str
    rows: int
    kept_until: float


def folder(rt: Runtime) -> Path:
    return rt.settings.catalog.archive_dir or rt.settings.csi.state_dir / "archive"


def move(rt: Runtime, kind: ArchiveKind, month: str, choose: Callable[[], Rows], remove: Callable[[Rows], int]) -> int:
    """Move one chunk of rows into the month's file, in one transaction. Returns how many rows were moved.

    The row of `archives` holds the file's valid length. A crash before the commit leaves bytes behind that length; the
    next write truncates them, and the rows are still in their table.
    """
    name = f"{kind}-{month}.jsonl.gz"
    if not choose():
        return 0
    with writing():
        book = archives.lock(name, kind, month)
        # Chosen again under the lock: another worker may have moved the rows, or restored the month.
        rows = choose() if (book.kept_until or 0.0) <= rt.now() else []
        if not rows:
            return 0
        named = [dict(zip(archives.COLUMNS[kind], row, strict=True)) for row in rows]
        data = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in named).encode()
        size = _append(folder(rt) / name, book.bytes, data)
        if remove(rows) != len(rows):
            raise ArchiveError(
                f"{name}: rows changed while they were archived; they are kept, and the next run tries again"
            )
        archives.record_write(name, len(rows), size, rt.now())
        return len(rows)


def restore(rt: Runtime, name: str, *, keep_days: float = KEEP_DAYS) -> RestoreResult:
    """Copy the rows of a file back into their table, where they stay for `keep_days`.

    The file is read completely first, so that a damaged one changes nothing. Rows are written in chunks, so that other
    writers do not wait long; a crash leaves some rows restored and the file unchanged, and a second run completes it.
    """
    book = archives.find(name)
    if book is None:
        raise ArchiveError(f"there is no archive {name[:80]!r}; see `csi archive list`")
    count, until = sum(1 for _ in read(rt, book)), rt.now() + keep_days * DAY
    with writing():
        archives.keep_restored_until(name, until)
    rows, back = read(rt, book), 0
    while chunk := list(islice(rows, archives.CHUNK)):
        with writing():
            back += archives.restore_rows(book.kind, chunk)
    if back < count:
        raise ArchiveError(f"{back:,} of {count:,} rows of {name} are back in the database; the file keeps all of them")
    with writing():
        archives.mark_restored(name)
    log.info("archive restored", archive=name, rows=count)
    return RestoreResult(name, count, until)


def read(rt: Runtime, book: Archive) -> Iterator[dict[str, Any]]:
    """The rows of a file. ArchiveError when it is missing, damaged or incomplete."""
    path, count = folder(rt) / book.name, 0
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=io.BufferedReader(_ValidBytes(file, book.bytes))) as lines:
            for line in lines:
                count += 1
                yield json.loads(line)
    except FileNotFoundError as error:
        raise ArchiveError(f"{path} does not exist; restore it from a backup") from error
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"{path} is damaged: {error}; restore it from a backup") from error
    if count != book.rows:
        raise ArchiveError(f"{path} holds {count:,} of {book.rows:,} rows; restore it from a backup")


def delete(rt: Runtime, book: Archive) -> None:
    """Delete a file and its row permanently."""
    with writing():
        archives.forget(book.name)
    (folder(rt) / book.name).unlink(missing_ok=True)


def _append(path: Path, size: int, data: bytes) -> int:
    """Append behind the valid bytes. Each chunk is a gzip member of its own, so that nothing is rewritten."""
    try:
        make_private_dir(path.parent)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
            give_to_owner_of_directory(path, file.fileno())
            if os.fstat(file.fileno()).st_size < size:
                raise ArchiveError(f"{path} is shorter than its recorded length; restore it from a backup")
            file.truncate(size)
            file.seek(size)
            file.write(gzip.compress(data, mtime=0))
            # On disk before the caller commits the deletion: after a power loss the rows are in the file or the table.
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        raise ArchiveError(f"{path} cannot be written: {error.strerror}; nothing was removed") from error


class _ValidBytes(io.RawIOBase):
    """The valid bytes of a file: an interrupted write may have left more."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        data = self._file.read(min(len(memoryview(buffer)), self._left))
        memoryview(buffer)[: len(data)] = data
        self._left -= len(data)
        return len(data)
