"""Backfill: a channel's whole history, once, over every kind of interruption, within the day's units."""

import itertools
import json
from typing import Any

import pytest

from csi.catalog import channel_admin
from csi.catalog.catalog_jobs import HANDLERS
from csi.jobs import job_admin, run_job
from csi.jobs.run_job import run_next_job
from csi.net import HttpResponse
from csi.runtime import Runtime
from csi.store import api_units
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.db import fetch, run
from tests.rigs.in_process import DAY, HOUR, CatalogPipeline, catalog_pipeline


class Killed(BaseException):
    """The process is gone: nothing that would run after this line runs."""


class Fuse:
    """Ends the process at the nth of everything that is called through it."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def numbers() -> tuple[int, int, int]:
    return fetch("SELECT COUNT(*), COUNT(DISTINCT id), COUNT(last_refreshed_at) FROM videos")[0]


def test_adding_a_channel_fetches_its_whole_history_and_first_statistics(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=120)
        job = here.add(channel)
        here.run()
        assert here.job(job.id).status == "completed"
        assert numbers() == (120, 120, 120)
        assert fetch("SELECT COUNT(*) FROM video_stats WHERE captured_at = ?", clock()) == [(120,)]
        found = channels.find(channel.id)
        assert (found.title, found.video_count, found.uploads_playlist_id) == ("A channel", 120, "UU" + channel.id[2:])
        assert found.backfilled_at == clock()
        assert len(stats.trend(channel.id, 0)) == 1
        # One for the channel, three pages with their videos each. The look before it was booked, too, for nobody's job.
        assert here.job(job.id).units == 7
        assert here.booked == here.counted == 8


def run_until_killed(here: CatalogPipeline, rt: Runtime, nth: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A worker that ends at the nth call or commit of its life. False: it came to its end before."""
    fuse, get, checkpoint, complete = Fuse(nth), here.net.get, jobs.checkpoint, jobs.complete

    def getting(*args: Any, **kwargs: Any) -> HttpResponse:
        fuse()
        answer = get(*args, **kwargs)
        fuse()
        return answer

    def saving(*args: Any) -> bool:
        fuse()
        saved = checkpoint(*args)
        fuse()  # inside the transaction, with the checkpoint written: all of the step goes with it
        return saved

    def finishing(*args: Any) -> bool:
        fuse()
        done = complete(*args)
        fuse()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(here.net, "get", getting)
        patch.setattr(jobs, "checkpoint", saving)
        patch.setattr(jobs, "complete", finishing)
        try:
            run_next_job(rt, HANDLERS)
        except Killed:
            return True
    return False


def test_killed_at_every_step_of_a_thousand_videos_it_completes_with_each_video_once(tmp_path, clock, monkeypatch):
    """A step has six places to die: before and after each call, before and after its checkpoint. Four deaths in a row
    at one page, then one that comes a page further: five without progress would be a poisonous job."""
    with catalog_pipeline(tmp_path, clock) as here:
        job = here.add(here.channel(videos=1_000))
        deaths, places = 0, itertools.cycle((1, 2, 3, 4, 11, 12, 9, 10))
        while run_until_killed(here, here.rt, next(places), monkeypatch):
            deaths += 1
            clock.move(jobs.LEASE_SECONDS + 1)
            run_job.requeue_failed_and_stuck(here.rt)
            assert deaths < 1_000
        assert here.job(job.id).status == "completed"
        assert numbers() == (1_000, 1_000, 1_000)
        assert deaths >= 30
        assert here.counted <= here.booked
        assert fetch("SELECT COUNT(DISTINCT video_id) FROM video_stats") == [(1_000,)]


@pytest.mark.parametrize("nth", range(1, 15))
def test_one_death_costs_one_page_at_most(tmp_path, clock, monkeypatch, nth):
    with catalog_pipeline(tmp_path, clock) as here:
        here.add(here.channel(videos=60))
        assert run_until_killed(here, here.rt, nth, monkeypatch)
        clock.move(jobs.LEASE_SECONDS + 1)
        run_job.requeue_failed_and_stuck(here.rt)
        run_next_job(here.rt, HANDLERS)
        assert numbers() == (60, 60, 60)
        assert here.counted <= here.booked <= 6 + 2


def test_a_budget_that_ends_in_the_middle_waits_for_pacific_midnight_and_goes_on(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"units_per_day": 30}) as here:
        job = here.add(here.channel(videos=1_000))
        here.work()
        waiting = here.job(job.id)
        assert (waiting.status, waiting.attempts) == ("pending", 0)
        assert "midnight Pacific" in waiting.error_message or "reserved" in waiting.error_message
        midnight = api_units.day_ends(clock())
        assert midnight < waiting.scheduled_at < midnight + 601
        done = numbers()[0]
        assert 0 < done < 1_000
        for _ in range(5):
            clock.time = max(here.job(job.id).scheduled_at, clock())
            here.work()
            assert here.booked <= 30
        assert here.job(job.id).status == "completed"
        assert numbers() == (1_000, 1_000, 1_000)


def test_a_quota_that_the_api_ends_is_believed(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        job = here.add(here.channel(videos=1_000))
        here.site.quota.limit = 9
        here.work()
        assert here.job(job.id).status == "pending"
        assert here.booked == here.rt.api_limit()
        here.site.quota.limit = 10_000
        clock.time = here.job(job.id).scheduled_at
        here.work()
        assert numbers() == (1_000, 1_000, 1_000)


def test_polling_keeps_its_buffer(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, quota=60) as here:
        job = here.add(here.channel(videos=1_000))
        here.work()
        assert here.job(job.id).status == "pending"
        assert here.booked <= 30  # half of a limit that is smaller than the buffer


def test_a_channel_without_uploads_is_complete_with_none(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=0)
        job = here.add(channel)
        here.work()
        assert here.job(job.id).status == "completed"
        assert channels.find(channel.id).backfilled_at == clock()
        assert numbers()[0] == 0


def test_short_pages_are_not_the_last(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, site={"short_pages": True}) as here:
        here.add(here.channel(videos=130))
        here.work()
        assert numbers() == (130, 130, 130)


def test_hidden_counters_and_comments_off_are_null_and_never_zero(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=2)
        hidden, shown = (video.id for video in here.world.newest(channel.id))
        here.world.edit(hidden, at=clock(), hides_likes=True, comments_off=True)
        here.world.edit(shown, at=clock(), hides_likes=False, comments_off=False)
        here.add(channel)
        here.work()
        assert (videos.find(hidden).like_count, videos.find(hidden).comment_count) == (None, None)
        assert isinstance(videos.find(shown).like_count, int)
        assert stats.recent(hidden)[0].comment_count is None
        assert isinstance(videos.find(hidden).view_count, int)


def answering_less(here: CatalogPipeline, dropped: set[str]) -> None:
    """The API leaves these videos out of its answers."""
    get = here.net.get

    def getting(url: str, **kwargs: Any) -> HttpResponse:
        answer = get(url, **kwargs)
        if "/videos?" not in url:
            return answer
        body = json.loads(answer.body)
        body["items"] = [row for row in body["items"] if row["id"] not in dropped]
        return HttpResponse(answer.status, answer.headers, json.dumps(body).encode(), answer.url)

    here.net.get = getting  # type: ignore[method-assign]


def test_fifty_asked_and_seven_gone_are_marked_and_kept_and_come_back(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=50)
        here.add(channel)
        here.run()
        gone = [video.id for video in here.world.newest(channel.id)][:7]
        for name in gone:
            here.world.set_privacy(name, "private", at=clock())
        here.go(HOUR)
        assert videos.count_of(channel.id) == (50, 7)
        assert videos.find(gone[0]).missing_since == clock()
        assert videos.find(gone[0]).view_count is not None, "what was known stays"
        here.world.set_privacy(gone[0], "public", at=clock())
        here.go(HOUR)
        assert videos.find(gone[0]).missing_since is None
        assert videos.count_of(channel.id) == (50, 6)


def test_an_answer_with_less_than_was_asked_loses_no_video_of_a_backfill(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=20)
        unseen = {video.id for video in here.world.newest(channel.id)[:3]}
        answering_less(here, unseen)
        here.add(channel)
        here.work()
        assert videos.count_of(channel.id) == (20, 3)
        unseen.clear()
        here.go(2 * HOUR)
        assert videos.count_of(channel.id) == (20, 0)


def test_a_cap_takes_the_newest(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=200)
        here.add(channel, videos=60)
        here.work()
        newest = {video.id for video in here.world.newest(channel.id, 60)}
        assert videos.known([video.id for video in here.world.newest(channel.id)]) == newest


def refusing_tokens(here: CatalogPipeline, times: int) -> None:
    """The API takes no page token, so many times."""
    get, left = here.net.get, [times]

    def getting(url: str, **kwargs: Any) -> HttpResponse:
        bad = left[0] > 0 and "pageToken" in url
        left[0] -= bad
        return get(url.replace("pageToken=", "pageToken=x") if bad else url, **kwargs)

    here.net.get = getting  # type: ignore[method-assign]


def test_a_page_token_that_grew_old_begins_the_walk_anew(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        job = here.add(here.channel(videos=120))
        refusing_tokens(here, 1)
        here.work()
        assert here.job(job.id).status == "completed"
        assert numbers()[:2] == (120, 120)


def test_tokens_that_are_never_good_do_not_use_up_the_day(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        job = here.add(here.channel(videos=120))
        refusing_tokens(here, 1_000)
        here.work()
        assert here.job(job.id).status == "failed"
        assert here.booked < 20


def test_a_channel_that_does_not_exist_is_refused_in_one_sentence(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        with pytest.raises(channel_admin.CatalogRefused, match="YouTube has no channel UC"):
            channel_admin.register(here.rt, "UC" + "z" * 22)
        assert channels.dashboard("2026-02-22") == []
        assert jobs.page() == []


def test_a_channel_that_vanishes_is_deleted_after_two_days_and_comes_back(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=3)
        here.add(channel)
        here.run()
        here.world.delete_channel(channel.id)
        here.go(DAY)
        assert channels.find(channel.id).status == "active", "one answer proves nothing"
        here.go(DAY)
        assert channels.find(channel.id).status == "deleted"
        assert videos.count_of(channel.id) == (3, 3)
        here.world.add_channel("Back", at=clock(), channel_id=channel.id)
        here.go(DAY)
        assert channels.find(channel.id).status == "active"


def test_an_api_that_stays_away_kills_the_job_and_marks_the_channel_and_a_retry_goes_on(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"max_attempts": 3}) as here:
        channel = here.channel(videos=60)
        job = here.add(channel)
        here.site.set_faults("playlistItems:500")
        for _ in range(4):
            here.work()
            clock.time = max(here.job(job.id).scheduled_at, clock())
            jobs.release_failed(clock())
        assert (here.job(job.id).status, channels.find(channel.id).status) == ("dead", "error")
        here.site.set_faults("")
        assert jobs.retry_now(here.job(job.id), clock())
        here.work()
        assert (here.job(job.id).status, numbers()[0]) == ("completed", 60)


def test_a_job_that_is_cancelled_in_the_middle_stores_and_spends_nothing_more(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        job = here.add(here.channel(videos=1_000))
        get, pages = here.net.get, [0]

        def getting(url: str, **kwargs: Any) -> HttpResponse:
            pages[0] += "playlistItems" in url
            if pages[0] == 3 and "playlistItems" in url:
                jobs.cancel(here.job(job.id), clock())
            return get(url, **kwargs)

        here.net.get = getting  # type: ignore[method-assign]
        here.work()
        assert (here.job(job.id).status, numbers()[0], pages[0]) == ("dead", 100, 3)
        assert here.booked == here.counted == 1 + 1 + 2 * 2 + 1


def test_an_outage_that_outlasts_all_attempts_delays_the_history_and_does_not_end_it(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=30)
        job = here.add(channel)
        here.site.set_faults("playlistItems:500")
        here.go(HOUR, step=60)
        dead = here.job(job.id)
        assert (dead.status, dead.redrive_at - dead.completed_at >= HOUR) == ("dead", True)
        assert channels.find(channel.id).status == "error"
        here.site.set_faults("")
        here.go(2 * HOUR, step=60)
        assert here.job(job.id).status == "completed"
        assert numbers() == (30, 30, 30)
        assert channels.find(channel.id).status == "active"


def test_a_channel_in_error_stays_so_while_its_job_is_dead(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=3)
        job = here.add(channel)
        jobs.mark_dead(jobs.claim(clock()), "it can never work", clock())
        here.go(2 * DAY)  # refreshed twice
        assert (here.job(job.id).status, channels.find(channel.id).status) == ("dead", "error")
        job_admin.cancel(here.rt, here.job(job.id))
        here.run()
        assert here.job(job.id).error_message == "cancelled"
        assert channels.find(channel.id).status == "active"


def test_a_channel_whose_history_was_never_read_gets_a_backfill(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        here.add(here.channel(videos=3))
        run("DELETE FROM jobs")
        here.run()
        assert numbers() == (3, 3, 3)


def test_a_second_backfill_with_a_higher_priority_raises_the_first(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        channel = here.channel(videos=3)
        job = here.add(channel)
        again = channel_admin.backfill(here.rt, channels.find(channel.id), priority=9)
        assert (again.is_duplicate, here.job(job.id).priority) == (True, 9)


def test_an_archived_dead_job_is_begun_again_by_a_new_one(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        job = here.add(here.channel(videos=3))
        jobs.mark_dead(jobs.claim(clock()), "it can never work", clock())
        run("UPDATE jobs SET archived_at = ?, payload = NULL", clock())
        job_admin.retry(here.rt, here.job(job.id))
        here.work()
        assert numbers() == (3, 3, 3)
