"""When each watch is polled next, so that the day's API units last until midnight; forecasts for operators.

The rules are in csi.scheduling.quota; this module reads the watches and the unit ledger for them.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from csi.config import quota_warnings
from csi.config.source_settings import SourceSettings
from csi.logs import log
from csi.runtime import Runtime
from csi.scheduling import cadence
from csi.scheduling.quota import DAY, Load, Plan, UnitBudget, make_plan, next_time
from csi.store import api_units, watch_admin, watches
from csi.store.models import Watch

REMEMBER_SECONDS = 600.0
"""How long the usual activity of the watches is remembered before it is counted again."""

URGENT_PROMISE = 30.0
"""P95 of the time from an occurrence to its receipt, for the tier `urgent` (PRD)."""
URGENT_INTERVAL = 20.0
"""The interval that keeps the promise: 95 % of it, and a few seconds for reading and delivery."""

HOUR = 3600.0
ENOUGH_SECONDS = 21_600.0
"""A watch that is known for less than this counts as inactive before it was known."""


@dataclass(frozen=True)
class Group:
    """Watches that are read at one interval."""

    seconds: float
    watches: int
    is_fast: bool
    """They are polled at their fast interval: the plan slowed nothing down."""


@dataclass(frozen=True)
class Forecast:
    """The units that are left today, and how long they last."""

    day: str
    limit: int
    used: int
    buffer: int
    ends_at: float
    lasts_until: float
    """When, at the rate of the last hour (or by the plan, where too little was seen), only the buffer is left."""
    per_hour: float
    planned_units: int
    """What the plan uses until the end of the day."""
    groups: tuple[Group, ...]
    warning: str | None
    urgent: str | None = None
    """Whether the promise of the tier `urgent` holds, and why not. None: nothing urgent costs units."""

    @property
    def left(self) -> int:
        return max(self.limit - self.used, 0)

    @property
    def is_low(self) -> bool:
        return self.left < self.buffer


@dataclass(frozen=True)
class Quote:
    """What a watch would cost, for one page a read."""

    seconds: float
    """How often the plan would read it now."""
    most_units: int
    """A day at its fast interval."""
    least_units: int
    """A day at its slow one, before anything is stretched."""


@dataclass(frozen=True)
class _DayPlan:
    """All watches that cost units, the units that are left today, and the plan that follows from both."""

    loads: tuple[Load, ...]
    budget: UnitBudget
    midnight: float

    @cached_property
    def plan(self) -> Plan:
        return make_plan(self.loads, self.budget)

    @cached_property
    def tomorrow(self) -> Plan:
        return make_plan(self.loads, UnitBudget(self.budget.limit, 0, self.budget.buffer, DAY))

    def of(self, watch_id: int) -> Load | None:
        return next((load for load in self.loads if load.key == watch_id), None)


def next_poll(rt: Runtime, watch: Watch, found_new: bool, now: float, fresh_until: float | None = None) -> float:
    """When a watch that was just read is due again; stores the planned interval on the watch.

    The plan is computed for every read from the current ledger. Part of the caller's transaction.
    """
    load, day_plan = None, None
    if is_paid(rt, watch) and unit_limit(rt) is not None:
        day_plan = _day_plan(rt, now, found_new={watch.id} if found_new else set())
        load = day_plan.of(watch.id)
    if day_plan is None or load is None:
        set_planned_interval(watch, watch.interval_seconds)
        if fresh_until is not None and fresh_until > now:
            return cadence.after_expiry(now, watch.interval_seconds, fresh_until, rt.rng)
        # Its host gives out slots, or a group is read when the first of its watches is due
        adapter = rt.adapter(watch.source)
        host = adapter.paced_as(watch.ref, watch.via)
        is_spread_otherwise = adapter.reads_groups or (host is not None and rt.pacer.pace(host).spacing > 0)
        most = cadence.SLIGHTLY if is_spread_otherwise else cadence.CLEARLY
        return cadence.after_success(now, watch.interval_seconds, cadence.phase(watch.id), most=most)
    seconds = day_plan.plan.interval(load)
    set_planned_interval(watch, min(seconds, day_plan.midnight - now + day_plan.tomorrow.interval(load)))
    return _paid_poll(rt, now, seconds, day_plan, load)


def after_refusal(rt: Runtime, watch: Watch, now: float) -> float:
    """When to poll again after the budget or the API refused a call for lack of units: after midnight, spread."""
    day_plan = _day_plan(rt, now)
    load = day_plan.of(watch.id)
    seconds = watch.interval_seconds if load is None else day_plan.tomorrow.interval(load)
    return day_plan.midnight + 1.0 + rt.rng.uniform(0.0, min(seconds, cadence.LATEST))


def at_least(rt: Runtime, watch: Watch, at: float, now: float) -> float:
    """A retry that costs units is not made more often than the plan allows reads: failed calls count, too."""
    limit = unit_limit(rt)
    if limit is None or not is_paid(rt, watch):
        return at
    day_plan = _day_plan(rt, now)
    load = day_plan.of(watch.id)
    if load is None or day_plan.plan.stretch <= 1.0:
        return at
    return max(at, _paid_poll(rt, now, day_plan.plan.interval(load), day_plan, load))


def is_paid(rt: Runtime, watch: Any) -> bool:
    """Whether each read of this watch costs units. One that is read `via: both` looks at the API once an hour only."""
    return costs_units(rt, watch.source, watch.via)


def costs_units(rt: Runtime, source: str, via: str) -> bool:
    settings = rt.settings.sources.get(source)
    return via == "api" or (settings is not None and settings.adaptive is not None)


def unit_limit(rt: Runtime) -> int | None:
    """Units a day; None: no source that is switched on uses any."""
    uses = [rt.settings.sources[name].budget_units is not None for name in rt.enabled_sources()]
    return rt.api_limit() if any(uses) else None


def forecast(rt: Runtime, now: float) -> Forecast | None:
    """None: nothing that is watched can cost units."""
    limit = unit_limit(rt)
    if limit is None:
        return None
    day_plan, day = _day_plan(rt, now), api_units.today(now)
    plan, budget = day_plan.plan, day_plan.budget
    rate = day.per_second if day.per_second is not None else plan.rate(day_plan.loads)
    spare = max(budget.left - budget.buffer, 0)
    # By interval, the shortest first.
    counted = Counter[tuple[float, bool]]()
    for load in day_plan.loads:
        seconds = plan.interval(load)
        is_fast = seconds <= load.fast * 1.01
        if seconds != math.inf:  # else nothing is left of the day's units: midnight is the next chance
            seconds = float(round(seconds)) if seconds >= 10 else round(seconds, 1)
        counted[seconds, is_fast] += 1
    return Forecast(
        day=day.id,
        limit=limit,
        used=day.used,
        buffer=budget.buffer,
        ends_at=day.ends,
        lasts_until=min(now + spare / rate, day.ends) if rate > 0 else day.ends if spare else now,
        per_hour=rate * HOUR,
        planned_units=round(plan.demand(day_plan.loads, budget.seconds)),
        groups=tuple(Group(seconds, count, fast) for (seconds, fast), count in sorted(counted.items())),
        warning=infeasible(rt),
        urgent=_urgent_sentence(rt, day_plan),
    )


def quote(rt: Runtime, source: str, interval: float, via: str, now: float) -> Quote:
    """What one more watch like this would cost, and how often it would be read today."""
    settings = rt.settings.sources[source]
    if settings.adaptive is None and via == "feed":
        return Quote(interval, 0, 0)
    speeds, day_plan = _speeds(settings, interval, via), _day_plan(rt, now)
    ours = Load(0, speeds.fast, speeds.slow)
    plan = make_plan((*day_plan.loads, ours), day_plan.budget)
    most = quota_warnings.daily_units(speeds.fast)
    return Quote(interval if via == "both" else plan.interval(ours), most, quota_warnings.daily_units(speeds.slow))


def sentence(found: Forecast) -> str:
    """ "At this rate the budget lasts until 21:40 Pacific; 3 playlists can stay at 30 s, 12 run at 96 s"."""
    if not found.groups:
        return "nothing that is watched costs units"
    if found.left == 0:
        return "today's units are used up; what costs units is read again after midnight Pacific"
    until = (
        "midnight"
        if found.lasts_until >= found.ends_at
        else datetime.fromtimestamp(found.lasts_until, api_units.PACIFIC).strftime("%H:%M")
    )
    lasting = f"at this rate the budget lasts until {until} Pacific"
    words = []
    for one in found.groups:
        verb = "can stay" if one.is_fast else "runs" if one.watches == 1 else "run"
        words.append(
            f"{one.watches} {verb} " + ("after midnight" if one.seconds == math.inf else f"at {one.seconds:g} s")
        )
    number, _, rest = words[0].partition(" ")
    return "; ".join(
        [lasting, ", ".join([f"{number} {'playlist' if number == '1' else 'playlists'} {rest}", *words[1:]])]
    )


def infeasible(rt: Runtime) -> str | None:
    """One sentence with the sum when the slow intervals of all watches need more than a whole day has."""
    limit = unit_limit(rt)
    if limit is None:
        return None
    reads = [(speeds.slow, row.pages) for row, speeds in _paid(rt)]
    return quota_warnings.too_much(reads, limit, buffer(rt)) if reads else None


def warn_infeasible(rt: Runtime) -> None:
    """At start: log that the plan stretches the configured intervals."""
    if said := infeasible(rt):
        log.warning("the watches need more API units than a day has", sum=said)


def _day_plan(rt: Runtime, now: float, found_new: Iterable[int] = ()) -> _DayPlan:
    midnight = api_units.day_ends(now)
    budget = UnitBudget(unit_limit(rt) or 0, api_units.used(now), buffer(rt), max(midnight - now, 1.0))
    usual, paid = _usual(rt, now), _paid(rt)
    quick = [(row, _quick(rt, row, speeds)) for row, speeds in paid]
    for chosen in (quick, paid) if quick != paid else (paid,):
        loads = [_load(row, speeds, now, budget.seconds, usual, row.id in found_new) for row, speeds in chosen]
        day_plan = _DayPlan(tuple(loads), budget, midnight)
        plan = day_plan.plan
        if plan.stretch <= 1.0 and not plan.all_idle and plan.pace <= URGENT_INTERVAL:
            break
    return day_plan


def _quick(rt: Runtime, row: watch_admin.PaidWatch, speeds: cadence.Speeds) -> cadence.Speeds:
    """The speeds that keep the promise of the tier `urgent`. An interval that is set for this watch, an active interval
    that is set, and a source interval above the promise are respected."""
    settings = rt.settings.sources[row.source]
    rule, own = settings.adaptive, row.own_interval is not None or row.interval != settings.poll_interval_seconds
    is_set = own or (rule is not None and rule.active_interval_seconds is not None)
    if row.tier != "urgent" or is_set or not URGENT_INTERVAL < speeds.fast <= URGENT_PROMISE:
        return speeds
    return replace(speeds, fast=URGENT_INTERVAL)


def _urgent_sentence(rt: Runtime, day_plan: _DayPlan) -> str | None:
    rows = [row for row, _ in _paid(rt) if row.tier == "urgent" and row.via != "both"]
    if not rows:
        return None
    intervals = {load.key: day_plan.plan.interval(load) for load in day_plan.loads}
    slow = [row for row in rows if intervals.get(row.id, 0.0) > URGENT_INTERVAL * 1.01]
    promise = f"95 % of urgent items are received within {URGENT_PROMISE:g} s of their occurrence"
    if not slow:
        return f"{promise}: every urgent watch is polled every {URGENT_INTERVAL:g} s or more often"
    needed = sum(quota_warnings.daily_units(URGENT_INTERVAL, max(row.pages, 1)) for row in rows)
    why = f"{len(slow)} of {len(rows)} urgent watches are polled less often than every {URGENT_INTERVAL:g} s"
    return f"not promised: {promise}; {why}, which takes {needed:,} of {day_plan.budget.limit:,} units a day for all"


def wake_throttled(rt: Runtime) -> int:
    """At start and after a reload: make watches due that wait for units or for access, where both are there now, and
    those that the plan allows to be read earlier: the limit was raised, or a key was set. Returns their number.

    The rows are their `next_poll_at`; a repeated call changes nothing, because a woken watch is due.
    """
    now, limit = rt.now(), unit_limit(rt)
    has_units = limit is not None and api_units.used(now) < limit
    on = set(rt.enabled_sources())
    lacking = {name for name in on if rt.adapter(name).lacks()}
    due: dict[int, float] = {}
    for row in watches.active():
        waits = row.error_kind in ("quota", "budget") and has_units
        is_locked_out = row.error_kind == "auth" and row.source not in lacking
        if row.source in on and (waits or is_locked_out):
            due[row.id] = now
    if has_units:
        day_plan = _day_plan(rt, now)
        planned = {load.key: now + day_plan.plan.interval(load) for load in day_plan.loads}
        healthy = {row.id for row in watches.active() if row.errors == 0}
        due = {key: at for key, at in planned.items() if key in healthy and at < math.inf} | due
    woken = sum(watch_admin.make_due(key, at) for key, at in due.items())
    if woken:
        log.info("watches are due earlier: units or access are there", watches=woken)
    return woken


def _load(
    row: watch_admin.PaidWatch, speeds: cadence.Speeds, now: float, seconds: float, usual: dict[int, int], is_new: bool
) -> Load:
    begun = row.first_read_at or now
    last = now if is_new else max(row.last_new_at or 0.0, begun)
    share = usual.get(row.id, 0) * speeds.threshold / min(max(now - begun, ENOUGH_SECONDS), DAY)
    return Load(
        key=row.id,
        fast=speeds.fast,
        slow=speeds.slow,
        units=max(row.pages, 1),
        is_active=speeds.is_active(last, now),
        busy=speeds.busy(last, now, seconds, usual=share),
    )


def _paid(rt: Runtime) -> list[tuple[watch_admin.PaidWatch, cadence.Speeds]]:
    sources = rt.settings.sources
    metered = [name for name in rt.enabled_sources() if sources[name].adaptive is not None]
    rows = [row for row in watch_admin.paid(metered) if row.source in sources and sources[row.source].enabled]
    return [(row, _speeds(sources[row.source], row.interval, row.via)) for row in rows]


def _speeds(settings: SourceSettings, interval: float, via: str = "feed") -> cadence.Speeds:
    """A watch with an interval of its own keeps it as its fast one; others have the source's."""
    rule = settings.adaptive
    if rule is None and via == "both":
        return cadence.Speeds(HOUR, HOUR)
    if rule is None or not rule.enabled:
        return cadence.Speeds(interval, interval)
    own = interval != settings.poll_interval_seconds
    return cadence.speeds(
        interval,
        active=None if own else rule.active_interval_seconds,
        idle=rule.idle_interval_seconds,
        threshold=rule.activity_threshold_minutes * 60,
    )


def look_back(rt: Runtime, now: float) -> None:
    """Refresh the usual activity if it is older than REMEMBER_SECONDS. The planner calls this outside the transaction
    of a poll, where the count would keep the write lock."""
    _usual(rt, now)


def _usual(rt: Runtime, now: float) -> dict[int, int]:
    """By watch, the number of active spells in the last day. Counted every REMEMBER_SECONDS: it changes slowly."""
    rules = [source.adaptive for source in rt.settings.sources.values() if source.adaptive and source.enabled]
    spell = max((rule.activity_threshold_minutes * 60 for rule in rules), default=0.0)
    state = rt.process
    if state.activity_counted_at is None or not 0 <= now - state.activity_counted_at < REMEMBER_SECONDS:
        metered = [name for name in rt.enabled_sources() if rt.settings.sources[name].adaptive]
        state.usual_activity = watch_admin.active_spells(metered, now - DAY, spell) if spell else {}
        state.activity_counted_at = now
    return state.usual_activity


def buffer(rt: Runtime) -> int:
    rules = [rt.settings.sources[name].adaptive for name in rt.enabled_sources()]
    return max((rule.min_quota_buffer for rule in rules if rule), default=0)


def set_planned_interval(watch: Watch, seconds: float) -> None:
    if watch.planned_interval != seconds:
        watch_admin.set_planned_interval(watch.id, seconds)
        watch.planned_interval = seconds


def _paid_poll(rt: Runtime, now: float, seconds: float, day_plan: _DayPlan, load: Load) -> float:
    at = next_time(now, seconds, day_plan.midnight, day_plan.tomorrow.interval(load))
    if at > day_plan.midnight:
        return at
    # A stretched interval is another one at each poll, so there is no phase to reach, and each poll would come early.
    most = cadence.CLEARLY if day_plan.plan.stretch <= 1.0 else rt.rng.uniform(0.0, cadence.SLIGHTLY)
    return cadence.after_success(now, at - now, cadence.phase(load.key), most=most)
