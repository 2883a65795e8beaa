"""The names of all sources. A new source is one line here and one file beside it."""

import importlib
from functools import cache

from csi.adapters.base import SourceAdapter, Tools
from csi.config.settings import SourceSettings

ADAPTERS = {
    "youtube_playlist": "csi.adapters.youtube_playlist:YouTubePlaylistAdapter",
    "youtube_channel_rss": "csi.adapters.youtube_channel_rss:YouTubeChannelRSSAdapter",
}


@cache
def _load(path: str) -> type[SourceAdapter]:
    module, _, name = path.partition(":")
    adapter: type[SourceAdapter] = getattr(importlib.import_module(module), name)
    return adapter


def settings_models() -> dict[str, type[SourceSettings]]:
    """What the config may say under `sources.<name>`."""
    return {name: _load(path).Settings for name, path in ADAPTERS.items()}


def create(name: str, settings: SourceSettings, tools: Tools) -> SourceAdapter:
    return _load(ADAPTERS[name])(settings, tools)


def key_stems() -> list[str]:
    """What may stand before an item's id in a dedupe key."""
    return sorted({stem for path in ADAPTERS.values() for stem in _load(path).key_stems})
