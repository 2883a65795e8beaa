"""Send a notification to the services that apprise URLs name. The library is loaded when it is needed."""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Literal

from csi.errors import ConfigError

NOT_ACCEPTED = "the service refused the message or did not answer"

# Discord reads its two words inside other words and URLs, too.
_MENTION = re.compile(r"@(?=(?:everyone|here)\b)|(?<![\w/])@(?=(?:channel|room|all)\b)|<(?=[@!#])", re.I)

Kind = Literal["info", "success", "warning", "failure"]
"""How serious a message is; services show it by colour or symbol."""


@dataclass(frozen=True)
class Target:
    """A service that messages are sent to. Its URL contains tokens; `name` is its scheme, numbered where several URLs
    have the same one: `mailto`, `json`, `json 2`."""

    name: str
    url: str = field(repr=False)


def targets_of(urls: Sequence[str]) -> list[Target]:
    seen: Counter[str] = Counter()
    found = []
    for url in urls:
        scheme = url.partition("://")[0].lower()
        seen[scheme] += 1
        found.append(Target(scheme if seen[scheme] == 1 else f"{scheme} {seen[scheme]}", url))
    return found


def split_urls(text: str) -> list[str]:
    """The URLs of a variable, which are separated by spaces or commas."""
    return [url for url in re.split(r"[\s,]+(?=[a-z][a-z0-9+.-]*://)", text.strip().strip(",")) if url]


def check(urls: Sequence[str]) -> None:
    """Raise ConfigError unless apprise accepts every URL. The message shows none of them: they contain tokens."""
    for place, url in enumerate(urls, 1):
        check_one(url, f"CSI_NOTIFY_URLS: number {place}")


def check_one(url: str, what: str) -> None:
    """Raise ConfigError unless apprise accepts this one URL; the message names it by `what`."""
    if len(split_urls(url)) != 1 or _library().Apprise.instantiate(url, suppress_exceptions=True) is None:
        raise ConfigError(
            f"{what} is not a URL that apprise understands; see https://github.com/caronc/apprise/wiki for its form"
        )


def without_mentions(text: str) -> str:
    """The same text with a zero-width space in what Slack, Discord and Matrix read as a mention of people."""
    return _MENTION.sub("\\g<0>\u200b", text)


def send(
    urls: Sequence[str], title: str, body: str, kind: Kind = "info", *, may_mention: bool = False
) -> bool:  # fmt: skip
    """True when every service accepted the message. Blocks while services are slow: use a thread of its own.

    Titles of feeds are part of messages, so nothing in them mentions people unless `may_mention`: the caller has
    taken mentions out of what others wrote.
    """
    if not may_mention:
        title, body = without_mentions(title), without_mentions(body)
    library = _library()
    post = library.Apprise()
    for url in urls:
        post.add(url)
    for service in post:  # split messages that are too long for a service, unless its URL sets another mode
        if service.overflow_mode == library.OverflowMode.UPSTREAM:
            service.overflow_mode = library.OverflowMode.SPLIT
    return bool(urls) and bool(post.notify(title=title, body=body, notify_type=kind))


def _library() -> ModuleType:
    try:
        import apprise
    except ImportError as error:
        raise ConfigError(
            "notifications (CSI_NOTIFY_URLS, type: notify) need the extra: pip install 'creator-signals[notify]'"
        ) from error
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it would log parts of the URLs, which are secrets
    return apprise
