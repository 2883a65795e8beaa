"""The options of a watch on the command line, as `csi sources add`, `set` and `import` have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from csi.admin import watch_options, watches


def watch_option_group(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a new watch, shared by `add` and `import`."""
    options = [
        click.option("--route-profile", metavar="NAME", help="A key of route_profiles."),
        click.option("--tag", "tags", multiple=True, metavar="TEXT", help="Added to the profile's tags; repeatable."),
        click.option("--interval", metavar="TIME", help="Time between two polls: 90, 5m.  [default: the source's]"),
        click.option("--first-poll", metavar="POLICY", help="What the first poll emits: mark_seen, all or last:N."),
        click.option("--include", metavar="KINDS", help="Kinds to emit, comma-separated: video,short,live,upcoming."),
        click.option("--title-match", metavar="REGEX", help="Emit only items whose title matches."),
        click.option("--title-not", metavar="REGEX", help="Emit no items whose title matches."),
        click.option("--min-duration", metavar="TIME", help="Shortest item to emit, where its length is known."),
        click.option("--max-duration", metavar="TIME", help="Longest item to emit, where its length is known."),
        click.option("--via", type=click.Choice(["feed", "api", "both"]), help="How a channel is polled."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def given_options(name: str | None = None, **given: Any) -> watches.WatchOptions:
    title = {"match": given["title_match"], "not": given["title_not"]}
    word, _, number = (given["first_poll"] or "").partition(":")
    is_last = word == "last" and number.isdecimal()
    return watches.WatchOptions(
        {
            "name": name,
            "route_profile": given["route_profile"],
            "tags": tuple(given["tags"]) or None,
            "poll_interval_seconds": given["interval"],
            "first_poll": {"last": int(number)} if is_last else given["first_poll"],
            "include": [word.strip() for word in given["include"].split(",")] if given["include"] else None,
            "title": title if any(title.values()) else None,
            "min_duration_seconds": given["min_duration"],
            "max_duration_seconds": given["max_duration"],
            "via": given["via"],
        }
    )


def option_key(text: str) -> str:
    """The key of an option by its name on the command line."""
    names = {
        "interval": "poll_interval_seconds", "tag": "tags", "title-match": "title", "title-not": "title",
        "min-duration": "min_duration_seconds", "max-duration": "max_duration_seconds",
    }  # fmt: skip
    key = names.get(text.removeprefix("--"), text.removeprefix("--").replace("-", "_"))
    if key not in watch_options.KEYS:
        known = ", ".join(sorted({*names, "name", "route-profile", "tags", "first-poll", "include", "via"}))
        raise click.UsageError(f"--default {text[:40]!r} is not an option of a watch; known: {known}")
    return key
