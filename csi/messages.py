"""One message to people, through whatever service their URLs name. The library (apprise) is loaded when needed."""

import logging
import re
from collections.abc import Sequence
from types import ModuleType

from csi.errors import ConfigError


def split_urls(text: str) -> list[str]:
    """Several URLs in one variable, with spaces or commas between them."""
    return [url for url in re.split(r"[\s,]+(?=[a-z][a-z0-9+.-]*://)", text.strip().strip(",")) if url]


def check(urls: Sequence[str]) -> None:
    """ConfigError unless every URL is understood. It never shows one: they hold tokens."""
    library = _library()
    for place, url in enumerate(urls, 1):
        if library.Apprise.instantiate(url, suppress_exceptions=True) is None:
            raise ConfigError(
                f"CSI_NOTIFY_URLS: number {place} is not a URL that apprise understands; "
                "see https://github.com/caronc/apprise/wiki for its form"
            )


def send(urls: Sequence[str], title: str, body: str) -> bool:
    """True when every service took it. Waits for slow services: not for a thread that has other work."""
    library = _library()
    post = library.Apprise()
    for url in urls:
        post.add(url)
    for service in post:  # what is longer than a service takes goes out in parts, unless its URL says otherwise
        if service.overflow_mode == library.OverflowMode.UPSTREAM:
            service.overflow_mode = library.OverflowMode.SPLIT
    return bool(urls) and bool(post.notify(title=title, body=body))


def _library() -> ModuleType:
    try:
        import apprise
    except ImportError as error:
        raise ConfigError("notifications (CSI_NOTIFY_URLS) need the extra: pip install 'csi[notify]'") from error
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it would log parts of the URLs, which are secrets
    return apprise
