"""What an operator must hear of: rules over what is known at one moment. Pure.

Texts name sources and destinations of the configuration and numbers, never a title, an id or a URL.
"""

from collections.abc import Iterator
from dataclasses import dataclass

NAMES = (
    "worker_silent",
    "source_stale",
    "backlog_old",
    "receiver_away",
    "dead_letters",
    "quota_low",
    "reload_refused",
    "disk_low",
)
"""Every kind of trouble there is."""

SILENT_SECONDS = 60.0
STALE_SECONDS = 600.0
BACKLOG_SECONDS = 1800.0
"""PRD §6.1: a standard event is with the receiver within half an hour."""
DEAD_LETTERS = 100
DISK_SHARE = 0.9


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong now. The name and the subject say whether it is the same as before."""

    name: str
    subject: str
    text: str


@dataclass(frozen=True)
class Reading:
    """How long ago a source was last read."""

    source: str
    interval: float
    """The shortest that one of its watches is promised."""
    last_success_at: float | None


@dataclass(frozen=True)
class Receiver:
    """A destination that is away."""

    name: str
    reason: str


@dataclass(frozen=True)
class Facts:
    """What is known at one moment."""

    now: float
    beat_at: float | None
    started_at: float | None
    readings: tuple[Reading, ...] = ()
    oldest_pending: float | None = None
    away: tuple[Receiver, ...] = ()
    dead_letters: int = 0
    quota_left: int | None = None
    quota_buffer: int = 0
    reload_error: str | None = None
    disk_used: float = 0.0


def judge(facts: Facts) -> list[Trouble]:
    return [*_worker(facts), *_sources(facts), *_delivery(facts), *_house(facts)]


def _worker(facts: Facts) -> Iterator[Trouble]:
    if facts.beat_at is None:
        yield Trouble("worker_silent", "worker", "no worker has ever run on this database")
    elif abs(facts.now - facts.beat_at) > SILENT_SECONDS:
        yield Trouble("worker_silent", "worker", f"the worker gave its last sign of life {_ago(facts, facts.beat_at)}")


def _sources(facts: Facts) -> Iterator[Trouble]:
    for reading in facts.readings:
        known = max(reading.last_success_at or 0.0, facts.started_at or 0.0)
        if facts.now - known > max(3 * reading.interval, STALE_SECONDS):
            last = "never" if reading.last_success_at is None else _ago(facts, reading.last_success_at)
            yield Trouble("source_stale", reading.source, f"{reading.source} was last read with success: {last}")


def _delivery(facts: Facts) -> Iterator[Trouble]:
    for receiver in facts.away:
        text = f"the receiver {receiver.name} is away ({receiver.reason}); events stay pending"
        yield Trouble("receiver_away", receiver.name, text)
    if facts.oldest_pending is not None and facts.now - facts.oldest_pending > BACKLOG_SECONDS:
        text = f"the oldest event that is not delivered was seen {_ago(facts, facts.oldest_pending)}"
        yield Trouble("backlog_old", "events", text)
    if facts.dead_letters > DEAD_LETTERS:
        yield Trouble("dead_letters", "events", f"{facts.dead_letters:,} dead letters are open")


def _house(facts: Facts) -> Iterator[Trouble]:
    if facts.quota_left is not None and facts.quota_left < facts.quota_buffer:
        yield Trouble("quota_low", "api", f"{facts.quota_left:,} API units are left until midnight Pacific time")
    if facts.reload_error is not None:
        text = f"the new configuration was refused, the old one stays: {facts.reload_error}"
        yield Trouble("reload_refused", "config", text)
    if facts.disk_used > DISK_SHARE:
        yield Trouble("disk_low", "state", f"the disk of the state directory is {facts.disk_used:.0%} full")


def _ago(facts: Facts, moment: float) -> str:
    seconds = max(facts.now - moment, 0.0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
