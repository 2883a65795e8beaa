"""Channels, videos, statistics and jobs as plain data, for JSON: times in ISO 8601, names as in the specification."""

from dataclasses import asdict
from typing import Any

from csi import clock
from csi.logs import redact
from csi.store.catalog.channels import Channel, ChannelFeed
from csi.store.catalog.jobs import CatalogJob, JobEvent
from csi.store.catalog.stats import ChannelStats, VideoStats
from csi.store.catalog.videos import CatalogVideo

Entity = Channel | ChannelFeed | CatalogVideo | ChannelStats | VideoStats | CatalogJob | JobEvent
_TIMES = ("_at", "_since")
_OURS = ("lease_token", "lease_until", "changed_at", "captured_on")


def shape(entity: Entity) -> dict[str, Any]:
    return {name: _plain(name, value) for name, value in asdict(entity).items() if name not in _OURS}


def _plain(name: str, value: Any) -> Any:
    if name.endswith(_TIMES) and isinstance(value, int | float):
        return clock.iso(value)
    if name == "error_message" and value:
        return redact(value)  # it may hold an answer's own words, and those what we sent
    if name == "details":
        return {key: redact(told) if isinstance(told, str) else told for key, told in value.items()}
    return list(value) if isinstance(value, tuple) else value
