"""An append-only list of every event that came and what became of it: an oracle for tests and the demo."""

import json
import os
from pathlib import Path

from csi.errors import StoreError
from csi.receiver.batch import Batch, Item, Verdict, fingerprint
from csi.receiver.request_error import RefusalError
from csi.receiver.store import Arrival


class Ledger:
    """One JSON line per event per verified request, written before the request is answered."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: the ledger cannot be opened: {error.strerror}") from error

    def write(self, batch: Batch, arrival: Arrival, verdicts: list[Verdict]) -> None:
        """One write for the whole batch, so that lines of two requests never mix."""
        pairs = zip(batch.items, verdicts, strict=True)
        lines = [json.dumps(_line(batch, arrival, item, verdict)) + "\n" for item, verdict in pairs]
        text = "".join(lines).encode()
        try:
            written = os.write(self._handle, text)
        except OSError as error:
            raise RefusalError(503, "storage_failed", retry_after=60) from error
        if written != len(text):
            raise RefusalError(503, "storage_full", retry_after=60)

    def close(self) -> None:
        os.close(self._handle)


def _line(batch: Batch, arrival: Arrival, item: Item, verdict: Verdict) -> dict[str, object]:
    return {
        "at": arrival.at,
        "event_id": _text(item, "event_id"),
        "batch_id": batch.batch_id,
        "request_id": arrival.request_id,
        "verdict": verdict,
        "emitted_at": _text(item, "emitted_at"),
        "body_sha256": fingerprint(item.raw),
    }


def _text(item: Item, name: str) -> str | None:
    value = item.raw.get(name) if isinstance(item.raw, dict) else None
    return value if isinstance(value, str) else None
