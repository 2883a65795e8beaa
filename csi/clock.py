"""UTC time: one source of "now", a clock that is never set, and the contract's one way to write and read timestamps."""

import re
import sys
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path

# YYYY-MM-DDTHH:MM:SS, any fraction (YouTube has sent 0, 3 and 6 digits, WebSub 9), Z or an offset.
_ISO = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[Tt ](?P<time>\d{2}:\d{2}:\d{2})(?:\.\d+)?"
    r"(?P<zone>[Zz]|[+-]\d{2}:?\d{2})?"
)


def now() -> float:
    """Seconds since the epoch. Rules never call this; they are given the time."""
    return time.time()


def steady() -> float:
    """Seconds of a clock that is never set. On Linux it also counts while the machine is suspended, as the wall clock
    does; its zero is the boot of the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@lru_cache(maxsize=1)
def boot_id() -> str | None:
    """Which boot `steady` counts from. None: this system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def iso_precise(epoch: float) -> str:
    """With milliseconds, where it matters which of two steps came first."""
    return f"{iso(epoch)[:-1]}.{int(epoch % 1 * 1000):03d}Z"


def iso(epoch: float) -> str:
    """`2026-02-22T12:00:00Z`, the only form of a timestamp in an event or a PRD column."""
    return datetime.fromtimestamp(int(epoch), UTC).isoformat()[:19] + "Z"


@lru_cache(maxsize=256)  # an item's few timestamps are read a dozen times on its way
def parse(text: str) -> float:
    """Epoch seconds of an ISO 8601 or RFC 2822 timestamp; no zone means UTC. ValueError otherwise."""
    match = _ISO.fullmatch(text.strip())
    moment = _from_iso(match) if match else _from_rfc2822(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def normalize(text: str) -> str:
    """Any readable timestamp in the contract's form: parsed and written anew, never passed through."""
    return iso(parse(text))


def _from_iso(match: re.Match[str]) -> datetime:
    zone = (match["zone"] or "Z").upper().replace("Z", "+00:00")
    return datetime.fromisoformat(f"{match['date']}T{match['time']}{zone}")


def _from_rfc2822(text: str) -> datetime:
    try:
        return parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"not a timestamp: {text[:40]!r}") from error
