"""The options of a watch that an operator gave it, and their change, for CLI, admin API and dashboard.

A configured watch stores what differs from the configuration, which stays in force when the file is read again; for the
other keys the file keeps applying.

A revision is derived from the options: two operators who load the same watch have the same revision, and the second one
to save has an old one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from csi.admin import watches
from csi.admin.watches import WatchOptions, WatchRefused, WatchTarget
from csi.config.source_settings import WatchSettings
from csi.logs import log
from csi.pipeline import schedule
from csi.runtime import Runtime
from csi.store import watch_admin
from csi.store.db import writing
from csi.store.models import Watch

KEYS = (
    "name", "poll_interval_seconds", "route_profile", "tags", "first_poll", "include", "title", "min_duration_seconds",
    "max_duration_seconds", "via",
)  # fmt: skip
LABELS = {
    "name": "name", "poll_interval_seconds": "interval", "route_profile": "route profile", "tags": "tags",
    "first_poll": "first poll", "include": "kinds", "title": "title filter", "min_duration_seconds": "shortest length",
    "max_duration_seconds": "longest length", "via": "via",
}  # fmt: skip


class WatchChangedMeanwhile(WatchRefused):
    """Another operator changed the watch since its revision was read."""


@dataclass(frozen=True)
class OptionChange:
    """One option that differs. None: the source's default."""

    key: str
    before: Any
    after: Any

    @property
    def words(self) -> str:
        return f"{LABELS[self.key]} from {value_text(self.before)} to {value_text(self.after)}"


def value_text(value: Any) -> str:
    """A value of an option as the CLI takes it."""
    match value:
        case None:
            return "the source's default"
        case {"last": last}:
            return f"last:{last}"
        case dict():
            return ", ".join(f"{key} {text}" for key, text in value.items())
        case list() | tuple():
            return ", ".join(map(str, value)) or "none"
        case float():
            return f"{value:g} s"
        case _:
            return str(value)


def source_has(rt: Runtime, watch: Watch, key: str) -> bool:
    """Whether watches of this source have this option."""
    settings = rt.settings.sources.get(watch.source)
    return settings is not None and settings.watch_key is not None and key in watches.watch_model(settings).model_fields


def options_of(rt: Runtime, watch: Watch) -> WatchOptions:
    """The options that were set for this watch; a key that is absent has the source's default."""
    if watch.origin == "config":
        merged = {**_configured(_block(rt, watch)), **changed_options(watch)}
        return WatchOptions({key: value for key, value in merged.items() if value is not None})
    if watch.options_json is not None:
        return WatchOptions(json.loads(watch.options_json))
    # A watch that an earlier release stored: what differs from its source.
    settings = rt.settings.sources.get(watch.source)
    stored = json.loads(watch.filters_json)
    inherited = settings.filters_of() if settings else {}
    interval = watch.own_interval
    if interval is None and settings is not None and watch.interval_seconds != settings.poll_interval_seconds:
        interval = watch.interval_seconds
    given = {
        "name": watch.name if watch.name != watch.title else None,
        "poll_interval_seconds": interval,
        "route_profile": watch.route_profile,
        "tags": json.loads(watch.tags_json) or None,
        **{key: value for key, value in stored.items() if inherited.get(key) != value},
        "via": watch.via if watch.via != "feed" and source_has(rt, watch, "via") else None,
    }
    return WatchOptions({key: value for key, value in given.items() if value is not None})


def changed_options(watch: Watch) -> WatchOptions:
    """What an operator changed of a configured watch. None: the source's default instead of the file's value."""
    return WatchOptions(json.loads(watch.options_json or "{}") if watch.origin == "config" else {})


def _block(rt: Runtime, watch: Watch) -> WatchSettings | None:
    """None: the configuration has this watch no more, or its source has no list of watches."""
    settings = rt.settings.sources.get(watch.source)
    return next((one for one in settings.watches if one.ref == watch.ref), None) if settings else None


def _configured(block: WatchSettings | None) -> WatchOptions:
    given = block.model_dump(mode="json", exclude_unset=True, exclude_none=True) if block else {}
    return WatchOptions({key: given[key] for key in KEYS if key in given})


def revision_of(rt: Runtime, watch: Watch) -> str:
    text = json.dumps([watch.origin, options_of(rt, watch)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def change(
    rt: Runtime,
    watch: Watch,
    given: Mapping[str, Any],
    *,
    revision: str | None = None,
    seen: Mapping[str, Any] | None = None,
    from_file: bool = False,
    dry_run: bool = False,
) -> list[OptionChange]:
    """Set these options; None takes the source's default again. Returns those that differ now.

    WatchChangedMeanwhile when the revision is not the present one; `seen` are the options that its reader saw, for the
    message. The configuration file is never rewritten; `from_file` makes all options those of the file again.
    """
    if watch.state == "removed":
        raise WatchRefused(f"{watch.ref} was removed; add it again with `csi sources add`")
    if not may_change(rt, watch):
        raise WatchRefused(f"{watch.source} has no list of watches: change it at {place_in_file(rt, watch)}")
    if from_file and watch.origin != "config":
        raise WatchRefused(f"{watch.ref} was added by command: the configuration file has no options of it")
    with writing():  # what the revision is compared with must be what is replaced
        found = watch_admin.find(watch.source, watch.ref)
        if found is None or found.state == "removed":
            raise WatchRefused(f"{watch.ref} was removed meanwhile")
        before = options_of(rt, found)
        if revision is not None and revision != revision_of(rt, found):
            raise WatchChangedMeanwhile(_meanwhile(found, before, seen))
        block = _block(rt, found) if found.origin == "config" else None
        configured = _configured(block)
        after = configured if from_file else {**before, **given}
        after = {key: value for key, value in after.items() if value is not None}
        checked = watches.validated_options(rt, WatchTarget(found.source, found.ref), after)
        plain = checked.model_dump(mode="json", exclude_none=True)
        after = {key: plain[key] for key in after if key in plain}
        changes = [
            OptionChange(key, before.get(key), after.get(key)) for key in KEYS if before.get(key) != after.get(key)
        ]
        was_read = found.first_read_at is not None or found.last_success_at is not None
        if was_read and any(one.key == "first_poll" for one in changes):
            raise WatchRefused(
                f"first_poll decides about the first poll, and {found.ref} was polled already: "
                "`csi sources reset` lets it begin again"
            )
        if changes and not dry_run:
            stored = dict(after)
            if found.origin == "config":
                stored = {key: after.get(key) for key in KEYS if after.get(key) != configured.get(key)}
            if block is not None:  # it may have keys that are no options
                checked = schedule.with_changes(block, stored)
            wanted = schedule.wanted_watch(rt, found.source, found.ref, checked)
            is_as_configured = found.origin == "config" and not stored
            watch_admin.change(found, wanted, None if is_as_configured else json.dumps(stored), rt.now())
    if changes and not dry_run:
        keys = ", ".join(one.key for one in changes)
        log.info("watch changed by the operator", source=watch.source, watch=watch.ref, id=watch.id, keys=keys)
    return changes


def may_change(rt: Runtime, watch: Watch) -> bool:
    """Whether the watch has options of its own: a source without a list of watches is changed in the file only."""
    settings = rt.settings.sources.get(watch.source)
    return settings is None or settings.watch_key is not None


def place_in_file(rt: Runtime, watch: Watch) -> str:
    settings = rt.settings.sources.get(watch.source)
    return f"sources.{watch.source}" + (f".{settings.watch_key}" if settings and settings.watch_key else "")


def _meanwhile(watch: Watch, now: Mapping[str, Any], seen: Mapping[str, Any] | None) -> str:
    keys = [key for key in KEYS if seen is not None and seen.get(key) != now.get(key)]
    what = "; ".join(OptionChange(key, (seen or {}).get(key), now.get(key)).words for key in keys)
    text = f"{watch.name or watch.ref} was changed meanwhile"
    return f"{text}: {what}" if what else f"{text}; look at it again, and repeat the change"
