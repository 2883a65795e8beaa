"""All sources by name. A new source is one line here and one module in this package."""

import importlib
from functools import cache

from csi.adapters.base import SourceAdapter, Tools
from csi.config.settings import SourceSettings

ADAPTERS = {
    "youtube_playlist": "csi.adapters.youtube_playlist:YouTubePlaylistAdapter",
    "youtube_channel_rss": "csi.adapters.youtube_channel_rss:YouTubeChannelRSSAdapter",
    "feed": "csi.adapters.feed:FeedAdapter",
}


@cache
def _load(path: str) -> type[SourceAdapter]:
    module, _, name = path.partition(":")
    adapter: type[SourceAdapter] = getattr(importlib.import_module(module), name)
    return adapter


def settings_models() -> dict[str, type[SourceSettings]]:
    """The settings model of `sources.<name>` in the configuration file."""
    return {name: _load(path).Settings for name, path in ADAPTERS.items()}


def create(name: str, settings: SourceSettings, tools: Tools) -> SourceAdapter:
    return _load(ADAPTERS[name])(settings, tools)


def key_stems() -> list[str]:
    """The prefixes of an item's id in the dedupe keys of all sources."""
    return sorted({stem for path in ADAPTERS.values() for stem in _load(path).key_stems})
