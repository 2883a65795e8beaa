"""The second half of an examination: receiver, API, sources, worker, and what lies about. Asks those outside once."""

from collections.abc import Iterator

from csi import clock
from csi.adapters.base import Position, SourceAdapter
from csi.dlq import dead_letters
from csi.doctor import destination
from csi.doctor.destination import Checkup
from csi.doctor.finding import Finding, Level
from csi.errors import CsiError, NetError, SourceError
from csi.ingester.signature import TOLERANCE_SECONDS
from csi.net import HttpLimits
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.status import destinations
from csi.store import events, heartbeats, watch_admin, watches
from csi.store.catalog import jobs
from csi.store.models import Watch

FRESH_SECONDS = 30.0
CLOCK_SECONDS = 60.0
OLD_BACKLOG = 600.0
OLD_JOBS = 7_200.0
WORKER = "worker"

_START = "start it: `csi run`, or the service csi-worker; its last log line says why it ended"

_SOURCE_LEVELS: dict[str, Level] = {"budget": "warn", "quota": "warn", "throttled": "warn", "missing": "warn"}
_SOURCE_REMEDIES = {
    "auth": "put a good key into the variable that api_key_env names (YOUTUBE_API_KEY), and start the worker again",
    "denied": "make the playlist public or unlisted, or set the three YOUTUBE_OAUTH_… variables of its owner",
    "missing": "look whether it is still there in a browser; a feed's 404 alone proves nothing and often passes",
    "budget": "wait for midnight Pacific time, or see `csi quota` for how to make the units last",
    "quota": "wait for midnight Pacific time, or see `csi quota` for how to make the units last",
    "throttled": "wait: the host asked for patience, and gets it by itself",
    "malformed": "look whether api_base_url and feed_url_template are right, and whether a proxy answers instead",
    "bug": "look at the last lines of the worker's log, and report it",
}
_SOURCE_OTHERWISE = "see whether this machine reaches it (network, DNS, proxy); when it does, reading goes on by itself"


# ── the receiver ────────────────────────────────────────────────────────────────────────────────────────


def look_at_receivers(rt: Runtime) -> Iterator[Finding]:
    """A signed empty batch to each, as `csi delivery test` sends it."""
    if not rt.settings.features.delivery:
        yield Finding("receiver", "warn", "delivery is switched off", "set features.delivery: true to send events")
        return
    for name in rt.destinations:
        try:
            yield from _judge_receiver(destination.check(rt, name))
        except CsiError as error:
            yield Finding(
                "receiver", "fail", f"{name}: {error}", "set its address and secret, then `csi delivery test`"
            )


def _judge_receiver(one: Checkup) -> Iterator[Finding]:
    if one.is_good:
        yield Finding("receiver", "ok", f"{one.destination}: {one.text}; {one.forms_text}")
    else:
        yield Finding("receiver", "fail", f"{one.destination}: {one.url}: {one.text}", _receiver_remedy(one))
    if one.clock_ahead is not None and abs(one.clock_ahead) > CLOCK_SECONDS:
        level: Level = "fail" if abs(one.clock_ahead) > TOLERANCE_SECONDS else "warn"
        remedy = "set both clocks by NTP: `timedatectl set-ntp true`"
        yield Finding("clock", level, f"{one.destination}: {one.clock_text}", remedy)


def _receiver_remedy(one: Checkup) -> str:
    again = "then `csi delivery test`"
    match one.status:
        case None:
            return f"start the receiver, or correct CSI_UA_ENDPOINT; {again}"
        case 401:
            return f"give both sides the same secret: CSI_UA_SHARED_SECRET here and there (and see the clock); {again}"
        case 403:
            return f"let the receiver allow this csi.instance_id; {again}"
        case 404 | 405 | 410:
            return f"correct the path in CSI_UA_ENDPOINT; {again}"
    return f"mend the receiver; events stay pending until it takes them; {again}"


def look_at_gates(rt: Runtime) -> Iterator[Finding]:
    for one in destinations.standings(rt):
        if one.gate == "held":
            remedy = f"`csi delivery resume --destination {one.name}`"
            since = "" if one.endpoint.held_at is None else f" since {clock.iso(one.endpoint.held_at)}"
            yield Finding("delivery", "fail", f"{one.name} is paused by command{since}: {one.endpoint.held}", remedy)
        elif one.endpoint.breaker == "open":
            text = f"{one.name} is away ({one.endpoint.reason}); {one.pending:,} events wait"
            yield Finding("delivery", "warn", text, "mend what `csi delivery test` says; it is asked every 20 s")
        else:
            yield Finding("delivery", "ok", f"{one.name}: {one.pending:,} pending, {one.in_flight:,} on their way")


# ── sources ─────────────────────────────────────────────────────────────────────────────────────────────


def look_at_api(rt: Runtime) -> Iterator[Finding]:
    """The key where one is needed, and what is left of the day's units."""
    needing = sorted({watch.source for watch in watches.active() if _needs_key(rt, watch)})
    lacking = [name for name in needing if not _has_key(rt.adapter(name))]
    for name in lacking:
        variable = getattr(rt.settings.sources[name], "api_key_env", "YOUTUBE_API_KEY")
        remedy = f"set {variable} in the environment or the env file, and start the worker again"
        yield Finding("api", "fail", f"{name} needs an API key, and {variable} is not set", remedy)
    found = quota_schedule.forecast(rt, rt.now())
    if needing and not lacking and found is not None:
        yield _judge_budget(found)
    elif not needing:
        yield Finding("api", "ok", "nothing that is watched needs the API")


def _needs_key(rt: Runtime, watch: Watch) -> bool:
    return watch.source in rt.enabled_sources() and quota_schedule.is_paid(rt, watch)


def _has_key(adapter: SourceAdapter) -> bool:
    return bool(getattr(getattr(adapter, "api", None), "usable", True))


def _judge_budget(found: quota_schedule.Forecast) -> Finding:
    used = f"{found.used:,} of {found.limit:,} units are used this Pacific day"
    remedy = f"polling goes on at {clock.iso(found.ends_at)}; watch less, or raise quota_limit if Google gave you more"
    if found.left == 0:
        return Finding("api", "fail", f"{used}: nothing is left", remedy)
    if found.is_low or found.warning:
        return Finding("api", "warn", f"{used}; {found.warning or 'less than the buffer is left'}", remedy)
    return Finding("api", "ok", f"{used}; {quota_schedule.sentence(found)}")


def look_at_sources(rt: Runtime) -> Iterator[Finding]:
    """Each source once, by its best watch; nothing of it is stored. A playlist costs one unit."""
    rows = watches.active()
    for name in rt.enabled_sources():
        ours = sorted((row for row in rows if row.source == name), key=lambda row: (row.errors, row.id))
        if not ours:
            yield Finding("source", "ok", f"{name}: nothing is watched")
        elif not (_needs_key(rt, ours[0]) and not _has_key(rt.adapter(name))):
            yield _try_source(rt, ours[0])


def _try_source(rt: Runtime, watch: Watch) -> Finding:
    place = f"{watch.source}: {watch.ref}"
    try:
        found = _read_once(rt.adapter(watch.source), watch)
    except SourceError as error:
        level = _SOURCE_LEVELS.get(error.kind, "fail")
        return Finding("source", level, f"{place}: {error}", _SOURCE_REMEDIES.get(error.kind, _SOURCE_OTHERWISE))
    if found is None:
        return Finding("source", "warn", f"{place}: the API does not show it", _SOURCE_REMEDIES["missing"])
    return Finding("source", "ok", f"{place} can be read ({found} items)")


def _read_once(adapter: SourceAdapter, watch: Watch) -> int | None:
    """How many items it shows; None: the API knows nothing of it."""
    if type(adapter).sizes is not SourceAdapter.sizes:
        told = adapter.sizes([watch.ref]).get(watch.ref)
        return told.item_count if told else None
    return len(adapter.read(Position(watch.ref, via=watch.via, emits=0)).items)


def look_at_watches(rt: Runtime) -> Iterator[Finding]:
    now = rt.now()
    rows = [row for row in watches.active() if row.source in rt.enabled_sources()]
    unknown = _not_taken_up(rt)
    if unknown:
        text = f"{unknown:,} watches of the configuration are not in the database: the worker began with another one"
        yield Finding("watches", "fail", text, "start the worker again, so that it reads the configuration")
    late = [row for row in rows if now - row.next_poll_at > max(3 * row.interval_seconds, 180.0)]
    failing = [row for row in rows if row.errors]
    if not rt.settings.features.polling:
        yield Finding("watches", "warn", "polling is switched off", "set features.polling: true to read sources")
    elif late:
        text = f"{len(late):,} of {len(rows):,} watches are long overdue"
        yield Finding("watches", "fail", text, f"the worker reads them; {_START}")
    elif failing:
        text = f"{len(failing):,} of {len(rows):,} watches fail at the moment"
        yield Finding("watches", "warn", text, "`csi sources list` says of each what is wrong")
    elif not unknown:
        yield Finding("watches", "ok", f"{len(rows):,} watches, none overdue, none failing")


def _not_taken_up(rt: Runtime) -> int:
    stored = {(row.source, row.ref) for row in watch_admin.every()}
    wanted = {(name, spec.ref) for name in rt.enabled_sources() for spec in rt.adapter(name).watches()}
    return len(wanted - stored)


# ── what runs ───────────────────────────────────────────────────────────────────────────────────────────


def look_at_worker(rt: Runtime) -> Iterator[Finding]:
    last, now = heartbeats.last_beat(WORKER), rt.now()
    if last is None:
        yield Finding("worker", "fail", "no worker has ever run on this database", _START)
    elif last > now + FRESH_SECONDS:
        text = f"the worker's last sign of life is {last - now:.0f} s in the future: a clock was changed"
        yield Finding(
            "clock", "fail", text, "set the clock by NTP: `timedatectl set-ntp true`; the worker mends its rows"
        )
    elif now - last > FRESH_SECONDS:
        yield Finding("worker", "fail", f"the worker gave its last sign of life {now - last:.0f} s ago", _START)
    else:
        yield Finding("worker", "ok", f"the worker lives; last sign {max(now - last, 0.0):.0f} s ago")


def look_at_sidecar(rt: Runtime, url: str) -> Iterator[Finding]:
    try:
        status = rt.net.get(f"{url}/healthz", limits=HttpLimits(total=3.0)).status
    except NetError as error:
        remedy = "start it: `csi run`, or the service csi-web; without it there are no health pages and metrics"
        yield Finding("sidecar", "warn", f"it does not answer: {error}", remedy)
        return
    if status == 200:
        yield Finding("sidecar", "ok", f"it answers at {url}")
    else:
        yield Finding("sidecar", "warn", f"{url} answers http {status}", "look whether something else has this port")


def look_at_backlog(rt: Runtime) -> Iterator[Finding]:
    letters, oldest = dead_letters.open_count(), events.oldest_pending()
    if letters:
        remedy = "`csi dlq list --group-by error`; when the cause is mended: `csi dlq replay --all`"
        yield Finding("letters", "warn", f"{letters:,} open dead letters", remedy)
    age = 0.0 if oldest is None else rt.now() - oldest
    if age > OLD_BACKLOG:
        yield Finding(
            "backlog", "warn", f"the oldest event waits for {age / 60:,.0f} minutes", "`csi status` says for what"
        )
    elif not letters:
        yield Finding("backlog", "ok", "nothing waits for long, and there are no dead letters")


def look_at_jobs(rt: Runtime) -> Iterator[Finding]:
    """The catalogue's: they hold up no event."""
    dead, since = jobs.dead_count(), jobs.waiting_since(rt.now())
    wait = 0.0 if since is None or not rt.settings.catalog.enabled else rt.now() - since
    if dead:
        remedy = "`csi jobs dead` says why; when that is mended, `csi jobs retry` each by its id"
        yield Finding("jobs", "warn", f"{dead:,} jobs of the catalogue were given up", remedy)
    if wait > OLD_JOBS:
        text = f"a job of the catalogue has been due for {wait / 3600:,.0f} hours"
        yield Finding("jobs", "warn", text, f"`csi jobs list --status pending`; the worker takes them: {_START}")
    elif not dead:
        yield Finding("jobs", "ok", "no job of the catalogue is dead or waits for long")
