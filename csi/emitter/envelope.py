"""The body of one request: the envelope around the events of a batch (PRD §8.1)."""

from typing import Any

from csi import __version__


def envelope(instance_id: str, batch_id: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "csi_version": __version__,
        "csi_instance_id": instance_id,
        "batch_id": batch_id,
        "events": events,
    }
