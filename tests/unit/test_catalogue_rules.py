"""The catalogue's rules: gains over elapsed time, how often something is looked at, what a failure means for a job."""

import random

import pytest

from csi.catalog.api_response_fields import channel_facts, count, video_facts
from csi.catalog.capture import DAILY, HOURLY, gain
from csi.catalog.refresh_schedule import DAY, HOUR, next_channel_refresh, plan_missing, plan_video, tier_of
from csi.errors import SourceError
from csi.jobs.job_kinds import KINDS, JobRefused, new_job
from csi.jobs.run_job import GiveUpJob, PostponeJob, RetryWithBackoff, judge
from csi.store.catalog.stats import CountSample
from csi.store.catalog.videos import DueVideo
from csi.store.uuid7 import new_id

NOW = 1_771_761_600.0


@pytest.mark.parametrize(
    ("value", "before", "window", "expected"),
    [
        pytest.param(1_100, CountSample(NOW - HOUR, 1_000), HOURLY, 100, id="an-hour"),
        pytest.param(1_100, CountSample(NOW - 2 * HOUR, 1_000), HOURLY, 50, id="two-hours"),
        pytest.param(1_700, CountSample(NOW - 7 * DAY, 1_000), DAILY, 100, id="a-week"),
        pytest.param(900, CountSample(NOW - HOUR, 1_000), HOURLY, -100, id="views-taken-back"),
        pytest.param(1_000, None, HOURLY, None, id="no-baseline"),
        pytest.param(1_000, CountSample(NOW - HOUR, None), HOURLY, None, id="hidden-before"),
        pytest.param(None, CountSample(NOW - HOUR, 1_000), HOURLY, None, id="hidden-now"),
        pytest.param(1_000, CountSample(NOW, 900), HOURLY, None, id="no-time-passed"),
        pytest.param(0, CountSample(NOW - HOUR, 0), HOURLY, 0, id="nothing-gained-is-zero"),
    ],
)
def test_a_gain_is_what_came_over_the_time_that_passed(value, before, window, expected):
    assert gain(value, NOW, before, window) == expected


def test_minutes_are_never_blown_up_to_a_day_and_old_counts_say_nothing_of_an_hour():
    assert DAILY.bounds(NOW) == (NOW - 8 * DAY, NOW - 0.9 * DAY)
    assert HOURLY.bounds(NOW) == (NOW - DAY, NOW - 0.9 * HOUR)


@pytest.mark.parametrize(
    ("days", "tier"), [(0, "hot"), (7, "hot"), (7.01, "medium"), (30, "medium"), (30.01, "tail"), (-1, "hot")]
)
def test_a_tier_follows_from_age(days, tier):
    assert tier_of(NOW - days * DAY, NOW) == tier


def test_hot_videos_come_every_hour_others_at_an_hour_of_their_own():
    assert plan_video("v", NOW - DAY, NOW + 5).at == NOW + HOUR
    for days, hours in ((10, 24), (100, 168)):
        first = plan_video("v", NOW - days * DAY, NOW + 5).at
        assert NOW < first <= NOW + hours * HOUR
        assert first % HOUR == 0
        assert plan_video("v", NOW - days * DAY, first + 5).at == first + hours * HOUR
    hours_used = {plan_video(f"v{n}", NOW - 100 * DAY, NOW).at for n in range(2_000)}
    assert len(hours_used) == 168


def missing(days: float, since: float | None, now: float = NOW) -> float | None:
    return plan_missing(DueVideo("v", NOW - days * DAY, since), now).at


def test_a_video_that_is_newly_missing_is_looked_for_within_the_hour_however_old_it_is():
    assert [missing(days, None) for days in (1, 20, 900)] == [NOW + HOUR] * 3


def test_a_video_that_is_missing_for_a_day_is_looked_for_once_a_week():
    assert missing(1, NOW - HOUR) == NOW + HOUR
    again = missing(3, NOW - DAY)
    assert missing(3, NOW - DAY, again) == again + 168 * HOUR


def test_channels_are_refreshed_once_a_day():
    assert next_channel_refresh(NOW + 5) == (NOW // DAY + 1) * DAY


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("7190986011", 7_190_986_011),
        (12, 12),
        ("0", 0),
        ("", None),
        (None, None),
        ("-1", None),
        (-1, None),
        (True, None),
        ("1e3", None),
        ("9" * 30, None),
        (1.5, None),
        ("١٢", None),
    ],
)
def test_counters_are_whole_numbers_or_nothing(given, expected):
    assert count(given) == expected


@pytest.mark.parametrize("row", [{}, {"id": "v"}, {"id": "../x", "snippet": {}}, {"id": 5}, {"id": "v", "snippet": []}])
def test_a_row_that_names_no_video_is_none(row):
    assert video_facts(row) is None


def test_a_hidden_subscriber_count_is_none_whatever_stands_beside_it():
    row = {"id": "UCx", "statistics": {"hiddenSubscriberCount": True, "subscriberCount": "0", "viewCount": "5"}}
    facts = channel_facts(row)
    assert (facts.subscriber_count, facts.view_count, facts.video_count) == (None, 5, None)


def verdict(kind: str, attempts: int = 1, retry_after: float | None = None):
    error = SourceError("why", kind=kind, retry_after=retry_after)
    return judge(error, attempts=attempts, max_attempts=5, now=NOW, midnight=NOW + 100, rng=random.Random(1))


@pytest.mark.parametrize("kind", ["budget", "quota"])
def test_a_spent_budget_waits_for_midnight(kind):
    found = verdict(kind, attempts=5)
    assert isinstance(found, PostponeJob)
    assert NOW + 100 < found.until < NOW + 702


def test_waits_grow_and_end():
    waits = [verdict("transient", attempts).until - NOW for attempts in range(1, 5)]
    assert all(low * 0.8 <= wait <= low * 1.2 for low, wait in zip((60, 120, 240, 480), waits, strict=True))
    assert isinstance(verdict("transient", 5), GiveUpJob)
    assert verdict("transient", 1, retry_after=900) == RetryWithBackoff(NOW + 900)


@pytest.mark.parametrize("kind", ["throttled", "paused", "auth"])
def test_what_is_not_the_jobs_fault_is_no_attempt(kind):
    assert isinstance(verdict(kind, attempts=5), PostponeJob)


def test_what_can_never_work_is_dead_at_once():
    assert isinstance(verdict("denied"), GiveUpJob)


@pytest.mark.parametrize(
    ("type", "wishes", "said"),
    [
        ("NO_SUCH", {}, "there is no job type 'NO_SUCH'; there are BACKFILL_CHANNEL"),
        ("BACKFILL_CHANNEL", {}, "BACKFILL_CHANNEL needs a channel"),
        ("REFRESH_HOT_VIDEOS", {"channel_id": "UCx"}, "is for all channels"),
        ("REQUEUE_STUCK", {"video_ids": ("v",)}, "takes no videos"),
        ("REQUEUE_STUCK", {"priority": 11}, "from 1 to 10"),
        ("REFRESH_HOT_VIDEOS", {"video_ids": ("a b",)}, "not an id"),
        ("REFRESH_HOT_VIDEOS", {"video_ids": ("v\0",)}, "not an id"),
        ("REFRESH_HOT_VIDEOS", {"video_ids": ("\ud800",)}, "not an id"),
        ("REFRESH_HOT_VIDEOS", {"video_ids": tuple(f"v{n}" for n in range(1_001))}, "at most 1,000 videos"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_in_words(type, wishes, said):
    with pytest.raises(JobRefused, match=said):
        new_job(type, **wishes)


def test_jobs_for_different_videos_never_share_a_key_however_many_they_name():
    many = tuple(f"video-{number:04d}" for number in range(999))
    one, other = (new_job("REFRESH_VIDEO_STATS", video_ids=(*many, last)) for last in ("zzz1", "zzz2"))
    again = new_job("REFRESH_VIDEO_STATS", video_ids=("zzz1", *reversed(many)))
    assert one.dedup_key != other.dedup_key
    assert one.dedup_key == again.dedup_key


def test_the_priorities_are_those_that_were_decided():
    assert {name: kind.priority for name, kind in KINDS.items()} == {
        "BACKFILL_CHANNEL": 5,
        "REFRESH_CHANNEL_STATS": 8,
        "REFRESH_HOT_VIDEOS": 10,
        "REFRESH_MEDIUM_VIDEOS": 9,
        "REFRESH_VIDEO_STATS": 6,
        "RSS_POLL_CHANNEL": 5,
        "REQUEUE_STUCK": 7,
    }


def test_ids_grow_with_time_and_within_a_moment():
    made = [new_id(NOW) for _ in range(20_000)] + [new_id(NOW + 0.001)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {name[14] for name in made} == {"7"}
