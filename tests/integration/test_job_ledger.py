"""The job ledger on SQLite and PostgreSQL: one open job for a key, one worker for a job, a history of everything."""

import threading

import pytest

from csi.errors import StoreError
from csi.store import counters, db, leases
from csi.store.catalog import channels, jobs
from csi.store.catalog.jobs import MOVES, NewCatalogJob
from csi.store.queries import job_figures

NOW = 1_771_761_600.0
UC = [f"UC{number:022d}" for number in range(5)]


@pytest.fixture(autouse=True)
def tracked(store):
    for ref in UC:
        channels.add(ref, ref, 5, NOW)


def put(key: str = "k", **values: object) -> jobs.CatalogJob:
    return jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", key, **values), NOW).job


def words(job: jobs.CatalogJob) -> list[str]:
    return [event.event_type for event in jobs.history(job.id)]


def test_the_second_job_with_a_key_is_the_first_ones_job():
    first, second = (jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", "k", channel_id=UC[0]), NOW) for _ in range(2))
    assert (first.is_duplicate, second.is_duplicate) == (False, True)
    assert second.job.id == first.job.id


def test_a_key_is_free_again_when_its_job_is_settled():
    first = jobs.claim(NOW) if put() else None
    jobs.complete(first, {}, NOW)
    assert not jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", "k"), NOW).is_duplicate


def test_many_enqueue_at_once_and_one_row_is_made(store):
    found: list[jobs.EnqueueResult] = []

    def enqueue() -> None:
        with db.connection():
            found.append(jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", "same"), NOW))

    in_threads(8, enqueue)
    assert [one.is_duplicate for one in found].count(False) == 1
    assert len({one.job.id for one in found}) == 1


def test_the_most_urgent_comes_first_then_the_longest_due():
    put("low", priority=1)
    put("late", priority=9, scheduled_at=NOW - 10)
    put("early", priority=9, scheduled_at=NOW - 20)
    put("future", priority=10, scheduled_at=NOW + 10)
    assert [job.dedup_key for job in jobs.due(NOW)] == ["early", "late", "low"]
    assert [jobs.claim(NOW).dedup_key for _ in range(3)] == ["early", "late", "low"]
    assert jobs.claim(NOW) is None
    assert jobs.claim(NOW + 10).dedup_key == "future"


def test_two_workers_never_hold_one_job(store):
    for number in range(40):
        put(f"k{number}")
    held: list[str] = []

    def claim() -> None:
        with db.connection():
            while job := jobs.claim(NOW):
                held.append(job.id)

    in_threads(4, claim)
    assert len(held) == len(set(held)) == 40


def test_a_channel_has_one_running_job_whoever_claims(store):
    for number in range(6):
        put(f"k{number}", channel_id=UC[number % 2])
    held: list[str | None] = []

    def claim() -> None:
        with db.connection():
            while job := jobs.claim(NOW):
                held.append(job.channel_id)

    in_threads(4, claim)
    assert sorted(held) == UC[:2]
    assert jobs.claim(NOW) is None


def test_the_next_job_of_a_channel_waits_for_the_one_before():
    put("a", channel_id=UC[0], priority=9)
    put("b", channel_id=UC[0])
    first = jobs.claim(NOW)
    assert jobs.claim(NOW) is None
    jobs.complete(first, {}, NOW)
    assert jobs.claim(NOW).dedup_key == "b"


def test_jobs_of_a_paused_channel_wait():
    put("a", channel_id=UC[0])
    channels.pause(UC[0])
    assert jobs.claim(NOW) is None
    channels.resume(UC[0], NOW)
    assert jobs.claim(NOW) is not None


def test_every_change_is_in_the_history_with_its_duration():
    put()
    job = jobs.claim(NOW + 3)
    jobs.fail(job, "the API is away", NOW + 60, NOW + 10)
    assert jobs.release_failed(NOW + 59) == 0
    assert jobs.release_failed(NOW + 60) == 1
    again = jobs.claim(NOW + 60)
    assert again.attempts == 2
    jobs.complete(again, {"videos": 3}, NOW + 65)
    assert [(event.event_type, event.duration_ms) for event in jobs.history(job.id)] == [
        ("started", 3_000),
        ("failed", 7_000),
        ("retried", 50_000),
        ("started", 0),
        ("completed", 5_000),
    ]
    assert jobs.history(job.id)[-1].details == {"videos": 3}


def test_a_failed_job_waits_until_it_is_due():
    put()
    jobs.fail(jobs.claim(NOW), "no", NOW + 60, NOW)
    assert jobs.release_failed(NOW + 59) == 0
    assert [job.error_message for job in jobs.page(status="failed")] == ["no"]
    assert jobs.release_failed(NOW + 60) == 1
    assert jobs.page(status="failed") == []


def test_what_is_not_in_the_table_cannot_happen():
    job, statuses = put(), (*jobs.OPEN, *jobs.SETTLED)
    for before, after in [(a, b) for a in statuses for b in statuses if (a, b) not in MOVES]:
        db.run("UPDATE jobs SET status = ? WHERE id = ?", before, job.id)
        assert not jobs._move(jobs.find(job.id), after, NOW)
        assert jobs.find(job.id).status == before
    assert jobs.history(job.id) == []


def test_a_worker_that_lost_its_job_cannot_settle_it():
    put()
    mine = jobs.claim(NOW)
    assert jobs.requeue_stuck(NOW + jobs.LEASE_SECONDS + 1) == 1
    other = jobs.claim(NOW + jobs.LEASE_SECONDS + 1)
    assert not jobs.checkpoint(mine, {"page": 2}, NOW + 60)
    assert not jobs.complete(mine, {}, NOW + 60)
    assert not jobs.heartbeat(mine, NOW + 60)
    assert jobs.complete(other, {}, NOW + 60)
    assert words(mine) == ["started", "retried", "started", "completed"]


def test_a_heartbeat_keeps_a_job():
    put()
    job = jobs.claim(NOW)
    assert jobs.heartbeat(job, NOW + 50)
    assert jobs.requeue_stuck(NOW + 60) == 0
    assert jobs.running_count(NOW + 60) == 1


def test_progress_gives_a_job_all_its_attempts_back():
    put(max_attempts=2)
    for minute in range(6):
        job = jobs.claim(NOW + minute * 60)
        assert jobs.checkpoint(job, {"page": minute}, NOW + minute * 60)
        jobs.requeue_stuck(NOW + minute * 60 + 56)
    assert jobs.find(job.id).status == "pending"
    assert jobs.find(job.id).progress == {"page": 5}


def test_a_job_that_ends_every_worker_without_progress_is_dead():
    put(max_attempts=3)
    for minute in range(3):
        job = jobs.claim(NOW + minute * 60)
        jobs.requeue_stuck(NOW + minute * 60 + 56)
    assert jobs.find(job.id).status == "dead"
    assert words(job)[-1] == "dead_lettered"


def test_a_worker_that_ends_after_failed_attempts_does_not_end_the_job():
    put(max_attempts=3)
    for minute in range(2):
        jobs.fail(jobs.claim(NOW + minute * 60), "http 500", NOW + minute * 60 + 30, NOW + minute * 60 + 1)
        jobs.release_failed(NOW + minute * 60 + 31)
    job = jobs.claim(NOW + 120)
    jobs.requeue_stuck(NOW + 176)
    assert (jobs.find(job.id).status, jobs.find(job.id).fruitless_attempts) == ("pending", 3)


def test_waiting_is_no_attempt():
    put(max_attempts=1)
    for _ in range(5):
        jobs.snooze(jobs.claim(NOW), "the budget is spent", NOW, NOW)
    assert jobs.find(jobs.claim(NOW).id).attempts == 1


def test_cancelling_a_running_job_takes_it_from_its_worker():
    put()
    job = jobs.claim(NOW)
    assert jobs.cancel(jobs.find(job.id), NOW + 1)
    assert not jobs.checkpoint(job, {}, NOW + 2)
    assert (jobs.find(job.id).status, jobs.find(job.id).error_message) == ("dead", "cancelled")
    assert not jobs.cancel(jobs.find(job.id), NOW + 3)


def test_a_dead_job_is_retried_where_it_was_unless_another_does_it():
    put()
    job = jobs.claim(NOW)
    jobs.checkpoint(job, {"page": 7}, NOW)
    jobs.mark_dead(jobs.find(job.id), "no", NOW)
    twin = put()
    assert not jobs.retry_now(jobs.find(job.id), NOW)
    jobs.cancel(twin, NOW)
    assert jobs.retry_now(jobs.find(job.id), NOW)
    assert jobs.claim(NOW).progress == {"page": 7}


def test_a_job_for_an_unknown_channel_is_refused():
    with pytest.raises(StoreError, match="not in the catalogue"):
        put(channel_id="UC" + "x" * 22)


def test_a_worker_that_starts_alone_takes_up_what_was_running():
    put()
    jobs.claim(NOW)
    leases.release_all(NOW + 1)
    assert jobs.claim(NOW + 1) is not None


def test_an_orderly_end_gives_jobs_back_and_counts_no_attempt():
    put()
    jobs.claim(NOW)
    assert leases.release_own(NOW + 1) == 1
    assert jobs.claim(NOW + 1).attempts == 1


def test_a_clock_that_goes_back_does_not_hold_jobs_up():
    put(scheduled_at=NOW + 5_000)
    leases.shift_times(4_000, NOW)
    assert jobs.claim(NOW + 1_000) is not None


def test_a_lease_from_the_future_is_stuck():
    put()
    jobs.claim(NOW + 86_400)
    assert jobs.requeue_stuck(NOW) == 1


def in_threads(number: int, target: object) -> None:
    threads = [threading.Thread(target=target) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_months_are_there_before_their_rows(store):
    put(scheduled_at=NOW)
    jobs.complete(jobs.claim(NOW + 40 * 86_400), {}, NOW + 80 * 86_400)
    assert len(db.fetch("SELECT 1 FROM job_events")) == 2
    if store == "postgres":
        assert {"job_events_2026_04", "job_events_2026_05"} <= set(db.database.get_tables())


def test_a_job_that_was_put_off_comes_sooner_when_it_is_wanted_sooner():
    put("k", scheduled_at=NOW + 86_400)
    assert jobs.due(NOW) == []
    found = jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", "k"), NOW)
    assert (found.is_duplicate, found.job.scheduled_at) == (True, NOW)
    assert [job.dedup_key for job in jobs.due(NOW)] == ["k"]


def test_a_job_that_waits_for_a_reason_keeps_its_wait():
    put("k")
    jobs.snooze(jobs.claim(NOW), "the budget is spent", NOW + 3_600, NOW)
    assert jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", "k"), NOW).job.scheduled_at == NOW + 3_600


def test_a_job_that_ended_all_its_workers_is_counted_and_its_channel_marked():
    put("k", channel_id=UC[0], max_attempts=1)
    jobs.claim(NOW)
    jobs.requeue_stuck(NOW + 60)
    assert counters.all_of("jobs") == {("BACKFILL_CHANNEL", "dead"): 1}
    assert channels.find(UC[0]).status == "error"
    assert job_figures.dead_count() == 1


def test_a_cancelled_job_needs_nobody_and_says_nothing_when_it_is_back():
    job = put("k")
    jobs.cancel(job, NOW)
    assert (job_figures.dead_count(), job_figures.unfinished()) == (0, {})
    jobs.retry_now(jobs.find(job.id), NOW)
    assert jobs.find(job.id).error_message is None


def test_what_waits_for_a_worker_is_told_without_what_waits_rightly():
    put("later", scheduled_at=NOW + 10)
    put("paused", channel_id=UC[0], scheduled_at=NOW - 500)
    channels.pause(UC[0])
    assert job_figures.waiting_since(NOW) is None
    put("due", scheduled_at=NOW - 100)
    assert job_figures.waiting_since(NOW) == NOW - 100
    assert job_figures.unfinished() == {("BACKFILL_CHANNEL", "pending"): 3}


def test_attempts_count_every_start_and_are_never_taken_back():
    put(max_attempts=2)
    for minute in range(4):
        job = jobs.claim(NOW + minute * 60)
        assert jobs.checkpoint(job, {"page": minute}, NOW + minute * 60)
        jobs.requeue_stuck(NOW + minute * 60 + 56)
    job = jobs.find(job.id)
    assert (job.attempts, job.fruitless_attempts, job.status) == (4, 0, "pending")


def test_a_job_of_a_paused_channel_says_what_it_waits_for():
    job, other = put("k", channel_id=UC[0]), put("l", channel_id=UC[1])
    channels.pause(UC[0])
    assert job_figures.waiting_reasons([job, other], NOW) == {
        job.id: f"its channel is paused; `csi channels resume {UC[0]}` lets it run"
    }
    channels.resume(UC[0], NOW)
    assert job_figures.waiting_reasons([job], NOW) == {}
    assert job_figures.waiting_reasons([job], NOW - 60) == {job.id: "the time it is scheduled for"}
