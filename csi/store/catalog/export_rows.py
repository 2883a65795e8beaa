"""The rows of an export, in pages by their key: a large table is never read at once."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Literal

from csi.store.catalog.channels import Channel
from csi.store.catalog.stats import ChannelStats, VideoStats
from csi.store.catalog.videos import CatalogVideo
from csi.store.db import fetch

PAGE = 1_000
ExportKind = Literal["channels", "videos", "captures", "channel-captures"]
ROWS: dict[ExportKind, type[Channel | CatalogVideo | VideoStats | ChannelStats]] = {
    "channels": Channel,
    "videos": CatalogVideo,
    "captures": VideoStats,
    "channel-captures": ChannelStats,
}
_TABLES = {"channels": "channels", "videos": "videos", "captures": "video_stats", "channel-captures": "channel_stats"}
# (condition for one channel, time column)
_LIMITS: dict[ExportKind, tuple[str, str]] = {
    "channels": ("id = ?", "tracked_since"),
    "videos": ("channel_id = ?", "published_at"),
    "captures": ("video_id IN (SELECT v.id FROM videos v WHERE v.channel_id = ?)", "captured_at"),
    "channel-captures": ("channel_id = ?", "captured_at"),
}


def pages(kind: ExportKind, channel_id: str | None, since: float) -> Iterator[Sequence[Sequence[Any]]]:
    """In the order of their ids; ids of captures are in the order of their times. `since` 0: all."""
    names, (of_channel, time) = [field.name for field in fields(ROWS[kind])], _LIMITS[kind]
    terms, values = ["id > ?"], list[Any]()
    if channel_id is not None:
        terms.append(of_channel)
        values.append(channel_id)
    if since:
        terms.append(f"{time} >= ?")
        values.append(since)
    sql = f"SELECT {', '.join(names)} FROM {_TABLES[kind]} WHERE {' AND '.join(terms)} ORDER BY id LIMIT {PAGE}"
    last = ""
    while rows := fetch(sql, last, *values):
        yield rows
        last = rows[-1][names.index("id")]
