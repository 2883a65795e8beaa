"""How often hosts may be asked, and what that means for the watches that are read from them."""

import json
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
    plan: str | None = None


def host_paces(rt: Runtime) -> list[HostPace]:
    """Every host whose requests are spaced now."""
    found = []
    for row in host_pacing.every():
        spacing = rt.pacer.spacing(row.name)
        if spacing <= 0:
            continue
        is_learned = spacing > rt.pacer.pace(row.name).spacing
        found.append(HostPace(row.name, spacing, is_learned, row.next_at, _plan(rt, row.name)))
    return found


def reddit_sentence(rt: Runtime, extra: int = 0) -> str | None:
    """The plan of the watched subreddits and `extra` more: "50 subreddits in 3 groups, each every 3 min …"."""
    if REDDIT not in rt.settings.sources:
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


def _plan(rt: Runtime, host: str) -> str | None:
    if REDDIT not in rt.settings.sources or rt.adapter(REDDIT).paced_as("") != host:
        return None
    return reddit_sentence(rt)
