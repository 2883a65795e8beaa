"""Troubles and reloads as rows, once on SQLite and once on PostgreSQL."""

import pytest

from csi.store import alerts, db, reloads, watches
from csi.store.models import Watch

NOW = 1_771_761_600.0

pytestmark = pytest.mark.usefixtures("store")


def test_a_trouble_is_one_row_while_it_lasts():
    assert alerts.note("receiver_away", "default", "http 503", NOW) is True
    assert alerts.note("receiver_away", "default", "http 500", NOW + 9) is False
    assert alerts.note("receiver_away", "archive", "http 500", NOW + 9) is True
    assert [(row.subject, row.text, row.since) for row in alerts.lasting()] == [
        ("default", "http 500", NOW),
        ("archive", "http 500", NOW + 9),
    ]


def test_it_is_claimed_by_one_and_comes_again_until_it_is_told():
    alerts.note("quota_low", "api", "few", NOW)
    assert alerts.claim_untold(NOW, NOW - 1, 120) == []
    (claimed,) = alerts.claim_untold(NOW + 5, NOW, 120)
    assert alerts.claim_untold(NOW + 6, NOW, 120) == []
    (again,) = alerts.claim_untold(NOW + 125, NOW, 120)
    assert again.id == claimed.id
    alerts.mark_told(again, NOW + 126)
    assert alerts.claim_untold(NOW + 999, NOW, 120) == []


def test_its_end_is_told_only_where_its_start_was():
    alerts.note("quota_low", "api", "few", NOW)
    alerts.note("disk_low", "state", "full", NOW)
    first, second = alerts.lasting()
    alerts.mark_told(first, NOW + 1)
    first, second = alerts.lasting()
    assert alerts.end(first, NOW + 2)
    assert not alerts.end(first, NOW + 3)
    assert alerts.end(second, NOW + 2)
    (over,) = alerts.claim_untold(NOW + 4, 0, 120)
    assert (over.name, over.ended_at) == ("quota_low", NOW + 2)
    alerts.mark_told(over, NOW + 5)
    assert alerts.claim_untold(NOW + 500, NOW + 500, 120) == []
    assert alerts.note("quota_low", "api", "few again", NOW + 600)
    assert len(alerts.latest(9)) == 2


def test_what_is_long_over_is_forgotten_and_what_lasts_is_not():
    for name in ("quota_low", "disk_low"):
        alerts.note(name, "x", "y", NOW)
    told = alerts.lasting()[0]
    alerts.mark_told(told, NOW)
    alerts.end(alerts.lasting()[0], NOW)
    assert alerts.forget_old(NOW + alerts.KEPT_SECONDS - 1) == 0
    assert alerts.forget_old(NOW + alerts.KEPT_SECONDS + 1) == 1
    assert [row.name for row in alerts.latest(9)] == ["disk_low"]


def test_a_source_is_as_fresh_as_its_freshest_watch():
    for ref, interval in (("UC1", 300.0), ("UC2", 900.0)):
        wanted = watches.WantedWatch("youtube_channel_rss", ref, None, None, (), "standard", interval, "all")
        watches.sync([*[_wanted(row) for row in watches.active()], wanted], NOW)
    Watch.update(last_success_at=NOW - 60).where(Watch.ref == "UC2").execute()
    Watch.update(planned_interval=400.0).where(Watch.ref == "UC1").execute()
    assert alerts.source_times() == [alerts.SourceTimes("youtube_channel_rss", 400.0, NOW - 60)]


def _wanted(row: Watch) -> watches.WantedWatch:
    return watches.WantedWatch(row.source, row.ref, None, None, (), row.tier, row.interval_seconds, "all")


def test_the_last_reload_counts():
    assert reloads.last() is None
    reloads.note(NOW, "no such key")
    reloads.note(NOW + 1)
    assert reloads.last() == reloads.Reload(NOW + 1, None)
    assert db.fetch("SELECT result FROM reloads ORDER BY id") == [("refused",), ("loaded",)]
