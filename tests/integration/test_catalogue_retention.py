"""What becomes of old rows: hourly captures become daily ones, older ones files that can be read again."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from csi.catalog import archive_files, data_api
from csi.catalog.archive_files import ArchiveError
from csi.catalog.catalog_retention import archive_old_rows, archive_old_rows_hourly, survey
from csi.config.settings import CatalogSettings, CsiSettings, RetentionSettings, Settings
from csi.net import Net
from csi.runtime import Runtime
from csi.store import api_units, counters, heartbeats
from csi.store.catalog import archives, channels, jobs, stats, videos
from csi.store.catalog.jobs import NewCatalogJob
from csi.store.db import database, fetch, run, writing

NOW = 1_771_761_600.0  # 2026-02-22T12:00:00Z
DAY, HOUR = 86_400.0, 3600.0
UC = "UC" + "a" * 22
UNTOLD = ("removed api_budget", "forgotten counters")


@pytest.fixture
def rt(store, tmp_path, clock) -> Runtime:
    channels.add(UC, "Somebody", 5, NOW)
    for name in ("v1", "v2"):
        videos.save(
            [(videos.VideoFacts(name, UC, name, None, NOW - 900 * DAY, view_count=9), videos.RefreshPlan("tail", NOW))],
            NOW,
        )
    settings = Settings(csi=CsiSettings(state_dir=tmp_path), catalog=CatalogSettings(), retention=RetentionSettings())
    return Runtime(settings, Net(), now=clock)


def capture(video: str, *moments: float) -> None:
    for moment in moments:
        stats.save_videos(
            [stats.VideoStats(f"{video}-{moment}", video, moment, int(moment) % 1_000, 1, None, None, None)]
        )


def kept(video: str) -> list[float]:
    return [row.captured_at for row in reversed(stats.recent(video, 10_000))]


def put_away(rt: Runtime) -> dict[str, int]:
    """Whatever is done was foretold."""
    foretold = survey(rt).rows
    done = archive_old_rows(rt, rest=lambda seconds: None).rows
    assert {word: count for word, count in done.items() if word not in UNTOLD} == foretold
    return done


def day_of(days_ago: float) -> float:
    return (NOW - days_ago * DAY) // DAY * DAY


def test_hourly_captures_of_old_days_become_daily_and_the_rest_a_file(rt, tmp_path):
    old, young = day_of(40), day_of(10)
    capture("v1", *(old + hour * HOUR for hour in range(24)), *(young + hour * HOUR for hour in range(24)))
    capture("v2", old + 5)
    assert put_away(rt) == {"archived video_stats": 23}
    assert kept("v1") == [old + 23 * HOUR, *(young + hour * HOUR for hour in range(24))]
    assert kept("v2") == [old + 5]
    lines = gzip.decompress((tmp_path / "archive" / "video_stats-2026-01.jsonl.gz").read_bytes()).splitlines()
    assert [json.loads(line)["captured_at"] for line in lines] == [old + hour * HOUR for hour in range(23)]
    assert put_away(rt) == {}


def test_captures_older_than_a_year_move_to_a_file_for_each_month(rt):
    capture("v1", day_of(400), day_of(370), day_of(300))
    assert put_away(rt) == {"archived video_stats": 2}
    assert kept("v1") == [day_of(300)]
    assert [(book.name, book.rows) for book in archives.every()] == [
        ("video_stats-2025-01.jsonl.gz", 1),
        ("video_stats-2025-02.jsonl.gz", 1),
    ]


def test_a_restored_month_is_back_as_it_was_stays_and_goes_again(rt, clock):
    moments = [day_of(400) + hour * HOUR for hour in range(3)]
    capture("v1", *moments)
    before = stats.recent("v1", 100)
    put_away(rt)
    assert kept("v1") == []
    (book,) = archives.every()
    assert archive_files.restore(rt, book.name).rows == 3
    assert stats.recent("v1", 100) == before
    put_away(rt)
    assert len(kept("v1")) == 3
    clock.move(8 * DAY)
    put_away(rt)
    assert kept("v1") == []
    assert [row["captured_at"] for row in archive_files.read(rt, archives.find(book.name))] == moments


def test_a_month_that_is_kept_does_not_keep_others_and_is_thinned_when_its_time_is_over(rt, clock):
    january, march = (
        [day_of(50) + hour * HOUR for hour in range(3)],
        [NOW + 10 * DAY + hour * HOUR for hour in range(3)],
    )
    capture("v1", *january)
    put_away(rt)
    (book,) = archives.every()
    archive_files.restore(rt, book.name, keep_days=90)
    capture("v1", *march)
    clock.move(60 * DAY)
    assert put_away(rt) == {"archived video_stats": 2}
    assert kept("v1") == [*january, march[-1]]
    clock.move(31 * DAY)
    assert put_away(rt) == {"archived video_stats": 2}
    assert kept("v1") == [january[-1], march[-1]]
    assert [one.kept_until for one in archives.every()] == [None, None]


def test_a_restore_that_was_killed_is_completed_by_the_next_one(rt, monkeypatch):
    monkeypatch.setattr(archives, "CHUNK", 4)
    moments = [day_of(400) + number for number in range(10)]
    capture("v1", *moments)
    put_away(rt)
    (book,) = archives.every()
    put_back, calls = archives.restore_rows, []

    def dying(kind: str, rows: list) -> int:
        calls.append(len(rows))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return put_back(kind, rows)

    with monkeypatch.context() as patch:
        patch.setattr(archives, "restore_rows", dying)
        with pytest.raises(KeyboardInterrupt):
            archive_files.restore(rt, book.name)
    assert kept("v1") == moments[:4]
    assert put_away(rt) == {}, "what is back stays, though the rest is not"
    assert archive_files.restore(rt, book.name).rows == 10
    assert kept("v1") == moments


def test_a_writer_that_died_leaves_a_tail_that_the_next_cuts_off(rt, tmp_path, monkeypatch):
    capture("v1", *(day_of(400) + number for number in range(5)))

    def dying(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archives, "record_write", dying)
        with pytest.raises(KeyboardInterrupt):
            put_away(rt)
    path = tmp_path / "archive" / "video_stats-2025-01.jsonl.gz"
    assert path.stat().st_size > 0
    assert len(kept("v1")) == 5
    put_away(rt)
    assert len(list(archive_files.read(rt, archives.every()[0]))) == 5
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == 5


@pytest.mark.parametrize("harm", ["gone", "short", "garbage"])
def test_a_damaged_file_is_said_and_changes_nothing(rt, tmp_path, harm):
    capture("v1", day_of(400), day_of(400) + 1)
    put_away(rt)
    (book,) = archives.every()
    path = tmp_path / "archive" / book.name
    match harm:
        case "gone":
            path.unlink()
        case "short":
            path.write_bytes(path.read_bytes()[:-5])
        case "garbage":
            path.write_bytes(b"x" * book.bytes)
    with pytest.raises(ArchiveError, match="backup"):
        archive_files.restore(rt, book.name)
    assert (kept("v1"), archives.find(book.name)) == ([], book)


def test_a_folder_that_cannot_be_written_keeps_the_rows(rt, tmp_path):
    (tmp_path / "archive").write_text("in the way")
    capture("v1", day_of(400))
    assert not archive_old_rows_hourly(rt).complete
    assert kept("v1") == [day_of(400)]


def test_jobs_lose_their_payload_after_a_month_and_go_after_a_year(rt, clock):
    settled = settle_job("old", NOW - 31 * DAY)
    fresh = settle_job("fresh", NOW - 29 * DAY)
    waiting = jobs.enqueue(
        NewCatalogJob("BACKFILL_CHANNEL", "waits", channel_id=UC, payload={"a": 1}), NOW - 400 * DAY
    ).job
    assert put_away(rt) == {"archived jobs": 1}
    assert (jobs.find(settled).payload, jobs.find(settled).status, jobs.find(settled).units) == ({}, "completed", 0)
    assert jobs.find(fresh).payload == {"videos": 5}
    assert len(jobs.history(settled)) == 2
    assert archive_files.restore(rt, archives.every()[0].name).rows == 1
    assert jobs.find(settled).payload == {"videos": 5}
    clock.move(65 * DAY)
    assert put_away(rt) == {"archived jobs": 2, "removed job_events": 4}
    clock.move(300 * DAY)
    assert put_away(rt) == {"removed jobs": 2}
    assert [job.id for job in jobs.page()] == [waiting.id]


def test_jobs_that_were_deleted_after_a_year_come_back_whole(rt, clock):
    settled = settle_job("old", NOW - 31 * DAY)
    put_away(rt)
    before = jobs.find(settled)
    clock.move(365 * DAY)
    assert put_away(rt)["removed jobs"] == 1
    assert jobs.find(settled) is None
    assert archive_files.restore(rt, archives.every()[0].name).rows == 1
    assert jobs.find(settled) == replace(before, payload={"videos": 5}, archived_at=None)
    clock.move(8 * DAY)
    assert archive_old_rows(rt, rest=lambda seconds: None).rows == {"archived jobs": 1, "removed jobs": 1}
    assert archive_files.restore(rt, archives.every()[0].name).rows == 1


def test_a_file_whose_rows_are_not_back_is_kept(rt, monkeypatch):
    capture("v1", day_of(400))
    put_away(rt)
    book = archives.every()[0]
    with monkeypatch.context() as patch:
        patch.setattr(archives, "run", lambda *given: None)
        with pytest.raises(ArchiveError, match="0 of 1 rows"):
            archive_files.restore(rt, book.name)
    assert archives.every()[0].rows == 1
    assert archive_files.restore(rt, book.name).rows == 1


def settle_job(key: str, at: float) -> str:
    jobs.enqueue(NewCatalogJob("BACKFILL_CHANNEL", key, payload={"videos": 5}), at)
    job = jobs.claim(at)
    jobs.complete(job, {}, at)
    return job.id


def test_channel_statistics_stay_for_ever(rt):
    made = stats.make_channel_stats(UC, day_of(3_000), subscriber_count=1, video_count=1, view_count=1,
                                    daily_views=None, daily_subscribers=None, daily_videos=None)  # fmt: skip
    stats.save_channel(made)
    put_away(rt)
    assert stats.trend(UC, 0) == [made]


def test_strict_policy_keeps_nothing_that_the_api_counted_for_longer_than_thirty_days(rt, tmp_path, clock):
    capture("v1", day_of(400), day_of(40), day_of(20))
    put_away(rt)
    strict = rt.settings.model_copy(update={"retention": RetentionSettings(youtube_policy="strict")})
    there = Runtime(strict, Net(), now=clock)
    made = stats.make_channel_stats(UC, day_of(40), subscriber_count=1, video_count=1, view_count=1,
                                    daily_views=None, daily_subscribers=None, daily_videos=None)  # fmt: skip
    stats.save_channel(made)
    run("UPDATE videos SET last_refreshed_at = ? WHERE id = 'v2'", day_of(31))
    put_away(there)
    assert kept("v1") == [day_of(20)]
    assert stats.trend(UC, 0) == []
    assert (videos.find("v1").view_count, videos.find("v2").view_count) == (9, None)
    assert list((tmp_path / "archive").glob("video_stats*")) == archives.every() == []


def test_a_run_is_bounded_and_the_next_goes_on(rt):
    capture("v1", *(day_of(40) + number for number in range(1_201)))
    first = archive_old_rows(rt, max_chunks=1, rest=lambda seconds: None)
    assert (first.rows, first.complete) == ({"archived video_stats": 500}, False)
    assert put_away(rt) == {"archived video_stats": 700}
    assert kept("v1") == [day_of(40) + 1_200]


def test_a_clock_that_leaps_puts_nothing_away_at_once(rt, clock):
    heartbeats.write("catalog_retention", NOW, NOW)
    capture("v1", day_of(5), day_of(5) + 1)
    clock.move(3_650 * DAY)
    archive_old_rows_hourly(rt)
    assert len(kept("v1")) == 2


def test_days_of_the_budget_go_after_a_year_with_what_the_catalogue_used_of_them(rt):
    for days in (400, 10):
        api_units.book_share(5, 10_000, data_api.UNITS, 3_000, NOW - days * DAY)
    assert put_away(rt)["removed api_budget"] == 1
    assert list(counters.all_of(data_api.UNITS)) == [("", api_units.day_of(NOW - 10 * DAY))]


def test_empty_months_are_dropped_on_postgresql(rt):
    capture("v1", day_of(400))
    put_away(rt)
    assert "video_stats_2025_01" not in database.get_tables()
    with writing():
        assert fetch("SELECT COUNT(*) FROM video_stats") == [(0,)]


def test_files_are_private(rt, tmp_path: Path):
    capture("v1", day_of(400))
    put_away(rt)
    path = tmp_path / "archive" / archives.every()[0].name
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
