"""What a read says about its host: pauses and outages are rows, with one line in the log where they begin and end."""

from dataclasses import dataclass
from typing import Any

from csi.errors import SourceError
from csi.logs import log
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.scheduling import watch_health
from csi.scheduling.watch_health import HostFacts, Verdict, WatchFacts
from csi.store import counters, host_pacing, hosts, watches
from csi.store.models import Host, Watch
from csi.store.watches import PollCandidate

SPREAD = 30.0
SLOT_SECONDS = 30.0
"""A reserved slot is used until so late."""
ROUNDING = 0.001
"""Of the database's arithmetic: a slot that begins now may be a little later than now."""
KINDS = sorted(watch_health.HOST_KINDS)


@dataclass(frozen=True)
class FailureAssessment:
    """What a failed read means for its watch, and the facts about the host that decided it."""

    host: Host
    failing: int
    verdict: Verdict


def host_of(rt: Runtime, watch: PollCandidate) -> str:
    """Where this watch is read from; a source without hosts counts as one."""
    return rt.adapter(watch.source).host(watch.ref, watch.via) or watch.source


def postpone_if_paused(rt: Runtime, watch: PollCandidate, host: str, now: float) -> float | None:
    """When the host rate-limited us, the watch is read after the pause, which is no error. Returns its new time."""
    until = hosts.paused_until(hosts.find(host), now)
    if until is None:
        return None
    until += rt.rng.uniform(0.0, min(SPREAD, watch.interval_seconds))
    watches.postpone(watch, until)
    return until


def postpone_until_slot(rt: Runtime, watch: PollCandidate, now: float) -> float | None:
    """When the pace of its host does not allow the read now, the watch is read in the next free slot, which is reserved
    for it. Returns its new time."""
    if watch.slot_at is not None and 0 <= now - watch.slot_at < SLOT_SECONDS:
        return None
    host = rt.adapter(watch.source).paced_as(watch.ref, watch.via)
    is_reserved = watch.slot_at is not None and 0 < watch.slot_at - now <= host_pacing.LONGEST_AHEAD
    at = watch.slot_at if is_reserved else rt.pacer.reserve(host) if host else None
    if at is None or at <= rt.now() + ROUNDING:
        return None
    watches.postpone(watch, at, slot_at=at)
    return at


def note_answer(rt: Runtime, watch: Watch, name: str, now: float) -> None:
    """Record on the host that a read succeeded; end its outage where that is over. Part of the caller's transaction."""
    host = hosts.get(name)
    hosts.note_ok(host, now)
    if host.outage_since is None:
        return
    if watch.health == "outage" and hosts.note_recovery(host, now, watch_health.MINUTE):
        hosts.recall(name, now, watch_health.catch_up, rt.rng)
    if watch_health.is_over(_facts(host, now), now):
        ended = hosts.end_outage(host, now)
        if ended is None:
            return
        hosts.recall(host.host, now, watch_health.catch_up, rt.rng)
        counters.add("outages", source=watch.source, label="ended")
        counters.add("outage_seconds", ended.seconds, source=watch.source)
        log.info("upstream outage is over", host=host.host, seconds=round(ended.seconds), watches=ended.watches)


def judge(
    rt: Runtime, watch: Watch, name: str, error: SourceError, tried_at: float | None, now: float
) -> FailureAssessment:
    """What a failed read means for its watch. Decides, and changes nothing."""
    host = hosts.get(name)
    facts = _facts(host, now, watch, error.kind)
    state: Any = watch.health
    watch_facts = WatchFacts(
        state=state,
        since=None if watch.health == "healthy" else watch.health_since,
        errors=watch.errors,
        interval=watch.planned_interval or watch.interval_seconds,
        costs=quota_schedule.is_paid(rt, watch),
        tried_at=tried_at,
    )
    return FailureAssessment(host, facts.failing, watch_health.judge(watch_facts, facts, error, now, rt.rng))


def note_failure(rt: Runtime, watch: Watch, error: SourceError, assessment: FailureAssessment, now: float) -> None:
    """Record the failure on the host: its error, a pause (429, 503) or an outage. Part of the caller's transaction."""
    host, failing = assessment.host, assessment.failing
    hosts.note_error(host, now)
    if assessment.verdict.pauses_host:
        _pause(rt, watch, host, error, now)
    if assessment.verdict.outage_begins and hosts.begin_outage(host, now, str(error), failing):
        counters.add("outages", source=watch.source, label="began")
        log.warning("upstream outage begins", host=host.host, failing=failing, error=str(error), kind=error.kind)
    elif assessment.verdict.state == "outage":
        hosts.widen_outage(host, failing)


def _pause(rt: Runtime, watch: Watch, host: Host, error: SourceError, now: float) -> None:
    is_new = hosts.paused_until(host, now) is None
    if not is_new and error.retry_after is None:
        return  # the request was sent before the pause began, and its response has no new time
    count, throttled = hosts.count(host.host, ["throttled"], now - watch_health.LONGEST_PAUSE, but=watch.id)
    agree = watch_health.do_agree(count + 1, throttled + 1)
    seconds = watch_health.pause(host.pauses, error.retry_after, rt.rng, agree=agree)
    if hosts.pause(host, now, now + seconds, str(error)) and is_new:
        counters.add("host_pauses", source=watch.source)
        log.warning("host rate-limited us; polling paused", host=host.host, seconds=round(seconds, 1), error=str(error))


def _facts(host: Host, now: float, failed: Watch | None = None, kind: str = "") -> HostFacts:
    """Counts of the host's watches. `failed` is added: a watch whose failure of this kind is not stored yet."""
    but = failed.id if failed is not None else 0
    count, failing = hosts.count(host.host, KINDS, now - watch_health.WINDOW, but=but)
    if failed is not None:
        count, failing = count + 1, failing + (kind in watch_health.HOST_KINDS)
    return HostFacts(count, failing, host.last_ok_at, host.outage_since)
