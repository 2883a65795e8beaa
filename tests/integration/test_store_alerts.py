"""Alerts and reloads as rows, once on SQLite and once on PostgreSQL."""

import pytest

from csi.alerts import AGAIN_SECONDS, message_key
from csi.store import alerts, db, reload_results
from tests.fakes.fired_alert import fire_alert

NOW = 1_771_761_600.0

pytestmark = pytest.mark.usefixtures("store")


def test_a_firing_alert_is_one_row():
    assert fire_alert("receiver_away", "default", "http 503", NOW) is True
    assert fire_alert("receiver_away", "default", "http 500", NOW + 9) is False
    assert fire_alert("receiver_away", "archive", "http 500", NOW + 9) is True
    assert [(row.subject, row.text, row.since) for row in alerts.firing()] == [
        ("default", "http 500", NOW),
        ("archive", "http 500", NOW + 9),
    ]


def test_it_is_claimed_by_one_and_comes_again_until_it_is_told():
    fire_alert("quota_low", "api", "few", NOW, delay=5.0)
    assert alerts.claim_unnotified(NOW + 4, 120) == []
    (claimed,) = alerts.claim_unnotified(NOW + 5, 120)
    assert alerts.claim_unnotified(NOW + 6, 120) == []
    (again,) = alerts.claim_unnotified(NOW + 125, 120)
    assert again.id == claimed.id
    alerts.mark_notified(again, NOW + 126)
    assert alerts.claim_unnotified(NOW + 999, 120) == []


def test_news_of_a_known_alert_is_notified_again_and_not_more_often_than_every_six_hours():
    fire_alert("watch_gone", "feeds", "one is gone", NOW, revision=100)
    (first,) = alerts.claim_unnotified(NOW, 120)
    alerts.mark_notified(first, NOW)
    fire_alert("watch_gone", "feeds", "two are gone", NOW + 60, revision=200)
    fire_alert("watch_gone", "feeds", "three are gone", NOW + 90, revision=300)
    assert alerts.claim_unnotified(NOW + AGAIN_SECONDS - 1, 120) == []
    (again,) = alerts.claim_unnotified(NOW + AGAIN_SECONDS, 120)
    assert again.text == "three are gone"
    assert message_key(first) != message_key(again)
    alerts.mark_notified(again, NOW + AGAIN_SECONDS)
    assert fire_alert("watch_gone", "feeds", "one is back", NOW + AGAIN_SECONDS, revision=200) is False
    assert alerts.claim_unnotified(NOW + 3 * AGAIN_SECONDS, 120) == []


def test_its_end_is_told_only_where_its_start_was():
    fire_alert("quota_low", "api", "few", NOW)
    fire_alert("disk_low", "state", "full", NOW, delay=5.0)
    first, second = alerts.firing()
    alerts.mark_notified(first, NOW + 1)
    first, second = alerts.firing()
    assert alerts.resolve(first, NOW + 2)
    assert not alerts.resolve(first, NOW + 3)
    assert alerts.resolve(second, NOW + 2)
    assert alerts.claim_unnotified(NOW + 31, 120) == [], "it may come back"
    (over,) = alerts.claim_unnotified(NOW + 32, 120)
    assert (over.name, over.resolved_at) == ("quota_low", NOW + 2)
    alerts.mark_notified(over, NOW + 33)
    assert alerts.claim_unnotified(NOW + 500, 120) == []
    assert fire_alert("quota_low", "api", "few again", NOW + 600)
    assert len(alerts.latest(9)) == 2


def test_old_resolved_alerts_are_deleted_and_firing_ones_are_not():
    for name in ("quota_low", "disk_low"):
        fire_alert(name, "x", "y", NOW)
    told = alerts.firing()[0]
    alerts.mark_notified(told, NOW)
    alerts.resolve(alerts.firing()[0], NOW)
    assert alerts.delete_old(NOW + alerts.KEPT_SECONDS - 1) == 0
    assert alerts.delete_old(NOW + alerts.KEPT_SECONDS + 1) == 1
    assert [row.name for row in alerts.latest(9)] == ["disk_low"]


def test_one_that_comes_back_soon_continues_its_row_and_the_most_events_are_kept():
    fire_alert("receiver_away", "default", "http 503", NOW, events=40, delay=180.0)
    alerts.resolve(alerts.firing()[0], NOW + 100)
    assert fire_alert("receiver_away", "default", "http 503", NOW + 200, events=7, delay=180.0)
    (row,) = alerts.firing()
    assert (row.since, row.firing_at, row.failing_seconds, row.recoveries, row.events) == (NOW, NOW + 200, 100, 1, 40)
    assert alerts.claim_unnotified(NOW + 279, 120) == []
    assert len(alerts.claim_unnotified(NOW + 280, 120)) == 1


def test_one_that_comes_back_after_its_time_is_a_new_row():
    fire_alert("receiver_away", "default", "http 503", NOW, delay=180.0)
    alerts.resolve(alerts.firing()[0], NOW + 100)
    assert fire_alert("receiver_away", "default", "http 503", NOW + 1001, delay=180.0)
    assert alerts.firing()[0].since == NOW + 1001


def test_the_last_reload_counts():
    assert reload_results.last() is None
    reload_results.note(NOW, "no such key")
    reload_results.note(NOW + 1)
    assert reload_results.last() == reload_results.Reload(NOW + 1, None)
    assert db.fetch("SELECT result FROM reloads ORDER BY id") == [("refused",), ("loaded",)]
