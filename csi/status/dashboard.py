"""How it stands at one glance: what flowed, what waits and why, whether the promises of PRD §6 are kept."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from csi import clock
from csi.config.settings import TIERS
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.status import destinations
from csi.status.destinations import Standing
from csi.store import api_units, counters, events, heartbeats, hosts
from csi.store import destinations as endpoints
from csi.store.heartbeats import Beat
from csi.store.models import Host
from csi.store.queries import charts, upcoming

HOUR, DAY = 3600.0, 86_400.0
Verdict = Literal["kept", "broken", "idle"]

DELIVERY_GOAL, REPEAT_GOAL = 0.95, 0.05
LATENCY_GOALS: dict[str, float] = {"urgent": 30.0, "standard": 1800.0}
"""PRD §6.1: P95 from `occurred_at` to receipt. High volume has none."""


@dataclass(frozen=True)
class Window:
    """What flowed in the intervals of a span of time, the oldest first; the last one is not over yet."""

    starts: float
    step: int
    seen: tuple[int, ...]
    arrived: tuple[int, ...]
    died: tuple[int, ...]


@dataclass(frozen=True)
class Waiting:
    """Something that is not where it should end up, how much of it, and why."""

    what: str
    count: int
    since: float | None
    why: str
    is_trouble: bool = False


@dataclass(frozen=True)
class Goal:
    """A promise of PRD §6 over the last day, and whether it was kept. `value` None: there was nothing to measure."""

    name: str
    kind: Literal["share", "seconds"]
    value: float | None
    target: float
    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class Latency:
    """How long deliveries of one tier took, in seconds: until we saw the event, and from there to its receipt."""

    tier: str
    count: int
    seen: tuple[float, float, float]
    """P50, P95, P99."""
    accepted: tuple[float, float, float]
    total: tuple[float, float, float]


@dataclass(frozen=True)
class Burn:
    """The API units of this Pacific day: how many were left at the end of each of its hours so far."""

    forecast: quota_schedule.Forecast
    now: float
    starts_at: float
    left: tuple[int, ...]


@dataclass(frozen=True)
class Overview:
    """Everything the first page shows."""

    now: float
    worker: Beat | None
    hour: Window
    day: Window
    waiting: tuple[Waiting, ...]
    goals: tuple[Goal, ...]
    latencies: tuple[Latency, ...]
    burn: Burn | None
    standings: tuple[Standing, ...]
    health: tuple[charts.Health, ...]
    letters: dict[str, int]
    troubled: tuple[Host, ...]


def overview(rt: Runtime) -> Overview:
    now = rt.now()
    latencies, standings = measure(charts.waits(now - DAY)), tuple(destinations.standings(rt))
    return Overview(
        now=now,
        worker=heartbeats.latest("worker"),
        hour=window(now, HOUR, 60),
        day=window(now, DAY, 1800),
        waiting=tuple(_waiting(rt, standings, now)),
        goals=tuple(goals(rt, latencies, now)),
        latencies=latencies,
        burn=_burn(rt, now),
        standings=standings,
        health=tuple(charts.health_counts(list(rt.settings.sources))),
        letters=charts.open_letters(),
        troubled=tuple(hosts.troubled(now)),
    )


# ── what flowed ─────────────────────────────────────────────────────────────────────────────────────────


def window(now: float, seconds: float, step: int) -> Window:
    """The intervals that end with the one in which we are."""
    last, count = int(now // step), int(seconds // step)
    places = range(last - count + 1, last + 1)
    found = charts.flow(places[0] * step, step)
    return Window(
        starts=float(places[0] * step),
        step=step,
        seen=tuple(found.seen.get(place, 0) for place in places),
        arrived=tuple(found.arrived.get(place, 0) for place in places),
        died=tuple(found.died.get(place, 0) for place in places),
    )


# ── what waits, and why ─────────────────────────────────────────────────────────────────────────────────

GATES = {
    "open": "on its way",
    "held": "paused by command",
    "paused": "the receiver asked for a pause",
    "away": "the receiver is away; it is asked again soon",
    "probe": "the receiver is away; the next event asks whether it is back",
}


def _waiting(rt: Runtime, standings: Sequence[Standing], now: float) -> Iterator[Waiting]:
    found = upcoming.inbox()
    if found.waiting:
        yield Waiting("items that are not events yet", found.waiting, found.oldest_at, "the worker takes them up next")
    for one in standings:
        for lane in one.lanes:
            if lane.pending + lane.in_flight:
                yield Waiting(
                    f"{lane.name} events to {one.name}",
                    lane.pending + lane.in_flight,
                    lane.oldest_seen_at,
                    why_waiting(rt, one, lane.next_due_at, now),
                    one.gate != "open",
                )
    if found.quarantined:
        yield Waiting("quarantined items", found.quarantined, None, "handling them ended the process three times", True)


def why_waiting(rt: Runtime, one: Standing, due_at: float | None, now: float) -> str:
    """The first thing in the way of a lane."""
    if not rt.settings.features.delivery:
        return "delivery is switched off (features.delivery)"
    if not one.is_configured:
        return f"destination {one.name} is not configured any more"
    if one.gate == "held":
        return f"{GATES['held']}: {one.endpoint.held}"
    if one.gate in ("away", "probe"):
        return f"{GATES[one.gate]} ({one.endpoint.reason})"
    if one.gate == "open" and due_at is not None and due_at > now:
        return "the lane collects until its batch is due"
    return GATES[one.gate]


# ── promises ────────────────────────────────────────────────────────────────────────────────────────────


def goals(rt: Runtime, latencies: Sequence[Latency], now: float, seconds: float = DAY) -> Iterator[Goal]:
    accepted, known = charts.repeated(now - seconds, list(rt.destinations) or [endpoints.DEFAULT])
    yield _success(accepted, charts.letters_since(now - seconds))
    yield _repeats(accepted, known)
    by_tier = {one.tier: one for one in latencies}
    for tier, target in LATENCY_GOALS.items():
        yield _latency_goal(tier, target, by_tier.get(tier))


def _success(accepted: int, letters: dict[str, int]) -> Goal:
    """A letter that was sent again and closed is no failure any more."""
    lost = sum(count for state, count in letters.items() if state != "replayed")
    value = accepted / (accepted + lost) if accepted + lost else None
    verdict: Verdict = "idle" if value is None else "kept" if value >= DELIVERY_GOAL else "broken"
    detail = f"{accepted:,} accepted, {lost:,} in dead letters"
    return Goal("Delivered", "share", value, DELIVERY_GOAL, verdict, detail)


def _repeats(accepted: int, known: int) -> Goal:
    value = known / accepted if accepted else None
    verdict: Verdict = "idle" if value is None else "kept" if value < REPEAT_GOAL else "broken"
    return Goal("Sent twice", "share", value, REPEAT_GOAL, verdict, f"{known:,} the receiver knew already (409)")


def _latency_goal(tier: str, target: float, found: Latency | None) -> Goal:
    name = f"{tier.capitalize()} latency, P95"
    if found is None:
        return Goal(name, "seconds", None, target, "idle", "nothing of this tier was delivered")
    value = found.total[1]
    verdict: Verdict = "kept" if value < target else "broken"
    shares = f"seen after {words(found.seen[1])}, accepted {words(found.accepted[1])} later"
    return Goal(name, "seconds", value, target, verdict, shares)


def words(seconds: float) -> str:
    """`0.4 s`, `42 s`, `12 min`, `3 h`, `4 d`: a larger unit from two of it on."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def measure(waits: Sequence[charts.Wait]) -> tuple[Latency, ...]:
    """By tier, in the order of urgency."""
    return tuple(_latency(tier, ours) for tier in TIERS if (ours := [wait for wait in waits if wait.tier == tier]))


def _latency(tier: str, waits: Sequence[charts.Wait]) -> Latency:
    seen = [max(wait.seen_at - clock.parse(wait.occurred_at), 0.0) for wait in waits]
    accepted = [max(wait.arrived_at - wait.seen_at, 0.0) for wait in waits]
    total = [first + second for first, second in zip(seen, accepted, strict=True)]
    return Latency(tier, len(waits), percentiles(seen), percentiles(accepted), percentiles(total))


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """P50, P95, P99 by nearest rank: each is a value that really occurred."""
    ordered = sorted(values)
    p50, p95, p99 = (ordered[max(math.ceil(share * len(ordered)) - 1, 0)] for share in (0.5, 0.95, 0.99))
    return p50, p95, p99


# ── the day's units ─────────────────────────────────────────────────────────────────────────────────────


def _burn(rt: Runtime, now: float) -> Burn | None:
    forecast = quota_schedule.forecast(rt, now)
    if forecast is None:
        return None
    by_hour = {label: value for (_, label), value in counters.all_of(api_units.HOURLY).items()}
    start = api_units.day_starts(now)
    hours = range(int(start // HOUR), int(now // HOUR) + 1)
    # Counted backwards from what the ledger says now: it may have been corrected by the API.
    later = [int(by_hour.get(str(hour), 0)) for hour in hours]
    left = [forecast.left + sum(later[place + 1 :]) for place in range(len(later))]
    return Burn(forecast, now, start, tuple(min(units, forecast.limit) for units in left))


def backlog_age(now: float) -> float:
    """Of the oldest event that is not settled; 0: there is none."""
    oldest = events.oldest_pending()
    return 0.0 if oldest is None else max(now - oldest, 0.0)
