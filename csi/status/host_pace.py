"""How often hosts may be asked, and what that means for the watches that are read from them."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from csi.adapters import reddit_subreddit
from csi.adapters.base import Member
from csi.adapters.reddit_subreddit import RedditAdapter
from csi.runtime import Runtime
from csi.store import host_pacing, watches

REDDIT = reddit_subreddit.SOURCE


@dataclass(frozen=True)
class HostPace:
    """The pace of one host that is spaced. `plan`: what follows for its watches, as a sentence."""

    host: str
    spacing_seconds: float
    is_learned: bool
    """The host refused requests: the spacing is wider than the configured one."""
    next_at: float | None
    """The next slot that is free. None: no request was spaced yet."""
    plan: str | None = None

    @property
    def sentence(self) -> str:
        wider = ", wider than configured: it refused requests" if self.is_learned else ""
        plan = f"; {self.plan}" if self.plan else ""
        return f"one request every {self.spacing_seconds:.0f} s{wider}{plan}"


def host_paces(rt: Runtime) -> list[HostPace]:
    """Every host whose requests are spaced now. Reddit also before its first request."""
    next_at: dict[str, float | None] = {row.name: row.next_at for row in host_pacing.every()}
    reddit, plan = rt.adapter(REDDIT).paced_as("") if REDDIT in rt.enabled_sources() else None, reddit_sentence(rt)
    if reddit is not None and plan is not None:
        next_at.setdefault(reddit, None)
    spaced = {host: spacing for host in sorted(next_at) if (spacing := rt.pacer.spacing(host)) > 0}
    plans = _plans(rt, {host: spacing for host, spacing in spaced.items() if host != reddit})
    plans |= {reddit: plan} if reddit is not None else {}
    return [
        HostPace(host, spacing, spacing > rt.pacer.pace(host).spacing, next_at[host], plans.get(host))
        for host, spacing in spaced.items()
    ]


def _plans(rt: Runtime, spaced: Mapping[str, float]) -> dict[str, str | None]:
    """What the spacing of each of these hosts means for its watches. Its registrable domain may have several names."""
    counts, rates = Counter[str](), defaultdict[str, float](float)
    for host, count, rate in watches.reads_of_hosts() if spaced else ():
        name = rt.pacer.pace(host).name
        counts[name] += count
        rates[name] += rate
    return {host: _turns(counts[host], rates[host], spacing) for host, spacing in spaced.items() if counts[host]}


def _turns(count: int, rate: float, spacing: float) -> str:
    named = "1 watch" if count == 1 else f"{count} watches"
    if rate * spacing <= 1.0:
        return f"{named}, read at {'its interval' if count == 1 else 'their intervals'}"
    return f"{named} in turn, each about every {reddit_subreddit.span(count * spacing)}: later than configured"


def reddit_sentence(rt: Runtime, extra: int = 0) -> str | None:
    """The plan of the watched subreddits and `extra` more: "50 subreddits in 3 groups, each every 3 min …"."""
    if REDDIT not in rt.enabled_sources():
        return None
    adapter = rt.adapter(REDDIT)
    assert isinstance(adapter, RedditAdapter)
    members = [
        Member(
            row.ref, row.interval_seconds, json.loads(row.adapter_state or "{}"), row.error_kind if row.errors else None
        )
        for row in watches.of_source(REDDIT)
    ]
    members += [Member(f"+{number}", adapter.settings.poll_interval_seconds) for number in range(extra)]
    if not members:
        return None
    return reddit_subreddit.sentence(adapter.plan(members), rt.pacer.spacing(adapter.paced_as("")))
