"""All sources by name: the built-in ones, and those of installed packages (entry-point group `csi.sources`).

A new built-in source is one line in ADAPTERS and one module in this package; docs/adapters.md builds a plugin.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name

from csi.adapters.base import SourceAdapter, Tools
from csi.config.source_settings import SourceSettings, unusable_source
from csi.logs import redact

GROUP = "csi.sources"
ADAPTERS = {
    "youtube_playlist": "csi.adapters.youtube_playlist:YouTubePlaylistAdapter",
    "youtube_channel_rss": "csi.adapters.youtube_channel_rss:YouTubeChannelRSSAdapter",
    "feed": "csi.adapters.feed:FeedAdapter",
    "reddit_subreddit": "csi.adapters.reddit_subreddit:RedditAdapter",
}

_NAME = re.compile(r"[a-z][a-z0-9_]{1,62}")


@dataclass(frozen=True)
class InstalledAdapter:
    """One source: its class, or why it cannot be used."""

    name: str
    path: str
    package: str | None = None
    """The package that brings it, with its version. None: CSI itself."""
    adapter: type[SourceAdapter] | None = None
    fault: str | None = None


def installed() -> dict[str, InstalledAdapter]:
    """Every source by name. A plugin that cannot be used has a `fault` and hinders no other source."""
    own = {name: InstalledAdapter(name, path, adapter=resolve_name(path)) for name, path in ADAPTERS.items()}
    return {**plugins(), **own}


@cache
def plugins() -> Mapping[str, InstalledAdapter]:
    """The sources of other packages, loaded once per process."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=GROUP):
        found[point.name].append(point)
    loaded = {}
    for name, points in sorted(found.items()):
        if name in ADAPTERS:
            continue
        packages = sorted({_package(point) for point in points})
        point, adapter = points[0], None
        if len(packages) > 1:
            fault: str | None = f"{' and '.join(packages)} bring a source of this name; uninstall all but one"
        else:
            try:
                adapter = point.load()
                fault = interface_fault(name, adapter)
            except (Exception, SystemExit) as error:  # noqa: BLE001 a stranger's module may fail in any way
                reason = f"{type(error).__name__}: {redact(str(error))[:300]}"
                fault = f"{point.value} cannot be imported: {reason}"
        loaded[name] = InstalledAdapter(name, point.value, ", ".join(packages), None if fault else adapter, fault)
    return loaded


@cache
def name_clashes() -> tuple[InstalledAdapter, ...]:
    """Plugins that use the name of a built-in source. The built-in source is used."""
    taken = sorted((point for point in entry_points(group=GROUP) if point.name in ADAPTERS), key=_package)
    why = "the name belongs to a source of CSI itself, which is used; the package must choose another name"
    return tuple(InstalledAdapter(point.name, point.value, _package(point), fault=why) for point in taken)


def settings_models() -> dict[str, type[SourceSettings]]:
    """The settings model of `sources.<name>` in the configuration file. That of a plugin which cannot be used accepts
    every key and is never polled."""
    return {
        name: one.adapter.Settings if one.adapter else unusable_source(name, one.fault or "")
        for name, one in installed().items()
    }


def create(name: str, settings: SourceSettings, tools: Tools) -> SourceAdapter:
    adapter = installed()[name].adapter
    assert adapter is not None, f"{name} cannot be used, so it is never enabled"
    return adapter(settings, tools)


def key_stems() -> list[str]:
    """The prefixes of an item's id in the dedupe keys of all sources."""
    return sorted({stem for one in installed().values() if one.adapter for stem in one.adapter.key_stems})


def interface_fault(name: str, adapter: object) -> str | None:
    """Why this object cannot be the adapter of a source of this name. None: it can."""
    if not isinstance(adapter, type) or not issubclass(adapter, SourceAdapter):
        return "it does not name a subclass of csi.adapters.base.SourceAdapter"
    if inspect.isabstract(adapter):
        return f"{adapter.__name__} lacks {', '.join(sorted(adapter.__abstractmethods__))}"
    if not _NAME.fullmatch(name):
        return "a source's name consists of small letters, digits and _, and begins with a letter"
    if getattr(adapter, "name", None) != name:
        return f"{adapter.__name__}.name is {getattr(adapter, 'name', None)!r}, and the entry point's name is {name!r}"
    settings = adapter.Settings
    if not isinstance(settings, type) or not issubclass(settings, SourceSettings):
        return f"{adapter.__name__}.Settings is not a subclass of csi.config.source_settings.SourceSettings"
    if settings.watch_key is not None and settings.watch_key not in settings.model_fields:
        return f"{settings.__name__}.watch_key names {settings.watch_key!r}, which is not one of its fields"
    return None


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
