"""UTC time: the wall clock, a steady clock, and the contract's timestamps."""

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
    """Seconds since the epoch. Pure rules never call this; they take the time as a parameter."""
    return time.time()


def steady() -> float:
    """Seconds since boot, from a clock that is never set. On Linux it also counts while the machine is suspended, like
    the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@lru_cache(maxsize=1)
def boot_id() -> str | None:
    """The id of the boot that `steady` counts from. None: the system has no such id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def iso_precise(epoch: float) -> str:
    """With milliseconds, for lists in which the order of steps matters."""
    return f"{iso(epoch)[:-1]}.{int(epoch % 1 * 1000):03d}Z"


def iso(epoch: float) -> str:
    """`2026-02-22T12:00:00Z`, the only form of a timestamp in an event or a PRD column."""
    return datetime.fromtimestamp(int(epoch), UTC).isoformat()[:19] + "Z"


@lru_cache(maxsize=256)  # each timestamp of an item is parsed about a dozen times
def parse(text: str) -> float:
    """Epoch seconds of an ISO 8601 or RFC 2822 timestamp; without a zone it is UTC. Raises ValueError otherwise."""
    if match := _ISO.fullmatch(text.strip()):
        zone = (match["zone"] or "Z").upper().replace("Z", "+00:00")
        moment = datetime.fromisoformat(f"{match['date']}T{match['time']}{zone}")
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            raise ValueError(f"not a timestamp: {text[:40]!r}") from error
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def normalize(text: str) -> str:
    """Any readable timestamp in the contract's form."""
    return iso(parse(text))
