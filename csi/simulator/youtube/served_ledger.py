"""The ledger of served items: each readable item that left in a complete response, once, as one JSON line."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from csi.errors import CsiError
from csi.simulator.youtube.response import ServedItem


class ServedLedger:
    """Append-only and flushed after each response: a killed simulator leaves a complete file."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise CsiError(f"cannot write the ledger {path}: {error.strerror}; choose another file") from error
        self._seen: set[tuple[str, str, str]] = set()

    def record(self, served: Iterable[ServedItem], at: float) -> None:
        """Write the items that were not served before."""
        fresh = [item for item in served if (item.kind, item.video_id, item.ref) not in self._seen]
        if fresh:
            self._seen.update((item.kind, item.video_id, item.ref) for item in fresh)
            self._file.writelines(json.dumps({"at": at, **asdict(item)}) + "\n" for item in fresh)
            self._file.flush()
