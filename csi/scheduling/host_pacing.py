"""How far apart requests to one host are: configured, and learned from its answers. Pure.

A host is its registrable domain (`www.reddit.com` and `old.reddit.com` are `reddit.com`): rate limits count them
together. An address or a name without a public suffix (`127.0.0.1:8100`, `localhost:80`) is a host of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from csi import clock
from csi.config.settings import HostSettings

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

JITTER = 0.04
"""Requests are up to this share further apart than the spacing, never closer."""
FIRST_SPACING = 1.0
"""The spacing of a host without a configured one, after its first 429."""
MOST_WIDENED = 8.0
LONGEST_LEARNED = 60.0
"""A host without a configured spacing is never spaced wider than this; another one, MOST_WIDENED times its spacing."""
NARROWER = 0.9
NO_SPACING = 0.5
"""A learned spacing below this is given up."""
WIDEN_EVERY = 10.0
"""The refusals of one burst widen the spacing once."""
LONGEST_HOLD = 3600.0
LONGEST_HOLD_UNSPACED = 60.0
"""Of a host that is not known to limit all its paths together: one feed must not stop the others."""


@dataclass(frozen=True)
class Pace:
    """The rule for requests to one host. `name`: its row."""

    name: str
    spacing: float = 0.0
    max_concurrent: int | None = None
    learns: bool = True


# 61 s: the anonymous feeds allow one request a minute and address, all paths together; OAuth allows 100 a minute.
DEFAULTS: Mapping[str, Pace] = {
    "reddit.com": Pace("reddit.com", spacing=61.0, max_concurrent=1),
    "oauth.reddit.com": Pace("oauth.reddit.com", spacing=1.0, max_concurrent=2),
    "youtube.com": Pace("youtube.com", learns=False),
    "googleapis.com": Pace("googleapis.com", learns=False),
}


def pace_of(host: str, configured: Mapping[str, HostSettings]) -> Pace:
    """The rule for this host (`name` or `name:port`): its own, that of its registrable domain, or the general one."""
    bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    domain = domain_of(host)
    for name in dict.fromkeys((host.lower(), bare.lower(), domain)):
        if name in configured or name in DEFAULTS:
            own, default = configured.get(name), DEFAULTS.get(name, Pace(name))
            if own is None:
                return default
            return Pace(
                name,
                default.spacing if own.min_spacing_seconds is None else own.min_spacing_seconds,
                own.max_concurrent or default.max_concurrent,
                default.learns if own.learn is None else own.learn,
            )
    return Pace(domain)


@lru_cache(maxsize=4096)
def domain_of(host: str) -> str:
    """The registrable domain of a host; the host itself, with its port, where it has none."""
    host = host.lower().strip()
    bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if not bare.rpartition(".")[2].isalpha() or ":" in bare:
        return host
    return _public_suffixes().privatesuffix(bare) or host


@lru_cache(maxsize=1)
def _public_suffixes() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList  # its list takes 50 ms to load

    return PublicSuffixList()


def widened(spacing: float, base: float) -> float:
    """The spacing after a refusal."""
    longest = base * MOST_WIDENED if base else LONGEST_LEARNED
    return min(max(spacing * 2.0, FIRST_SPACING), longest)


def narrowed(spacing: float, base: float) -> float | None:
    """The spacing after a success. None: the configured one is enough again."""
    narrower = spacing * NARROWER
    return narrower if narrower > max(base, NO_SPACING) else None


def is_refusal(status: int, base: float) -> bool:
    """429; and 403 of a host with a spacing: Reddit answers some addresses so. Elsewhere it is about one feed."""
    return status == 429 or (status == 403 and base > 0)


def hold_seconds(headers: Mapping[str, str], base: float, now: float, *, refused: bool) -> float | None:
    """How long the host wants no request: Retry-After or x-ratelimit-reset of a refusal, or a limit that is used up."""
    reset, remaining = (_number(headers.get(f"x-ratelimit-{name}", "")) for name in ("reset", "remaining"))
    if not refused and (remaining is None or remaining >= 1.0):
        return None
    asked = _retry_after(headers.get("retry-after", ""), now) if refused else None
    waits = [wait for wait in (reset, asked) if wait is not None]
    return min(max(waits), LONGEST_HOLD if base > 0 else LONGEST_HOLD_UNSPACED) if waits else None


def _retry_after(text: str, now: float) -> float | None:
    """The header is a number of seconds or a date."""
    if (seconds := _number(text)) is not None or not text:
        return seconds
    try:
        return max(clock.parse(text) - now, 0.0)
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text.strip()[:12])
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
