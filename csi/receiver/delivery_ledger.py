"""An append-only file with every event received and its verdict, for tests and the demo."""

import json
import os
from pathlib import Path

from csi.errors import StoreError
from csi.receiver.batch import EventVerdict, ReceivedBatch, fingerprint
from csi.receiver.request_error import RequestError
from csi.receiver.store import VerifiedRequest


class DeliveryLedger:
    """One JSON line per event per verified request, written before the request is answered."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: the ledger cannot be opened: {error.strerror}") from error

    def write(self, batch: ReceivedBatch, request: VerifiedRequest, verdicts: list[EventVerdict]) -> None:
        """One write for the whole batch, so that lines of two requests never mix."""
        lines = []
        for item, verdict in zip(batch.items, verdicts, strict=True):
            event = item.raw if isinstance(item.raw, dict) else {}
            event_id, emitted_at = event.get("event_id"), event.get("emitted_at")
            line = {
                "at": request.at,
                "event_id": event_id if isinstance(event_id, str) else None,
                "batch_id": batch.batch_id,
                "request_id": request.request_id,
                "verdict": verdict,
                "emitted_at": emitted_at if isinstance(emitted_at, str) else None,
                "body_sha256": fingerprint(item.raw),
            }
            lines.append(json.dumps(line) + "\n")
        text = "".join(lines).encode()
        try:
            written = os.write(self._handle, text)
        except OSError as error:
            raise RequestError(503, "storage_failed", retry_after=60) from error
        if written != len(text):
            raise RequestError(503, "storage_full", retry_after=60)

    def close(self) -> None:
        os.close(self._handle)
