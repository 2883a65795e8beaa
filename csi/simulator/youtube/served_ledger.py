"""Ledger S: every readable item that left in a completed answer, once, one JSON line each (FAULTS §1)."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from csi.errors import CsiError
from csi.simulator.youtube.response import ServedItem


class ServedLedger:
    """Append-only and flushed line by line, so that a killed simulator leaves a true file."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise CsiError(f"cannot write the ledger {path}: {error.strerror}; choose another file") from error
        self._seen: set[tuple[str, str, str]] = set()

    def record(self, served: Iterable[ServedItem], at: float) -> None:
        """Those that were never served before."""
        fresh = [item for item in served if (item.kind, item.video_id, item.ref) not in self._seen]
        for item in fresh:
            self._seen.add((item.kind, item.video_id, item.ref))
        if fresh:
            self._file.writelines(json.dumps({"at": at, **asdict(item)}) + "\n" for item in fresh)
            self._file.flush()

    def close(self) -> None:
        self._file.close()
