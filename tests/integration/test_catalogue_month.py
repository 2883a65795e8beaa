"""Statistics over simulated time: refreshed as promised, within the budget, and equal to the simulator's truth."""

import bisect
import itertools
import random
from typing import Any

import pytest

from csi.catalog.capture import DAILY
from csi.catalog.refresh_schedule import HOT_DAYS
from csi.simulator.youtube.data_api import three_digits
from csi.store import api_units
from csi.store.catalog import channels, stats, videos
from csi.store.db import fetch
from tests.rigs.in_process import DAY, HOUR, CatalogPipeline, catalog_pipeline

NO_OUTAGE = range(0)


def live(
    here: CatalogPipeline, *, refs: list[str], days: int, uploads_a_day: float, share: int, outage: range
) -> dict[str, Any]:
    """So many days, hour by hour: channels upload, the catalogue follows. In the hours of the outage the API fails."""
    rng, most_used, hours = random.Random(7), 0, 0
    for hour in range(days * 24):
        here.site.set_faults("api:500" if hour in outage else "")
        for ref in refs:
            if rng.random() < uploads_a_day / 24:
                here.world.upload(ref, "News", at=here.clock())
                arrive(here, ref)
        here.clock.time = (here.clock() // HOUR + 1) * HOUR + 30
        here.run()
        most_used, hours = max(most_used, here.booked), hours + 1
        assert here.counted <= here.booked
        assert here.booked <= share
        assert (
            here.site.own_quotas["batchGetStats"].used(here.clock()) <= api_units.used(here.clock(), "stats") <= 10_000
        )
    return {"hours": hours, "most_used": most_used}


def arrive(here: CatalogPipeline, ref: str) -> None:
    """What the ingester does when a feed shows a new upload; test_catalogue_refresh.py has it whole."""
    newest = here.world.newest(ref, 1)[0]
    facts = videos.VideoFacts(newest.id, ref, newest.title, None, newest.published_at)
    videos.add_unknown([(facts, videos.RefreshPlan("hot", here.clock()))], here.clock())


def check_hot_were_hourly(since: float, outage: range) -> int:
    """No hot video was left for longer than an hour and its turn, but in the outage and until the jobs that were given
    up in it were tried again."""
    low, high = since + outage.start * HOUR, since + (2 * outage.stop - outage.start + 2) * HOUR
    rows = fetch(
        "SELECT video_id, captured_at, published_at FROM video_stats s JOIN videos v ON v.id = s.video_id "
        "WHERE captured_at >= ? ORDER BY video_id, captured_at",
        since,
    )
    gaps = 0
    for (video, at, published), (other, later, _) in itertools.pairwise(rows):
        is_outage = bool(outage) and at < high and later > low
        if video == other and later - published <= HOT_DAYS * DAY and not is_outage:
            assert later - at <= HOUR + 60, (video, at, later)
            gaps += 1
    return gaps


def check_gains(here: CatalogPipeline) -> int:
    """Every gain is the difference of what the simulator says of the two moments, over the time between them."""
    checked = 0
    rows = fetch(
        "SELECT video_id, captured_at, view_count, hourly_views FROM video_stats ORDER BY video_id, captured_at"
    )
    for video, captures in itertools.groupby(rows, key=lambda row: row[0]):
        truth, found = here.world.video(video), list(captures)
        times = [at for _, at, _, _ in found]
        for _, at, views, hourly in found:
            assert views == truth.views_at(at)
            place = bisect.bisect_right(times, at - 0.9 * HOUR) - 1
            if at - truth.published_at > HOT_DAYS * DAY or place < 0 or times[place] < at - DAY:
                assert hourly is None
                continue
            gained = truth.views_at(at) - truth.views_at(times[place])
            assert hourly == round(gained * HOUR / (at - times[place]))
            checked += 1
    return checked


def check_channel_gains(here: CatalogPipeline, refs: list[str]) -> int:
    checked = 0
    for ref in refs:
        days = stats.trend(ref, 0)
        assert [day.captured_on for day in days] == sorted({day.captured_on for day in days})
        for day in days:
            low, high = DAILY.bounds(day.captured_at)
            before = [other for other in days if low <= other.captured_at <= high]
            if not before:
                assert day.daily_views is day.daily_subscribers is day.daily_videos is None
                continue
            truth = here.world.channel(ref)
            base, elapsed = before[-1], day.captured_at - before[-1].captured_at
            assert day.daily_views == round((day.view_count - base.view_count) * DAY / elapsed)
            if not truth.hides_subscribers:
                now, then = (three_digits(truth.subscribers_at(at)) for at in (day.captured_at, base.captured_at))
                assert day.daily_subscribers == round((now - then) * DAY / elapsed)
            checked += 1
    return checked


def simulate(
    here: CatalogPipeline, *, number: int, videos_each: int, days: int, share: int, outage: range = NO_OUTAGE
) -> dict[str, Any]:
    refs = []
    for place in range(number):
        growth = (place - number // 3) * 40
        made = here.channel(f"Channel {place}", videos_each, every=3 * DAY, subscribers_per_day=growth)
        refs.append(made.id)
        here.add(made, watch=False)
    here.run()
    begun = here.clock()
    found = live(here, refs=refs, days=days, uploads_a_day=0.8, share=share, outage=outage)
    found["hot_refreshes"] = check_hot_were_hourly(begun, outage)
    found["given_up"] = fetch("SELECT COUNT(*) FROM job_events WHERE event_type = 'dead_lettered'")[0][0]
    found["channel_days"] = check_channel_gains(here, refs)
    assert fetch("SELECT COUNT(*) FROM jobs WHERE status IN ('failed', 'dead')") == [(0,)]
    return found


def test_three_days_of_eight_channels(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"units_per_day": 600}) as here:
        found = simulate(here, number=8, videos_each=20, days=3, share=600)
        assert check_gains(here) > 1_000
        assert found["hot_refreshes"] > 1_000
        assert found["channel_days"] >= 8 * 2
        medium = fetch(
            "SELECT COUNT(*) FROM videos WHERE refresh_tier = 'medium' AND last_refreshed_at < ?", clock() - DAY - HOUR
        )
        assert medium == [(0,)]


def test_jobs_that_were_given_up_in_an_outage_are_done_in_the_end(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"units_per_day": 600}) as here:
        found = simulate(here, number=4, videos_each=10, days=4, share=600, outage=range(20, 32))
        assert check_gains(here) > 500
        assert found["given_up"] > 0


@pytest.mark.faults
def test_a_month_of_two_hundred_channels(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"units_per_day": 3_000}) as here:
        found = simulate(here, number=200, videos_each=100, days=30, share=3_000, outage=range(240, 252))
        print(found | {"gains": check_gains(here)})
        assert found["channel_days"] >= 200 * 27
        assert found["given_up"] > 0
        assert found["most_used"] <= 3_000


def test_gains_are_recomputed_when_a_day_is_captured_again(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=3)
        here.add(made)
        here.run()
        here.go(DAY)
        first = stats.trend(made.id, 0)[-1]
        clock.move(5 * HOUR)
        channels.resume(made.id, clock()) if channels.pause(made.id) else None
        here.run()
        again = stats.trend(made.id, 0)[-1]
        assert (again.id, again.captured_on, again.captured_at) == (first.id, first.captured_on, clock())
        assert again.view_count > first.view_count
        base = stats.trend(made.id, 0)[0]
        assert again.daily_views == round((again.view_count - base.view_count) * DAY / (clock() - base.captured_at))


def test_views_that_youtube_takes_back_are_a_negative_gain(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=1)
        here.add(made)
        here.run()
        here.go(HOUR)
        video = here.world.newest(made.id)[0]
        grown = video.views_at(clock()) - video.views
        here.world.edit(video.id, at=clock(), views=5 - grown)
        here.go(HOUR)
        assert stats.recent(video.id)[0].hourly_views < 0
