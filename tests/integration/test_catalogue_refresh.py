"""What keeps the catalogue fresh, and how it hangs together with the ingester."""

from dataclasses import replace
from typing import Any

import pytest

from csi.admin.watches import WatchTarget
from csi.catalog import capture, channel_admin, data_api
from csi.jobs import job_admin
from csi.jobs.job_kinds import new_job
from csi.runtime import Runtime
from csi.store import api_refusals, api_units, watches
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.db import fetch
from csi.store.models import Watch
from tests.rigs.in_process import DAY, HOUR, CatalogPipeline, catalog_pipeline


def read_feeds(here: CatalogPipeline) -> None:
    """What the ingester does with everything that is due."""
    here.pipeline.run_without_delivery()


def test_a_new_upload_that_the_ingester_saw_is_in_the_catalogue_at_once_and_hot(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=3)
        here.add(made)
        here.run()
        read_feeds(here)
        clock.move(400)
        video = here.world.upload(made.id, "Brand new", at=clock()).id
        read_feeds(here)
        assert (videos.find(video).refresh_tier, videos.find(video).next_refresh_at) == ("hot", clock())
        assert videos.find(video).view_count is None
        here.run()
        assert videos.find(video).view_count is not None
        assert stats.recent(video)[0].hourly_views is None, "nothing was counted before"


def test_uploads_of_channels_that_are_not_tracked_stay_out(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=1)
        channel_admin.watches.add(here.rt, made.id, channel_admin.WatchOptions({}))
        read_feeds(here)
        clock.move(400)
        here.world.upload(made.id, "Not ours", at=clock())
        read_feeds(here)
        assert fetch("SELECT COUNT(*) FROM videos") == [(0,)]


def test_the_feed_and_the_watch_are_one_row(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=3)
        here.add(made)
        read_feeds(here)
        feed, watch = channels.feed_of(made.id), Watch.get()
        assert (feed.watch_id, feed.last_polled_at, feed.poll_interval_minutes) == (watch.id, clock(), 5.0)
        assert feed.feed_url == f"https://www.youtube.com/feeds/videos.xml?channel_id={made.id}"
        assert feed.last_video_published_at == here.world.newest(made.id, 1)[0].published_at
        assert feed.status == "active"
        Watch.update(state="paused").execute()
        assert channels.feed_of(made.id).status == "paused"
        Watch.update(state="active", health="dead", errors=4).execute()
        assert (channels.feed_of(made.id).status, channels.feed_of(made.id).consecutive_errors) == ("error", 4)


def test_a_watch_of_the_configuration_is_the_feed_of_a_channel_that_is_added_later(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=1)
        watches.sync(
            [watches.WantedWatch("youtube_channel_rss", made.id, None, None, (), "standard", 300, "all")], clock()
        )
        assert channel_admin.register(here.rt, made.id).watch == "known"
        assert len(fetch("SELECT 1 FROM watches")) == 1
        assert channels.feed_of(made.id).watch_id == Watch.get().id


def test_pause_lets_jobs_in_flight_finish_and_resume_catches_up(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=3)
        here.add(made)
        here.run()
        assert channel_admin.pause(here.rt, channels.find(made.id))
        assert not channel_admin.pause(here.rt, channels.find(made.id))
        counted = here.counted
        late = here.world.upload(made.id, "While paused", at=clock()).id
        here.go(2 * DAY)
        read_feeds(here)
        assert here.counted == counted or here.counted == 0, "nothing is asked for a paused channel"
        assert videos.find(late) is None
        job = channel_admin.resume(here.rt, channels.find(made.id))
        here.run()
        assert here.job(job.id).status == "completed"
        assert videos.find(late) is not None
        assert channels.find(made.id).status == "active"
        assert Watch.get().state == "active"
        assert videos.find(here.world.newest(made.id)[1].id).last_refreshed_at == clock()


def test_a_backfill_that_runs_while_its_channel_is_paused_ends_and_leaves_nothing_due(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=60)
        job = here.add(made)
        get = here.net.get

        def getting(url, **kwargs):
            if "playlistItems" in url and channels.find(made.id).status == "active":
                channel_admin.pause(here.rt, channels.find(made.id))
            return get(url, **kwargs)

        here.net.get = getting
        here.work()
        assert here.job(job.id).status == "completed"
        assert channels.find(made.id).status == "paused"
        assert fetch("SELECT COUNT(*), COUNT(next_refresh_at) FROM videos") == [(60, 0)]


def test_uploads_that_no_feed_told_of_are_found_by_the_daily_count(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=60)
        here.add(made, watch=False)
        here.run()
        missed = here.world.upload(made.id, "Nobody saw", at=clock() + 10).id
        here.go(DAY + HOUR)
        assert videos.find(missed) is not None
        assert len(jobs.page(type="BACKFILL_CHANNEL")) == 2
        here.go(2 * DAY)
        assert len(jobs.page(type="BACKFILL_CHANNEL")) == 2, "and not again"


def test_watched_channels_are_tracked_where_the_configuration_says_so(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"track_watched": True}) as here:
        made = here.channel(videos=4)
        channel_admin.watches.add(here.rt, made.id, channel_admin.WatchOptions({}))
        here.run()
        assert videos.count_of(made.id) == (4, 0)
        assert channels.find(made.id).title == "A channel"


def test_a_catalogue_that_is_switched_off_enqueues_nothing(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"enabled": False}) as here:
        assert here.run() == 0
        assert jobs.page() == []


def test_without_a_key_a_channel_is_refused_and_waiting_jobs_wait(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        job = here.add(here.channel(videos=3))
        here.rt.settings.secrets.named.clear()
        here.rt.adapters.clear()
        here.work()
        assert (here.job(job.id).status, here.job(job.id).attempts) == ("pending", 0)
        assert "YOUTUBE_API_KEY" in here.job(job.id).error_message


def test_a_feed_is_read_now_by_its_job(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=2)
        here.add(made)
        here.work()
        job = jobs.enqueue(new_job("RSS_POLL_CHANNEL", channel_id=made.id), clock()).job
        here.work()
        assert here.job(job.id).status == "completed"
        assert channels.feed_of(made.id).last_polled_at == clock()


def test_named_videos_are_refreshed_whether_they_are_due_or_not(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=120)
        here.add(made)
        here.run()
        ids = tuple(video.id for video in here.world.newest(made.id))[:70]
        clock.move(60)
        job = jobs.enqueue(new_job("REFRESH_VIDEO_STATS", video_ids=ids), clock()).job
        here.work()
        assert here.job(job.id).units == 2
        assert fetch("SELECT COUNT(*) FROM videos WHERE last_refreshed_at = ?", clock()) == [(70,)]


def test_a_video_that_went_to_a_stranger_is_missing_and_does_not_use_up_the_day(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"stats_units_per_day": 0}) as here:
        made, stranger = here.channel(videos=3), here.channel("Stranger")
        here.add(made)
        here.run()
        gone = here.world.newest(made.id)[0]
        here.world._videos[gone.id] = replace(here.world.video(gone.id), channel_id=stranger.id)
        before = here.booked
        here.go(HOUR)
        assert here.booked - before == 1
        assert videos.find(gone.id).missing_since == clock()
        assert videos.find(gone.id).channel_id == made.id


def test_what_vanishes_while_its_channel_is_being_paused_is_not_looked_for(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=2)
        here.add(made)
        here.run()
        clock.move(2 * DAY)
        wanted = videos.due("hot", clock())
        channel_admin.pause(here.rt, channels.find(made.id))
        capture.record_missing(wanted, clock())
        channels.note_missing(made.id, clock() - DAY, clock() + DAY, clock())
        assert [row.next_refresh_at for row in videos.of_channel(made.id)] == [None, None]
        assert channels.find(made.id).next_refresh_at is None


def test_an_answer_with_less_than_was_asked_is_asked_again_within_the_hour(tmp_path, clock, monkeypatch):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=5, every=100 * DAY)
        here.add(made)
        here.run()
        with monkeypatch.context() as patch:
            patch.setattr(data_api, "read_videos", lambda api, ids: {})
            patch.setattr(data_api, "read_counts", lambda rt, job, ids: {})
            here.go(8 * DAY)
        assert videos.count_of(made.id) == (5, 5)
        here.go(8 * DAY)
        assert videos.count_of(made.id) == (5, 0)
        clock.time = videos.of_channel(made.id)[4].next_refresh_at + 1
        with monkeypatch.context() as patch:
            patch.setattr(data_api, "read_videos", lambda api, ids: {})
            patch.setattr(data_api, "read_counts", lambda rt, job, ids: {})
            here.run()
        assert videos.of_channel(made.id)[4].missing_since == clock()
        here.go(HOUR)
        assert videos.of_channel(made.id)[4].missing_since is None


def test_two_who_add_a_channel_at_once_add_it_once(tmp_path, clock, monkeypatch):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=2)
        look = channel_admin._look_up

        def looking(rt: Runtime, target: WatchTarget) -> Any:
            channels.add(target.ref, "by somebody else", 5, clock())
            return look(rt, target)

        monkeypatch.setattr(channel_admin, "_look_up", looking)
        assert channel_admin.register(here.rt, made.id).result == "known"
        assert jobs.page() == []


def test_a_refresh_that_somebody_put_off_does_not_keep_hot_videos_waiting(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=1)
        here.add(made)
        here.run()
        job_admin.enqueue(here.rt, "REFRESH_HOT_VIDEOS", delay=20 * DAY)
        here.go(HOUR)
        assert videos.of_channel(made.id)[0].last_refreshed_at == clock()


def test_a_job_that_waits_for_midnight_goes_on_by_command_when_there_is_more(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, catalog={"units_per_day": 4}) as here:
        job = here.add(here.channel(videos=150))
        here.run()
        assert here.job(job.id).scheduled_at > clock()
        here.rt.settings = here.rt.settings.model_copy(
            update={"catalog": here.rt.settings.catalog.model_copy(update={"units_per_day": 3_000})}
        )
        job_admin.retry(here.rt, here.job(job.id))
        here.work()
        assert here.job(job.id).status == "completed"


def test_stuck_jobs_are_looked_for_once_an_hour_by_a_job_of_their_own(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        here.run()
        here.go(3 * HOUR + 60)
        assert [job.status for job in jobs.page(type="REQUEUE_STUCK")] == ["completed"] * 4


# --- statistics out of their own bucket


def units(here: CatalogPipeline) -> tuple[int, int]:
    """Units that were booked today: main, and of the bucket of statistics."""
    return api_units.used(here.clock()), api_units.used(here.clock(), "stats")


def test_hourly_statistics_cost_no_unit_of_the_main_bucket(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=3)
        here.add(made)
        here.run()
        main, _ = units(here)
        video, before = here.world.newest(made.id)[0], videos.of_channel(made.id)[0]
        here.world._videos[video.id] = replace(here.world.video(video.id), title="Another title", views=video.views + 9)
        here.go(3 * HOUR)
        assert units(here) == (main, 3)
        assert here.site.own_quotas["batchGetStats"].used(clock()) == 3
        after = videos.of_channel(made.id)[0]
        assert (after.title, after.duration) == (before.title, before.duration)
        assert after.view_count == here.world.video(video.id).views_at(clock())
        assert stats.recent(video.id)[0].hourly_views is not None
        here.go(DAY)
        assert videos.of_channel(made.id)[0].title == "Another title", "details are read once a day"


@pytest.mark.parametrize("fault", ["batchGetStats:404", "batchGetStats:forbidden", "batchGetStats:html"])
def test_where_the_method_is_refused_videos_list_serves_the_statistics(tmp_path, clock, fault):
    with catalog_pipeline(tmp_path, clock, site={"faults": fault}) as here:
        made = here.channel(videos=3)
        here.add(made)
        here.run()
        main, _ = units(here)
        here.go(3 * HOUR)
        assert [row.last_refreshed_at for row in videos.of_channel(made.id)] == [clock()] * 3
        assert units(here)[0] == main + 3
        assert api_refusals.current() == [], "what one method is refused is no fault of the key"


def test_a_method_that_was_refused_is_tried_again_the_next_day(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, site={"faults": "batchGetStats:forbidden*1"}) as here:
        here.add(here.channel(videos=3))
        here.run()
        here.go(5 * HOUR)
        assert units(here)[1] == 1
        assert data_api.share_of(here.rt).stats_refused
        here.go(2 * DAY)
        assert not data_api.share_of(here.rt).stats_refused
        assert units(here)[1] > 1


def test_a_spent_bucket_of_statistics_leaves_the_main_bucket_open(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock, site={"stats_quota": 1}) as here:
        made = here.channel(videos=3)
        here.add(made)
        here.run()
        main, _ = units(here)
        here.go(3 * HOUR)
        assert api_units.used(clock(), "stats") == 10_000, "the API said that the quota is used up"
        assert main < units(here)[0] < main + 5
        assert [row.last_refreshed_at for row in videos.of_channel(made.id)] == [clock()] * 3


def test_a_video_that_vanished_is_found_missing_by_its_statistics(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock) as here:
        made = here.channel(videos=3)
        here.add(made)
        here.run()
        gone = here.world.newest(made.id)[1]
        here.world._videos[gone.id] = replace(here.world.video(gone.id), privacy="deleted")
        here.go(HOUR)
        assert videos.find(gone.id).missing_since == clock()
        assert videos.count_of(made.id) == (3, 1)


def test_the_two_buckets_of_a_day_are_two_rows(tmp_path, clock):
    with catalog_pipeline(tmp_path, clock):
        assert api_units.book(3, 10, clock())
        assert api_units.book(4, 10, clock(), "stats")
        api_units.exhaust(10, clock(), "stats")
        rows = fetch("SELECT bucket, quota_used FROM api_budget ORDER BY bucket")
        assert rows == [("main", 3), ("stats", 10)]
        assert api_units.book(1, 10, clock())
        assert not api_units.book(1, 10, clock(), "stats")
        clock.move(api_units.PROBE_SECONDS + 1)
        assert api_units.book(1, 10, clock(), "stats"), "a report of the API is probed after an hour"
        assert (api_units.used(clock()), api_units.used(clock(), "stats")) == (4, 5)
