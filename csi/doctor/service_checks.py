"""Checks of what runs: receivers, API, sources, worker, sidecar, backlog. Each outside service is asked once."""

from collections.abc import Iterator

from csi.adapters.base import SourceAdapter
from csi.doctor import destination_check
from csi.doctor.destination_check import Checkup
from csi.doctor.finding import Finding, Level
from csi.emitter.failure_cause import SET_CLOCKS
from csi.errors import CsiError, NetError, SourceError
from csi.ingester.signature import TOLERANCE_SECONDS
from csi.net import HttpLimits
from csi.pipeline import quota_schedule, schedule
from csi.runtime import Runtime
from csi.status.delivery_problems import CERTIFICATE_DAYS, CERTIFICATE_LAST_DAYS, DAY, certificate_text
from csi.status.destinations import STATE_TEXTS, all_destinations
from csi.status.facts import SystemFacts
from csi.status.problems import Problem
from csi.status.sidecar import sidecar_address
from csi.status.verdict import REPLAY_DEAD_LETTERS, judge
from csi.status.watch_states import is_failing, last_poll_failed
from csi.status.worker import worker_status
from csi.status.worker_problems import SET_CLOCK, worker_remedy
from csi.store import watch_admin, watches
from csi.store.models import Watch
from csi.store.queries import job_figures

CLOCK_SECONDS = 60.0
OLD_JOBS = 7_200.0

_SOURCE_LEVELS: dict[str, Level] = {"budget": "warn", "quota": "warn", "throttled": "warn", "missing": "warn"}
_SOURCE_REMEDIES = {
    "auth": "put a good key into the variable that api_key_env names (YOUTUBE_API_KEY), and start the worker again",
    "denied": "make the playlist public or unlisted, or set the three YOUTUBE_OAUTH_… variables of its owner",
    "missing": "open it in a browser; a feed's 404 alone proves nothing and is often temporary",
    "budget": "wait for midnight Pacific time, or see `csi quota` for how to make the units last",
    "quota": "wait for midnight Pacific time, or see `csi quota` for how to make the units last",
    "throttled": "none: the host rate-limited us; polling resumes after the pause",
    "malformed": "check api_base_url and feed_url_template, and whether a proxy answers instead",
    "bug": "read the last lines of the worker's log, and report the error",
}
_SOURCE_OTHERWISE = "check network, DNS and proxy of this machine; polling resumes when the host answers"


# ── the receiver ────────────────────────────────────────────────────────────────────────────────────────


def check_receivers(rt: Runtime) -> Iterator[Finding]:
    """A signed empty batch to each, as `csi delivery test` sends it."""
    if not rt.settings.features.delivery:
        yield Finding("receiver", "warn", "delivery is switched off", "set features.delivery: true to send events")
        return
    for name in rt.destinations:
        try:
            yield from _judge_receiver(destination_check.check(rt, name), rt.now())
        except CsiError as error:
            yield Finding(
                "receiver", "fail", f"{name}: {error}", "set its address and secret, then `csi delivery test`"
            )


def _judge_receiver(one: Checkup, now: float) -> Iterator[Finding]:
    if one.is_good:
        yield Finding("receiver", "ok", f"{one.destination}: {one.text}; {one.forms_text}")
    else:
        again = f"{one.remedy}; then `csi delivery test --destination {one.destination}`"
        yield Finding("receiver", "fail", f"{one.destination}: {one.url}: {one.text}", again)
    if one.note is not None:
        remedy = "let it answer `accepted` and `rejected` (docs/contract.md), or compare its own count with `csi slo`"
        yield Finding("receiver", "warn", f"{one.destination}: {one.note}", remedy)
    if (expires_at := one.certificate_expires_at) is not None:
        text = f"{one.destination}: its certificate {certificate_text(expires_at, now)}"
        if expires_at - now >= CERTIFICATE_DAYS * DAY:
            yield Finding("certificate", "ok", text)
        else:
            severity: Level = "fail" if expires_at - now < CERTIFICATE_LAST_DAYS * DAY else "warn"
            yield Finding("certificate", severity, text, "renew the receiver's certificate")
    if one.clock_ahead is not None and abs(one.clock_ahead) > CLOCK_SECONDS:
        level: Level = "fail" if abs(one.clock_ahead) > TOLERANCE_SECONDS else "warn"
        yield Finding("clock", level, f"{one.destination}: {one.clock_text}", SET_CLOCKS)


# ── sources ─────────────────────────────────────────────────────────────────────────────────────────────


def check_api(rt: Runtime) -> Iterator[Finding]:
    """The key where one is needed. What is left of the day's units is part of the verdict."""
    needing = sorted({watch.source for watch in watches.active() if _needs_key(rt, watch)})
    lacking = [name for name in needing if not _has_key(rt.adapter(name))]
    for name in lacking:
        variable = getattr(rt.settings.sources[name], "api_key_env", "YOUTUBE_API_KEY")
        remedy = f"set {variable} in the environment or the env file, and start the worker again"
        yield Finding("api", "fail", f"{name} needs an API key, and {variable} is not set", remedy)
    if not needing:
        yield Finding("api", "ok", "no watch needs the API")
    elif not lacking:
        yield Finding("api", "ok", f"the API key of {', '.join(needing)} is set")


def _needs_key(rt: Runtime, watch: Watch) -> bool:
    return watch.source in rt.enabled_sources() and quota_schedule.is_paid(rt, watch)


def _has_key(adapter: SourceAdapter) -> bool:
    return bool(getattr(getattr(adapter, "api", None), "usable", True))


def check_sources(rt: Runtime) -> Iterator[Finding]:
    """Each source once, by its best watch; nothing of it is stored. A playlist costs one unit."""
    rows = watches.active()
    for name in rt.enabled_sources():
        ours = sorted((row for row in rows if row.source == name), key=lambda row: (row.errors, row.id))
        if not ours:
            yield Finding("source", "ok", f"{name}: nothing is watched")
            continue
        watch, adapter = ours[0], rt.adapter(name)
        if _needs_key(rt, watch) and not _has_key(adapter):
            continue
        place = f"{name}: {watch.ref}"
        try:
            found = adapter.count_items(watch.ref, watch.via)
        except SourceError as error:
            level, remedy = _SOURCE_LEVELS.get(error.kind, "fail"), _SOURCE_REMEDIES.get(error.kind, _SOURCE_OTHERWISE)
            yield Finding("source", level, f"{place}: {error}", remedy)
            continue
        if found is None:
            yield Finding("source", "warn", f"{place}: the API does not show it", _SOURCE_REMEDIES["missing"])
        else:
            yield Finding("source", "ok", f"{place} can be read ({found} items)")


def check_watches(rt: Runtime, facts: SystemFacts) -> Iterator[Finding]:
    stored = {(row.source, row.ref) for row in watch_admin.every()}
    configured = (one for name in rt.enabled_sources() for one in schedule.configured_watches(rt, name))
    wanted = {(one.source, one.ref) for one in configured}
    if unknown := len(wanted - stored):
        text = f"{unknown:,} watches of the configuration are not in the database: the worker started with another one"
        yield Finding("watches", "fail", text, "restart the worker, so that it reads the configuration")
    total, failing = facts.number_of_watches(), sum(is_failing(watch, facts.now) for watch in facts.watches)
    failed = sum(last_poll_failed(watch) for watch in facts.watches)
    new = sum(watch.last_poll_at is None for watch in facts.watches)
    if not facts.polling:
        yield Finding("watches", "warn", "polling is switched off", "set features.polling: true to poll sources")
    elif not facts.worker.is_alive and total:
        text = f"{total:,} watches, whose state is unknown while no worker is alive"
        yield Finding("watches", "warn", text, worker_remedy(facts.worker))
    elif failing:
        text = f"{failing:,} of {total:,} watches fail at the moment"
        yield Finding("watches", "warn", text, "`csi sources list` shows the error of each")
    elif not unknown:
        more = f", {new:,} not polled yet" if new else ""
        more += f"; the last poll of {failed:,} failed, and is retried" if failed else ""
        yield Finding("watches", "ok", f"{total:,} watches, none failing{more}")


# ── what runs ───────────────────────────────────────────────────────────────────────────────────────────


_FAULTS = ("worker_silent", "watches_overdue", "destination_paused", "storage", "quota_spent")
"""Problems that make `csi doctor` end with exit code 6; the others are warnings."""


def check_verdict(rt: Runtime, facts: SystemFacts, *, online: bool) -> Iterator[Finding]:
    """Every problem of the verdict that follows from no other one, and what is fine where it has none. `online`:
    certificates were looked at already, in a connection of now."""
    found = judge(facts)
    problems = [one for one in found.problems if not (online and one.kind.check == "certificate")]
    for one in problems:
        if one.explained_by is None:
            yield _finding(one)
    checks = {one.kind.check for one in problems}
    if "worker" not in checks:
        yield Finding("worker", "ok", f"alive; last heartbeat {max(facts.worker.age or 0.0, 0.0):.0f} s ago")
    if "notify" not in checks:
        text, sent = "notifications are switched off (notify.enabled)", facts.notifications
        if sent.is_on:
            heartbeat = "the heartbeat URL is set" if sent.has_heartbeat_url else "no heartbeat URL is set"
            text = f"notifications go to {', '.join(sent.targets) or 'no target'}; {heartbeat}"
        yield Finding("notify", "ok", text)
    failing = {one.subject for one in problems if one.kind.check == "delivery"}
    for target in all_destinations(rt):
        is_fine = target.state in ("accepting", "untested", "throttled") and target.name not in failing
        if facts.delivery_is_on and is_fine:
            counts = f"{target.pending:,} pending, {target.in_flight:,} in flight"
            yield Finding("delivery", "ok", f"{target.name}: {STATE_TEXTS[target.state]}; {counts}")
    if "backup" not in checks:
        yield _backup_finding(facts)
    if "api" not in checks:
        yield from _units(rt)
    if "letters" not in checks:
        if facts.dead_letters:
            dead_letters = Finding("letters", "warn", f"{facts.dead_letters:,} open dead letters", REPLAY_DEAD_LETTERS)
        else:
            dead_letters = Finding("letters", "ok", "there are no open dead letters")
        yield dead_letters
    if "backlog" not in checks:
        yield Finding("backlog", "ok", "no event has been waiting for long")


def _units(rt: Runtime) -> Iterator[Finding]:
    """The units of a day that are not spent, and a plan that needs more than a day has."""
    found = quota_schedule.forecast(rt, rt.now())
    if found is None or not found.groups:
        return
    used = f"{found.used:,} of {found.limit:,} units are used this Pacific day"
    if found.warning:
        remedy = "watch less, or raise quota_limit if Google granted more; see `csi quota`"
        yield Finding("api", "warn", f"{used}; {found.warning}", remedy)
    else:
        yield Finding("api", "ok", f"{used}; {quota_schedule.sentence(found)}")


def _backup_finding(facts: SystemFacts) -> Finding:
    good = facts.backups.last_good
    if facts.backup_max_age is None:
        return Finding("backup", "skip", "csi makes no backups of this database (PostgreSQL, or switched off)")
    if good is None:
        return Finding("backup", "ok", "none yet; one is expected within a day of the first start")
    size = f"{(good.bytes or 0) / 1_048_576:,.1f} MiB in {good.seconds or 0.0:,.1f} s"
    return Finding("backup", "ok", f"the last one was made {(facts.now - good.at) / 3600:,.1f} hours ago ({size})")


def _finding(one: Problem) -> Finding:
    is_clock = one.id == "worker_silent" and one.remedy == SET_CLOCK
    is_fault = one.id in _FAULTS or (one.id == "certificate_expiring" and one.severity != "notice")
    level: Level = "fail" if is_fault else "warn"
    text = f"{one.what_and_why}; {one.effect}" + (f"; {one.affected}" if one.affected else "")
    return Finding("clock" if is_clock else one.kind.check, level, text, one.remedy, one.id, one.runbook)


def check_sidecar(rt: Runtime, configured: str) -> Iterator[Finding]:
    """At the address that it recorded itself, which PORT in its environment may have set; otherwise as configured."""
    url = sidecar_address(rt) or configured
    try:
        status = rt.net.get(f"{url}/healthz", limits=HttpLimits(total=3.0)).status
    except NetError as error:
        remedy = "start it: `csi run`, or the service csi-web; without it there are no health pages and metrics"
        yield Finding("sidecar", "warn", f"no answer: {error}", remedy)
        return
    if status == 200:
        yield Finding("sidecar", "ok", f"it answers at {url}")
    else:
        yield Finding("sidecar", "warn", f"{url} answers http {status}", "check whether another program uses this port")


def check_jobs(rt: Runtime) -> Iterator[Finding]:
    """Of the catalogue: they delay no event."""
    dead, since, found = job_figures.dead_count(), job_figures.waiting_since(rt.now()), job_figures.dead_jobs()
    wait = 0.0 if since is None or not rt.settings.catalog.enabled else rt.now() - since
    if replaced := dead - len(found.for_good) - found.redriven:
        text = f"{replaced:,} jobs of the catalogue were given up, and a newer job does the work of each: nothing to do"
        yield Finding("jobs", "ok", text)
    if wait > OLD_JOBS:
        text = f"a job of the catalogue has been due for {wait / 3600:,.0f} hours"
        remedy = f"`csi jobs list --status pending`; the worker takes them: {worker_remedy(worker_status(rt))}"
        yield Finding("jobs", "warn", text, remedy)
    elif not dead:
        yield Finding("jobs", "ok", "no job of the catalogue is dead or has been due for long")
