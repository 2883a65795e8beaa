"""Alerts and reloads as rows, once on SQLite and once on PostgreSQL."""

import pytest

from csi.store import alerts, db, reload_results

NOW = 1_771_761_600.0

pytestmark = pytest.mark.usefixtures("store")


def test_a_firing_alert_is_one_row():
    assert alerts.fire("receiver_away", "default", "http 503", NOW) is True
    assert alerts.fire("receiver_away", "default", "http 500", NOW + 9) is False
    assert alerts.fire("receiver_away", "archive", "http 500", NOW + 9) is True
    assert [(row.subject, row.text, row.since) for row in alerts.firing()] == [
        ("default", "http 500", NOW),
        ("archive", "http 500", NOW + 9),
    ]


def test_it_is_claimed_by_one_and_comes_again_until_it_is_told():
    alerts.fire("quota_low", "api", "few", NOW)
    assert alerts.claim_unnotified(NOW, NOW - 1, 120) == []
    (claimed,) = alerts.claim_unnotified(NOW + 5, NOW, 120)
    assert alerts.claim_unnotified(NOW + 6, NOW, 120) == []
    (again,) = alerts.claim_unnotified(NOW + 125, NOW, 120)
    assert again.id == claimed.id
    alerts.mark_notified(again, NOW + 126)
    assert alerts.claim_unnotified(NOW + 999, NOW, 120) == []


def test_its_end_is_told_only_where_its_start_was():
    alerts.fire("quota_low", "api", "few", NOW)
    alerts.fire("disk_low", "state", "full", NOW)
    first, second = alerts.firing()
    alerts.mark_notified(first, NOW + 1)
    first, second = alerts.firing()
    assert alerts.resolve(first, NOW + 2)
    assert not alerts.resolve(first, NOW + 3)
    assert alerts.resolve(second, NOW + 2)
    (over,) = alerts.claim_unnotified(NOW + 4, 0, 120)
    assert (over.name, over.resolved_at) == ("quota_low", NOW + 2)
    alerts.mark_notified(over, NOW + 5)
    assert alerts.claim_unnotified(NOW + 500, NOW + 500, 120) == []
    assert alerts.fire("quota_low", "api", "few again", NOW + 600)
    assert len(alerts.latest(9)) == 2


def test_old_resolved_alerts_are_deleted_and_firing_ones_are_not():
    for name in ("quota_low", "disk_low"):
        alerts.fire(name, "x", "y", NOW)
    told = alerts.firing()[0]
    alerts.mark_notified(told, NOW)
    alerts.resolve(alerts.firing()[0], NOW)
    assert alerts.delete_old(NOW + alerts.KEPT_SECONDS - 1) == 0
    assert alerts.delete_old(NOW + alerts.KEPT_SECONDS + 1) == 1
    assert [row.name for row in alerts.latest(9)] == ["disk_low"]


def test_the_last_reload_counts():
    assert reload_results.last() is None
    reload_results.note(NOW, "no such key")
    reload_results.note(NOW + 1)
    assert reload_results.last() == reload_results.Reload(NOW + 1, None)
    assert db.fetch("SELECT result FROM reloads ORDER BY id") == [("refused",), ("loaded",)]
