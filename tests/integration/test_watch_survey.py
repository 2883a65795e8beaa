"""Health checks read a row only of watches that a rule may find something at: the answer is that of looking at each."""

import random
from collections import Counter

import pytest

from csi.scheduling.watch_health import QUIET_GAPS, shown_state
from csi.status.facts import SourcePlan, SystemFacts
from csi.status.verdict import judge
from csi.status.worker import WorkerStatus
from csi.store import watches
from csi.store.heartbeats import LastHeartbeat
from csi.store.models import Watch
from csi.store.queries.watch_survey import survey
from csi.web.health import liveness, readiness

NOW = 1_771_761_600.0
DAY = 86_400.0
PLANS = (SourcePlan("feed", 0, 0.0), SourcePlan("youtube_playlist", 0, 7200.0), SourcePlan("reddit_subreddit", 0, 0.0))


def usual(rng, number):
    """A watch as nearly all are: read lately, no error, with news at its rhythm."""
    interval = rng.choice((30.0, 300.0, 21_600.0))
    return {
        "source": rng.choice(PLANS).name,
        "ref": f"ref{number}",
        "name": f"Watch {number}",
        "state": "active",
        "tier": "standard",
        "interval_seconds": interval,
        "next_poll_at": NOW + rng.uniform(0, interval),
        "last_poll_at": NOW - rng.uniform(0, interval),
        "last_success_at": NOW - rng.uniform(0, interval),
        "first_read_at": NOW - 90 * DAY,
        "usual_gap": rng.choice((None, 3600.0, 7 * DAY)),
        "last_new_at": NOW - rng.uniform(0, DAY / 2),
        "last_video_published_at": rng.choice((None, NOW - 2 * DAY)),
        "health": "healthy",
    }


def oddity(rng):
    """One thing that a rule may look at."""
    return rng.choice(
        (
            {"last_success_at": None, "first_read_at": None},
            {"last_success_at": NOW - rng.choice((119, 121, 899, 901, 7100, 7300, 70_000))},
            {"last_success_at": NOW + 100_000},
            {"planned_interval": 6 * 3600.0, "last_success_at": NOW - 5 * 3600},
            {"next_poll_at": NOW - rng.choice((100, 179, 181, 899, 901, 70_000))},
            {"errors": 1, "last_error": "the feed answered 500", "error_kind": "http"},
            {"errors": 5, "last_error": "the feed answered 500", "health": "backing_off", "health_since": NOW - 900},
            {"errors": 2, "error_kind": "denied", "health": "backing_off", "health_since": NOW - 900},
            {"errors": 3, "error_kind": "empty", "health": "backing_off", "health_since": NOW - 900},
            {"health": "dead", "gone_at": NOW - DAY, "errors": 9},
            {"stale_since": NOW - DAY},
            {"last_new_at": NOW - 40 * DAY, "last_video_published_at": None},
            {"last_new_at": None, "last_video_published_at": NOW - rng.choice((0.9, 1.1, 41, 43)) * DAY},
            {"state": "paused"},
            {"state": "removed"},
        )
    )


@pytest.mark.parametrize("odd_share", [0.0, 0.2, 0.7])
def test_rules_find_the_same_as_by_looking_at_each_watch(store, odd_share):
    rng = random.Random(7)
    rows = [usual(rng, number) | (oddity(rng) if rng.random() < odd_share else {}) for number in range(300)]
    for row in rows:
        Watch.create(**row, wake_at=row["next_poll_at"], created_at="2026-02-22T12:00:00Z", first_poll='"none"')
    found = survey(NOW, QUIET_GAPS, paused=True)
    common = {
        "now": NOW,
        "worker": WorkerStatus(NOW, LastHeartbeat(NOW - 5, NOW - 10 * DAY)),
        "sources": PLANS,
    }
    each = SystemFacts(**common, watches=tuple(watches.schedule()))
    active = tuple(one for one in found.others if one.state == "active")
    surveyed = SystemFacts(**common, watches=active, ordinary=found.ordinary)

    assert judge(surveyed) == judge(each)
    assert readiness(surveyed).body == readiness(each).body
    assert liveness(surveyed).body == liveness(each).body
    assert surveyed.number_of_watches() == each.number_of_watches() == sum(row["state"] == "active" for row in rows)
    for plan in PLANS:
        assert surveyed.success_age(plan.name) == each.success_age(plan.name)
    counted = Counter(shown_state(one, worker_is_alive=True) for one in active)
    counted["healthy"] += sum(one.number for one in found.ordinary)
    assert counted == Counter(shown_state(one, worker_is_alive=True) for one in each.watches)
    assert odd_share or not active, "ordinary watches cost no row each"
