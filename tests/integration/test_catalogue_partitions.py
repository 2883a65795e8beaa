"""Months of statistics on PostgreSQL that are divided by channel or video, where a table has many rows."""

import re
import threading

import pytest

from csi.catalog import archive_files, catalog_retention
from csi.config.settings import CatalogSettings, CsiSettings, RetentionSettings, Settings
from csi.net import Net
from csi.runtime import Runtime
from csi.store import db
from csi.store.catalog import archives, channels, partitions, stats, videos

NOW = 1_771_761_600.0  # 2026-02-22T12:00:00Z
DAY = 86_400.0
MARCH = 1_772_323_200.0
UC = "UC" + "a" * 22
VIDEOS = [f"v{number}" for number in range(40)]
LIMIT = 50


@pytest.fixture
def counted(postgres_url) -> None:
    """80 captures of videos and one of a channel in February, and PostgreSQL knows how many."""
    db.open_database(postgres_url)
    db.migrate()
    channels.add(UC, "Somebody", 5, NOW)
    facts = [videos.VideoFacts(name, UC, "T", None, NOW - 9 * DAY) for name in VIDEOS]
    videos.save([(one, videos.RefreshPlan("hot", NOW)) for one in facts], NOW)
    for moment in (NOW - 3_600, NOW):
        capture(moment)
    stats.save_channel(of_channel(NOW))
    db.run("ANALYZE")


def capture(moment: float) -> None:
    stats.save_videos([stats.VideoStats(f"{name}-{moment}", name, moment, 7, 1, 1, 1, 1) for name in VIDEOS])


def of_channel(moment: float) -> stats.ChannelStats:
    return stats.make_channel_stats(UC, moment, **dict.fromkeys(stats._CHANNEL[4:]))


def sub_partitions(month: str) -> list[str]:
    return db.column("SELECT relname FROM pg_class WHERE relname ~ ? AND relkind = 'r'", f"^{month}_[0-9]+$")


def read_from(call, *values) -> set[str]:
    """The partitions of March that PostgreSQL would read for the statements of this call."""
    seen = []
    hooks = db.database.obj.query_hooks
    hooks.append(lambda query: seen.append((query.sql, tuple(query.params))))
    try:
        call(*values)
    finally:
        hooks.pop()
    plans = [row for sql, params in seen for row in db.database.execute_sql(f"EXPLAIN {sql}", params)]
    return set(re.findall(r" on ((?:video|channel)_stats_2026_03(?:_\d+)?)\b", "\n".join(row[0] for row in plans)))


@pytest.mark.usefixtures("counted")
def test_a_month_after_many_rows_is_divided_and_its_rows_are_found():
    assert partitions.divide_next_month(NOW, LIMIT) == ["video_stats_2026_03"]
    assert len(sub_partitions("video_stats_2026_03")) == 16
    capture(MARCH)
    capture(MARCH)  # the second replaces the first
    assert [row.captured_at for row in stats.recent("v7")] == [MARCH, NOW, NOW - 3_600]
    assert stats.view_baselines(VIDEOS, NOW, MARCH) == dict.fromkeys(VIDEOS, stats.CountSample(MARCH, 7))
    used = [name for name in sub_partitions("video_stats_2026_03") if db.fetch(f"SELECT 1 FROM {name} LIMIT 1")]
    assert len(used) > 5, "40 videos spread over 16"


@pytest.mark.usefixtures("counted")
def test_a_statement_that_names_the_video_or_the_channel_reads_one_sub_partition():
    assert partitions.divide_next_month(NOW, 0) == ["channel_stats_2026_03", "video_stats_2026_03"]
    stats.save_channel(of_channel(MARCH + DAY))
    capture(MARCH)
    for call, values in (
        (stats.since, ("v7", MARCH)),
        (stats.recent, ("v7", 24)),
        (stats.trend, (UC, MARCH)),
        (stats.channel_baseline, (UC, MARCH, MARCH + 2 * DAY)),
    ):
        assert len(read_from(call, *values)) == 1, call.__name__


@pytest.mark.usefixtures("counted")
def test_a_month_after_fewer_rows_stays_whole():
    assert partitions.divide_next_month(NOW, 80) == []
    capture(MARCH)
    assert "video_stats_2026_03" in db.database.get_tables()
    assert sub_partitions("video_stats_2026_03") == []
    db.run("ANALYZE")
    assert partitions.divide_next_month(NOW, LIMIT) == [], "a month that exists stays as it is"
    assert db.database.get_primary_keys("video_stats") == ["id", "captured_at"]


@pytest.mark.usefixtures("counted")
def test_the_rows_of_a_divided_month_are_counted_once():
    partitions.divide_next_month(NOW, LIMIT)
    capture(MARCH)
    db.run("ANALYZE")
    assert partitions.divide_next_month(MARCH, 120) == []
    assert partitions.divide_next_month(MARCH, 119) == ["video_stats_2026_04"]


@pytest.mark.usefixtures("counted")
def test_partitions_that_were_never_analyzed_count_as_empty():
    partitions.divide_next_month(NOW, LIMIT)
    assert partitions.divide_next_month(MARCH, 79) == ["video_stats_2026_04"]


@pytest.mark.usefixtures("counted")
def test_an_empty_divided_month_is_dropped_with_its_sub_partitions():
    partitions.divide_next_month(NOW, LIMIT)
    capture(MARCH)
    partitions.drop_empty("video_stats", MARCH + 60 * DAY)
    assert len(sub_partitions("video_stats_2026_03")) == 16, "it has rows"
    while archives.drop_before("video_stats", MARCH + 1):
        pass
    partitions.drop_empty("video_stats", MARCH + 60 * DAY)
    assert db.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'video_stats_2026%'") == []
    capture(MARCH)
    assert stats.recent("v1")[0].captured_at == MARCH


def test_of_many_workers_one_divides_while_others_write(counted):
    made, errors = [], []

    def work(call) -> None:
        try:
            with db.connection():
                made.extend(call() or ())
        except db.DatabaseError as error:
            errors.append(error)

    divide = [lambda: partitions.divide_next_month(NOW, LIMIT)] * 4
    write = [lambda hour=hour: capture(NOW + hour * 3_600) for hour in range(1, 5)]
    threads = [threading.Thread(target=work, args=(call,)) for call in divide + write]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (made, errors) == (["video_stats_2026_03"], [])
    assert len(sub_partitions("video_stats_2026_03")) == 16
    assert len(stats.recent("v1")) == 6


@pytest.fixture
def rt(counted, tmp_path, clock, monkeypatch) -> Runtime:
    settings = Settings(csi=CsiSettings(state_dir=tmp_path), catalog=CatalogSettings(), retention=RetentionSettings())
    monkeypatch.setattr(catalog_retention.time, "sleep", lambda seconds: None)
    return Runtime(settings, Net(), now=clock)


def test_the_hourly_run_divides_only_where_the_setting_asks_for_it(rt):
    catalog_retention.archive_old_rows_hourly(rt)
    assert sub_partitions("video_stats_2026_03") == []
    db.run("UPDATE pg_class SET reltuples = 100001 WHERE relname = 'video_stats_2026_02'")
    rt.settings = with_limit(rt.settings, 100_000)
    catalog_retention.archive_old_rows_hourly(rt)
    assert len(sub_partitions("video_stats_2026_03")) == 16


def with_limit(settings: Settings, rows: int) -> Settings:
    catalog = settings.catalog.model_copy(update={"subpartition_rows": rows})
    return settings.model_copy(update={"catalog": catalog})


def test_rows_of_a_divided_month_are_thinned_archived_and_restored(rt, clock):
    partitions.divide_next_month(NOW, LIMIT)
    for moment in (MARCH, MARCH + 3_600):
        capture(moment)
    clock.move(500 * DAY)
    catalog_retention.archive_old_rows(rt, rest=lambda seconds: None)
    assert stats.recent("v1") == []
    assert "video_stats_2026_03" not in db.database.get_tables()
    march = next(book for book in archives.every() if book.month == "2026-03")
    assert march.rows == 80
    archive_files.restore(rt, march.name)
    assert [row.captured_at for row in stats.recent("v1")] == [MARCH + 3_600, MARCH]


def test_sqlite_has_no_partitions(sqlite_store):
    assert partitions.divide_next_month(NOW, 0) == []
