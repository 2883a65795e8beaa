"""The health of a watch, its next retry, and whether its host causes the failure. Pure (decision 0042, 17, 48).

    healthy ── an error ──▶ backing_off ── 20 times missing, the host is fine ──▶ suspect ── the API confirms ──▶ dead
       ▲                        │   ╲ the host rate-limits us: throttled
       │                        ▼    ╲ others of its host fail, too: outage
       └──────────── any read that succeeds ◀──────────────┘

No watch is switched off: a dead watch is still read once an hour (once a day after a 410), and is healthy again when
that succeeds.
"""

import math
import random
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from csi.errors import SourceError

State = Literal["healthy", "backing_off", "throttled", "outage", "suspect", "dead"]

HOST_KINDS = frozenset({"transient", "missing", "malformed", "empty"})
"""Failures that may be the host's. A refused key, a private list, a spent budget or a bug of ours never is."""

WAITING_KINDS = frozenset({"throttled", "quota", "budget", "paused"})
"""These do not count against the watch: it waits for the host or for the budget."""

OWN_FAULT = frozenset({"suspect", "dead"})
"""States that are about the watch alone: neither a busy nor a broken host changes them."""

FIRST_RETRY = 5.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
PATIENCE = 0.1
"""A watch that failed alone for a time T is tried again within a tenth of T (a minute at least, an hour at most)."""

WINDOW = 600.0
"""Failures and successes count as being of the same time within this."""

SHARE = 0.2
TURN = 18.0
"""In an outage the retries of all failing watches are spread so that one of them is sent at least this often."""

PAID_TURN = 20.0
FIRST_OUTAGE_WAIT = 45.0
SHORTEST_OUTAGE = 60.0
CATCH_UP = 45.0
"""When a host is back its watches are read within this; with the wait for the next retry that is under 90 s."""

CATCH_UP_PACE = 10.0
SUSPECT_TRIES = 20
SUSPECT_AFTER = HOUR
LONG_NIGHT = 7 * DAY
"""YouTube's longest recorded outage that answered 404 took four days. A watch that is missing for a week, while other
watches of its host answer, is really missing."""

EMPTY_READS = 3
"""Reads in a row without items after which a watch that listed items counts as failing."""
EMPTY_RETRY = 15.0
"""The next read after one without items is sent this soon: a short fault is over, a lasting one is known."""

QUIET_GAPS = 6.0
"""A watch is quiet when it had no news for this many times its usual gap, and for a day."""
FEWEST_GAPS = 5
SAME_PUBLICATION = 600.0
"""Items published within this time count as one publication: a creator who uploads five videos at once."""
NEWEST_GAPS = 30

FIRST_PAUSE = 5.0
LONGEST_PAUSE = HOUR


class ReadWatch(Protocol):
    """The columns of a watch that its shown state depends on."""

    @property
    def state(self) -> str: ...
    @property
    def health(self) -> str: ...
    @property
    def errors(self) -> int: ...
    @property
    def first_read_at(self) -> float | None: ...
    @property
    def last_success_at(self) -> float | None: ...
    @property
    def last_new_at(self) -> float | None: ...
    @property
    def last_video_published_at(self) -> float | None: ...
    @property
    def usual_gap(self) -> float | None: ...


@dataclass(frozen=True)
class WatchFacts:
    """What is known of a watch, without the failure that is being judged."""

    state: State
    since: float | None
    """When the watch stopped being healthy. None: it is healthy."""
    errors: int
    interval: float
    """The interval that the plan gives it now."""
    costs: bool = False
    """A read costs units of the API's budget."""
    tried_at: float | None = None
    """When the watch was polled before."""


@dataclass(frozen=True)
class HostFacts:
    """What is known of a host. Watches that are suspect or dead are in neither number: their failures are their own."""

    watches: int = 1
    failing: int = 0
    """Of these, how many failed lately in a way that may be the host's; the watch in hand included."""
    last_ok_at: float | None = None
    outage_since: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What a failed read means."""

    state: State
    since: float
    next_at: float
    confirm: bool = False
    """The API has to be asked whether the watch still exists."""
    outage_begins: bool = False
    pauses_host: bool = False
    """The rate limit is the host's: none of its watches is polled for a while."""


def judge(watch: WatchFacts, host: HostFacts, failure: SourceError, now: float, rng: random.Random) -> Verdict:
    """What a failed read means: the new state, and when to try again."""
    since = now if watch.since is None or watch.since > now else watch.since
    if failure.kind in WAITING_KINDS:
        state: State = watch.state if watch.state in OWN_FAULT else "throttled"
        alone = failure.kind == "throttled" and _is_throttled_alone(watch, host)
        if failure.retry_after is not None and not math.isnan(failure.retry_after):
            wait = min(max(failure.retry_after, 1.0), LONGEST_PAUSE) + rng.uniform(0.0, 2.0)
        else:
            wait = _doubling(watch) * rng.uniform(0.8, 1.0)
        if alone:
            wait = max(wait, _doubling(watch, HOUR) * rng.uniform(0.8, 1.0))
        return Verdict(state, since, now + wait, pauses_host=failure.kind == "throttled" and not alone)
    if failure.kind == "gone":
        return Verdict("dead", since, now + DAY * rng.uniform(0.9, 1.0))
    if failure.kind in ("missing", "denied", "malformed") and failure.retry_after is not None:
        # The adapter knows that this is about the watch alone, and when to look again.
        return Verdict("suspect", since, now + failure.retry_after * rng.uniform(0.9, 1.0))
    ask = failure.kind == "missing" and _is_time_to_ask(watch, since, now)
    if watch.state == "dead":
        return Verdict("dead", since, now + HOUR * rng.uniform(0.9, 1.0), ask)
    # No part of an outage: a watch that was suspect before, or has been missing for LONG_NIGHT while the host answers
    # others.
    is_missing = now - since >= LONG_NIGHT and _is_suspect(watch, host, failure, since, now)
    if failure.kind in HOST_KINDS and watch.state != "suspect" and not is_missing:
        begins = host.outage_since is None and host.failing >= threshold(host.watches)
        if begins or host.outage_since is not None:
            return Verdict("outage", since, now + _turn(watch, host, now, rng), ask, begins)
    suspect = watch.state == "suspect" or _is_suspect(watch, host, failure, since, now)
    # Longer than a minute only where the host is known to answer other watches: else its recovery is noticed late.
    longest = min(max(PATIENCE * (now - since), MINUTE), HOUR) if _is_fine(host, since, now) else MINUTE
    wait = _doubling(watch, longest) * rng.uniform(0.8, 1.0)
    if failure.kind == "empty" and failure.retry_after is not None:
        wait = failure.retry_after * rng.uniform(0.9, 1.0)  # not more often than while it listed items
    return Verdict("suspect" if suspect else "backing_off", since, now + wait, ask)


def confirmed(verdict: Verdict, answer: str, now: float, rng: random.Random) -> Verdict:
    """The API was asked: `missing` is dead, and still read once an hour; what `exists` is suspect at most."""
    if answer == "missing":
        return replace(verdict, state="dead", next_at=now + HOUR * rng.uniform(0.9, 1.0))
    if answer == "exists" and verdict.state == "dead":
        return replace(verdict, state="suspect")
    return verdict


def watch_name(name: str | None, ref: str) -> str:
    """How problems name a watch: by its configured name, or by its id where it has none."""
    return name or ref


def without_address(error: str) -> str:
    """`the feed could not be read: host/path: connection refused` without its middle: problems are public."""
    first, *rest = re.sub(r"https?://\S+", "its address", error).split(": ")
    return f"{first}: {rest[-1]}" if len(rest) > 1 else first


def usual_gap(published: Iterable[float]) -> float | None:
    """The median time between two publications, of the newest ones. None: too few to know a rhythm."""
    times = sorted(published, reverse=True)
    gaps: list[float] = []
    last = times[0] if times else 0.0
    for moment in times[1:]:
        if last - moment >= SAME_PUBLICATION:
            gaps.append(last - moment)
            last = moment
    return statistics.median(gaps[:NEWEST_GAPS]) if len(gaps) >= FEWEST_GAPS else None


def quiet_seconds(watch: ReadWatch) -> float | None:
    """How long a watch that is quiet had no news, up to its last read. None: it is not quiet, or it has no rhythm."""
    read_at, gap = watch.last_success_at, watch.usual_gap
    if read_at is None or gap is None or watch.first_read_at is None:
        return None
    # A time without polls is not counted, nor what was published before the watch was first read.
    news = max(watch.last_video_published_at or 0.0, watch.last_new_at or 0.0, watch.first_read_at)
    silent = read_at - news
    return silent if silent > max(QUIET_GAPS * gap, DAY) else None


def shown_state(watch: ReadWatch, *, worker_is_alive: bool) -> str:
    """The state of a watch as operators see it: `paused` or `removed`; `new` before its first read; `unknown` while no
    worker reads it; `quiet` without news for longer than usual; else its health."""
    if watch.state != "active":
        return watch.state
    if watch.last_success_at is None and watch.errors == 0:
        return "new"
    if not worker_is_alive:
        return "unknown"
    is_quiet = watch.health == "healthy" and quiet_seconds(watch) is not None
    return "quiet" if is_quiet else watch.health


def threshold(watches: int) -> int:
    """How many must fail together before it is the host: a fifth, and three at least (two where there are few)."""
    return max(2 if watches <= 5 else 3, math.ceil(SHARE * watches))


def do_agree(watches: int, throttled: int) -> bool:
    """Whether so many throttled watches speak for their host. A host with one watch rests with it."""
    return throttled >= min(watches, 2 if watches <= 5 else 3)


def is_over(host: HostFacts, now: float) -> bool:
    """Whether most of the failing watches are back. Not in the first minute: the state would flicker."""
    if host.outage_since is None or 0 <= now - host.outage_since < SHORTEST_OUTAGE:
        return False
    return host.failing < max(2, threshold(host.watches) / 2)


def pause(pauses: int, retry_after: float | None, rng: random.Random, *, agree: bool = True) -> float:
    """Seconds without polls of a host that rate-limited us: its Retry-After, or longer each time if it sends none.
    More than a minute only where several watches `agree`: one feed must not stop the others of its host."""
    if retry_after is not None and not math.isnan(retry_after):
        return min(max(retry_after, 1.0), LONGEST_PAUSE if agree else MINUTE)
    return min(FIRST_PAUSE * 2.0 ** min(pauses, 8), MINUTE) * rng.uniform(0.8, 1.0)


def catch_up(count: int, now: float) -> list[float]:
    """When each of so many watches is read once their host is back: soon, but not all at once."""
    span = min(count / CATCH_UP_PACE, CATCH_UP)
    return [now + span * place / max(count, 1) for place in range(count)]


def _is_throttled_alone(watch: WatchFacts, host: HostFacts) -> bool:
    """The watch was throttled before, and its host has answered others since: pausing them would not help it."""
    if watch.state != "throttled" or watch.tried_at is None or host.last_ok_at is None:
        return False
    return host.last_ok_at > watch.tried_at


def _doubling(watch: WatchFacts, longest: float = MINUTE) -> float:
    return min(min(watch.interval, FIRST_RETRY) * 2.0 ** min(watch.errors, 16), longest)


def _turn(watch: WatchFacts, host: HostFacts, now: float, rng: random.Random) -> float:
    """The wait of one watch in an outage: at most its usual interval (a minute at least), or an hour where the host
    answers nothing or each try costs units. One success is enough: it makes all watches of the host due."""
    longest = max(watch.interval, MINUTE) if _answers(host, now) and not watch.costs else HOUR
    every = PAID_TURN if watch.costs else TURN
    return min(max(every * host.failing, FIRST_OUTAGE_WAIT), longest) * rng.uniform(0.1, 1.0)


def _answers(host: HostFacts, now: float) -> bool:
    return host.last_ok_at is not None and 0 <= now - host.last_ok_at <= WINDOW


def _is_fine(host: HostFacts, since: float, now: float) -> bool:
    """The host has answered other watches since this one began to fail, and within WINDOW."""
    return _answers(host, now) and host.last_ok_at is not None and host.last_ok_at >= since


def _is_suspect(watch: WatchFacts, host: HostFacts, failure: SourceError, since: float, now: float) -> bool:
    lasting = _is_lasting(watch.errors + 1, since, now)
    return failure.kind == "missing" and lasting and _is_fine(host, since, now)


def _is_lasting(tries: int, since: float, now: float) -> bool:
    return tries >= SUSPECT_TRIES and now - since >= SUSPECT_AFTER


def _is_time_to_ask(watch: WatchFacts, since: float, now: float) -> bool:
    """When the failure has lasted long enough, and once a day from then on."""
    if not _is_lasting(watch.errors + 1, since, now):
        return False
    before = watch.tried_at if watch.tried_at is not None else since
    return not _is_lasting(watch.errors, since, before) or int((now - since) / DAY) > int((before - since) / DAY)
