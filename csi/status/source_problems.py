"""Problems of sources: what is not read, what is gone, empty, stale or quiet, and what the API refuses. Rules; pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby

from csi import clock
from csi.logs import redact
from csi.scheduling.watch_health import quiet_seconds, watch_name, without_address
from csi.status.facts import SourcePlan, SystemFacts
from csi.status.problems import Problem
from csi.status.watch_states import FAILURES, is_failing, last_poll_failed
from csi.store.watches import WatchTimes

ON_TIME_SECONDS = 120.0
"""The least time that a watch with a short interval gets to count as polled on time."""
NAMES = 5

FEEDS, REDDIT = "feed", "reddit_subreddit"
YOUTUBE = ("youtube_playlist", "youtube_channel_rss")
REDDIT_OAUTH = "reddit_oauth"
REPORTED = "the API reported its daily quota as used up"
HOUR, DAY = 3600.0, 86_400.0
LASTING = 6 * HOUR
"""A watch that fails alone for so long is reported: shorter faults pass."""


def problems(facts: SystemFacts) -> Iterator[Problem]:
    yield from _api_access(facts)
    yield from _api_units(facts)
    for name, why in facts.unusable_sources:
        yield Problem(
            "source_unusable",
            name,
            "degraded",
            f"the plugin of source {name} cannot be used",
            "this source is not polled; all others are",
            "see `csi adapters list`; repair or reinstall the package, then restart worker and sidecar",
            fails=("alert",),
            cause=why,
            is_proven=True,
        )
    if not facts.polling or facts.clock_hold is not None:
        return
    yield from _slowed(facts)
    stale = [one for plan in facts.sources for one in _not_read(plan, facts)]
    yield from stale
    for host in facts.outages:
        failing = [one for one in facts.watches if one.host == host.host and one.health == "outage"]
        first = [one.health_since for one in failing if one.health_since is not None]
        yield Problem(
            "host_outage",
            host.host,
            "degraded",
            f"upstream outage: {host.outage_watches:,} watches fail at {host.host}",
            "their new items are not seen; polling resumes when the host answers",
            "none, if the host has an outage; otherwise check network, DNS and proxy of this machine: `csi doctor`",
            min([*first, host.outage_since or facts.now]),
            fails=("alert",),
            cause=_common_error(failing),
        )
    yield from _denied(facts)
    yield from _gone(facts)
    yield from _failing(facts, {one.subject for one in stale})
    yield from _stale_feeds(facts)
    yield from _quiet(facts)


def _slowed(facts: SystemFacts) -> Iterator[Problem]:
    found = facts.pressure
    if not found.is_felt:
        return
    number = f"{found.waiting:,} items and events wait"
    if found.factor is None:
        what = f"nothing is read: {number}, which is the limit"
    else:
        what = f"sources are read {found.factor:.1f} times less often: {number}, of {found.limit:,} at most"
    yield Problem(
        "reading_slowed",
        "backlog",
        "degraded",
        what,
        "new items are seen later; what waits is kept and delivered",
        "see why the receivers take so little: `csi delivery status`; if the disk has room for more, raise "
        "`csi.max_backlog_events`",
        fails=("ready", "alert") if found.factor is None else ("alert",),
        is_proven=True,
    )


# ── a source, or its host ───────────────────────────────────────────────────────────────────────────────


def is_on_time(watch: WatchTimes, idle_interval: float, now: float) -> bool:
    """Polled with success within three intervals (two minutes at least), or as planned: at its idle interval, or at the
    one in force."""
    if watch.last_success_at is None:
        return False
    return abs(now - watch.last_success_at) <= _longest_wait(watch, idle_interval)


def _longest_wait(watch: WatchTimes, idle_interval: float) -> float:
    wait = max(3 * watch.interval, ON_TIME_SECONDS)
    planned = max(idle_interval, watch.planned_interval or 0.0)
    return max(wait, planned + 60.0) if watch.errors < FAILURES else wait


def _not_read(plan: SourcePlan, facts: SystemFacts) -> Iterator[Problem]:
    """More than half of a source is not read: late, or failing."""
    now, total = facts.now, facts.number_of_watches(plan.name)
    read = [one for one in facts.watches_of(plan.name) if not _is_empty_feed(one)]
    bad = [one for one in read if not is_on_time(one, plan.idle_interval, now) or is_failing(one, now)]
    if not (plan.watches or total) or (total and 2 * len(bad) <= total):
        return
    unexplained = [one for one in bad if not _is_reported(one, facts)]
    started_at = facts.worker.heartbeat.started_at if facts.worker.heartbeat else 0.0
    since = [
        one.health_since
        if is_failing(one, now) and one.health_since is not None
        else max(one.last_success_at or 0.0, started_at)
        for one in unexplained
    ]
    # A worker that has just started gets three intervals of each watch before operators are notified.
    lasting = [
        at
        for one, at in zip(unexplained, since, strict=True)
        if is_failing(one, now) or now - at > _longest_wait(one, plan.idle_interval)
    ]
    yield Problem(
        "source_stale",
        plan.name,
        "degraded",
        _not_read_text(plan, facts, bad),
        "new items of these watches are not seen",
        "`csi sources list` shows the error of each watch",
        min(lasting, default=None),
        fails=("ready", "alert") if lasting and 2 * len(lasting) > total else ("ready",),
        cause=_common_error(bad),
    )


def _is_reported(watch: WatchTimes, facts: SystemFacts) -> bool:
    """A problem of its own names the cause: the source is then not reported a second time."""
    match watch.error_kind:
        case "auth":
            return bool(facts.api_refusals)
        case "quota" | "budget":
            return facts.quota_left == 0
    return watch.error_kind == "denied" or watch.health == "outage"


def _not_read_text(plan: SourcePlan, facts: SystemFacts, bad: Sequence[WatchTimes]) -> str:
    watches, total = facts.watches_of(plan.name), facts.number_of_watches(plan.name)
    failed = sum(last_poll_failed(one) for one in watches)
    if len(bad) < total:
        return f"{plan.name}: {len(bad):,} of its {total:,} watches were not polled in time"
    if any(one.last_success_at is not None for one in watches):
        if total == 1:
            return f"{plan.name}: its watch was not polled in time"
        return f"{plan.name}: none of its {total:,} watches was polled in time"
    return f"{plan.name}: no watch could be polled, {failed:,} failed" if failed else f"{plan.name}: not polled yet"


# ── the API ─────────────────────────────────────────────────────────────────────────────────────────────


def _api_access(facts: SystemFacts) -> Iterator[Problem]:
    blocked = sum(one.error_kind == "auth" for one in facts.watches)
    effect = "gaps in feeds are not filled, and the catalogue is not refreshed"
    for one in facts.api_refusals:
        if one.name == REDDIT_OAUTH:
            yield Problem(
                "api_refused",
                one.name,
                "degraded",
                "Reddit refused the OAuth credentials of reddit_subreddit",
                "the feed is read instead: one request a minute, without score, flair, NSFW and stickied",
                "check the app at reddit.com/prefs/apps and the variables of `client_id_env` and `client_secret_env`, "
                "then restart the worker; CSI tries them again every hour",
                one.since,
                fails=("alert",),
                cause=one.error,
                is_proven=True,
            )
            continue
        yield Problem(
            "api_refused",
            one.name,
            "degraded",
            f"the YouTube Data API refused access with {one.name}",
            f"{_watches(blocked)} not read, {effect}" if blocked else effect,
            f"correct it: `{'YOUTUBE_OAUTH_REFRESH_TOKEN' if one.name == 'oauth' else one.name}`; then restart worker "
            "and sidecar; `csi doctor` tests the access",
            one.since,
            fails=("ready", "alert") if blocked else ("alert",),
            cause=one.error,
            is_proven=True,
        )


def _api_units(facts: SystemFacts) -> Iterator[Problem]:
    if facts.quota_left is None or (facts.quota_left and facts.quota_left >= facts.quota_buffer):
        return
    if facts.quota_left:
        what = f"{facts.quota_left:,} API units are left until midnight Pacific time"
        effect = "watches that cost units are polled less often"
        yield Problem("quota_low", "api", "degraded", what, effect, "see `csi quota`", fails=("alert",))
        return
    blocked = [one for one in facts.watches if one.error_kind in ("quota", "budget")]
    reported = any(one.error_kind == "quota" for one in blocked)
    resets = clock.iso(facts.quota_resets_at or facts.now)
    yield Problem(
        "quota_spent",
        "api",
        "degraded",
        "the API units of this day are used up",
        f"{_watches(len(blocked))} not read until {resets}, when YouTube's next day begins; feeds are still read",
        "none until then; `csi quota` shows what uses the units; raise `quota_limit` if Google granted more",
        min((one.health_since for one in blocked if one.health_since is not None), default=None),
        fails=("ready", "alert") if blocked else ("alert",),
        cause=REPORTED if reported else f"quota_limit is reached, or {REPORTED}",
        is_proven=True,
    )


# ── single watches ──────────────────────────────────────────────────────────────────────────────────────


def _denied(facts: SystemFacts) -> Iterator[Problem]:
    """Watches that may not be read; those of one source and day are one problem."""
    denied = [one for one in facts.watches if one.error_kind == "denied" and one.errors > 0 and one.gone_at is None]
    for source, day, found in _by_day((one.health_since or facts.now, one) for one in denied):
        with_credentials, remedy = "", "correct their credentials"
        if source in YOUTUBE:
            with_credentials = " with the configured credentials"
            remedy = "make them public or unlisted, set the owner's `YOUTUBE_OAUTH_REFRESH_TOKEN`"
        elif source == FEEDS:
            remedy = "set `authorization_env` for a private feed, "
            remedy += "`net.allowed_private_hosts` for a host of your own network"
        yield Problem(
            "watch_denied",
            f"{source} {day}",
            "degraded",
            f"{source}: {_watches(len(found))} not readable{with_credentials}: {_names(found)}",
            "their new items are not seen",
            f"{remedy}, or remove them: `csi sources list` shows the error of each",
            min(one.health_since or facts.now for one in found),
            fails=("alert",),
            cause=_common_error(found),
            is_proven=True,
            revision=int(max(one.health_since or 0.0 for one in found)),
        )


def _gone(facts: SystemFacts) -> Iterator[Problem]:
    """Watches that are suspect or dead; those of one source and day are one problem."""
    gone = [(one.gone_at, one) for one in facts.watches if one.gone_at is not None]
    for source, day, found in _by_day(gone):
        # Elsewhere a watch is dead because its source says so: a feed that answers 410.
        dead = sum(one.health == "dead" for one in found) if source in YOUTUBE else 0
        is_gone = all(one.error_kind == "gone" for one in found)
        often = "once a day" if is_gone else "every three hours" if source == REDDIT else "once an hour"
        yield Problem(
            "watch_gone",
            f"{source} {day}",
            "notice",
            f"{source}: {_watches(len(found))} gone since {day}: {_names(found)}",
            f"no new item of them is seen; each is still polled {often}",
            "open them in a browser; remove what no longer exists from the configuration, or `csi sources pause WATCH`",
            min(one.gone_at or facts.now for one in found),
            fails=("alert",),
            cause=f"the API confirms {dead:,} of {len(found):,}" if dead else _common_error(found),
            is_proven=True,
            revision=int(max(one.gone_at or 0.0 for one in found)),
        )


def _is_empty_feed(watch: WatchTimes) -> bool:
    """It answers, and lists nothing any more. The items of some feeds expire (incidents, job offers, events), so this
    is a notice; where several feeds of a host do so at once, `health` is `outage`."""
    return watch.source == FEEDS and watch.error_kind == "empty" and watch.health == "backing_off"


def _failing(facts: SystemFacts, stale: Collection[str]) -> Iterator[Problem]:
    """Watches that list nothing any more, and those that fail alone, and for long; where a whole source or host fails,
    that is the problem."""
    away = {host.host for host in facts.outages}
    alone = [one for one in facts.watches if one.host not in away]
    empty = [(one.health_since or facts.now, one) for one in alone if _is_empty_feed(one)]
    reported = ("denied", "auth", "quota", "budget")
    failing = [
        (one.health_since, one)
        for one in alone
        if one.health in ("backing_off", "throttled") and one.error_kind not in reported
        if one.health_since is not None and facts.now - one.health_since >= LASTING
        if one.source not in stale and not _is_empty_feed(one)
    ]
    empty_effect = "nothing new of them is seen; each is still polled at its interval"
    empty_remedy = "open them in a browser; nothing is wrong where their items expire; else"
    failing_effect = "no new item of them is seen; each is still tried, at least once an hour"
    failing_remedy = "`csi sources list` shows the error of each;"
    for word, state, timed, effect, remedy in (
        ("empty", "empty", empty, empty_effect, empty_remedy),
        ("failing", "not readable", failing, failing_effect, failing_remedy),
    ):
        for source, day, found in _by_day(timed):
            since = [one.health_since or facts.now for one in found]
            yield Problem(
                "watch_gone",
                f"{source} {word} {day}",
                "notice",
                f"{source}: {_watches(len(found))} {state} since {day}: {_names(found)}",
                effect,
                f"{remedy} correct the address in the configuration, or `csi sources pause WATCH`",
                min(since),
                fails=("alert",),
                cause=_common_error(found),
                revision=int(max(since)),
            )


def _stale_feeds(facts: SystemFacts) -> Iterator[Problem]:
    for source, found in _by_source(one for one in facts.watches if one.stale_since is not None):
        yield Problem(
            "feed_stale",
            source,
            "degraded",
            f"{source}: the feed of {_names(found)} does not list items that the API lists",
            "their new items are read through the API once an hour, while it has units to spare",
            "set `via: api` for these watches, until their feeds are right again",
            min(one.stale_since or facts.now for one in found),
            fails=("alert",),
        )


def _quiet(facts: SystemFacts) -> Iterator[Problem]:
    quiet = (one for one in facts.watches if one.health == "healthy" and quiet_seconds(one) is not None)
    for source, found in _by_source(quiet):
        yield Problem(
            "watch_quiet",
            source,
            "notice",
            f"{source}: {len(found):,} of {facts.number_of_watches(source):,} watches had no news for longer than "
            f"usual: {_names(found, rhythm=True)}",
            "the creators publish less, or these feeds are stale",
            "open them in a browser and compare"
            + ("; with `YOUTUBE_API_KEY` set, CSI compares them itself once a day" if source in YOUTUBE else ""),
            min((one.last_success_at or 0.0) - (quiet_seconds(one) or 0.0) for one in found),
        )


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────


def _common_error(watches: Iterable[WatchTimes]) -> str | None:
    """The error that most of these watches have, in our words."""
    errors = Counter(without_address(one.last_error) for one in watches if one.last_error and one.errors)
    return redact(errors.most_common(1)[0][0]) if errors else None


def _names(watches: Sequence[WatchTimes], *, rhythm: bool = False) -> str:
    shown = [watch_name(one.name, one.ref) for one in watches[:NAMES]]
    if rhythm:
        shown = [
            f"{name} (usually every {_span(one.usual_gap or 0.0)}, none for {_span(quiet_seconds(one) or 0.0)})"
            for name, one in zip(shown, watches, strict=False)
        ]
    more = f" and {len(watches) - NAMES:,} more" if len(watches) > NAMES else ""
    return ", ".join(shown) + more


def _span(seconds: float) -> str:
    if seconds >= 2 * DAY:
        return f"{seconds / DAY:.0f} days"
    return f"{seconds / HOUR:.0f} hours" if seconds >= 2 * HOUR else f"{seconds / 60:.0f} minutes"


def _watches(number: int) -> str:
    return "1 watch is" if number == 1 else f"{number:,} watches are"


def _by_source(watches: Iterable[WatchTimes]) -> list[tuple[str, list[WatchTimes]]]:
    ordered = sorted(watches, key=lambda one: one.source)
    return [(source, list(found)) for source, found in groupby(ordered, key=lambda one: one.source)]


def _by_day(timed: Iterable[tuple[float, WatchTimes]]) -> list[tuple[str, str, list[WatchTimes]]]:
    """By source and UTC day, so that operators are notified of them once a day and not one by one."""
    keyed = [(one.source, datetime.fromtimestamp(moment, UTC).date().isoformat(), one) for moment, one in timed]
    keyed.sort(key=lambda entry: entry[:2])
    return [(source, day, [one for *_, one in found]) for (source, day), found in groupby(keyed, lambda e: e[:2])]
