"""Notifications, mutes and messages at set times as rows, once on SQLite and once on PostgreSQL."""

import pytest

from csi import notification_sending
from csi.store import alerts, db, mutes, notification_log, scheduled_messages
from csi.store.notification_log import FailingTarget
from tests.fakes.fired_alert import fire_alert

NOW = 1_771_761_600.0

pytestmark = pytest.mark.usefixtures("store")


def attempt(message: str, target: str, now: float, error: str | None = None) -> None:
    texts = {"kind": "alert", "severity": "warning", "title": message, "body": "text"}
    notification_log.record(message, target, **texts, error=error, now=now)


def test_a_message_and_a_target_are_one_row_that_counts_its_attempts():
    attempt("a", "json", NOW, "refused")
    assert not notification_log.has("a", "json")
    attempt("a", "json", NOW + 5)
    assert notification_log.has("a", "json")
    assert not notification_log.has("a", "mailto")
    (row,) = notification_log.latest(5)
    assert (row.result, row.attempts, row.first_attempt_at, row.sent_at) == ("sent", 2, NOW, NOW + 5)


def test_what_is_tried_again_is_claimed_in_order_and_by_one_worker():
    for name in ("a", "b"):
        attempt(name, "json", NOW, "refused")
        notification_log.table.retry_failed(name, NOW + 10)
    assert notification_log.table.waits("json")
    assert notification_log.table.claim_oldest("json", NOW + 9, 120) is None
    assert notification_log.table.claim_oldest("json", NOW + 10, 120).message == "a"
    assert notification_log.table.claim_oldest("json", NOW + 11, 120) is None, "the younger one waits"
    attempt("a", "json", NOW + 12)
    notification_log.table.make_due("json", NOW + 12)
    assert notification_log.table.claim_oldest("json", NOW + 12, 120).message == "b"
    assert notification_log.table.drop_older(NOW + 1) == 1
    assert not notification_log.table.waits("json")
    assert [row.result for row in notification_log.latest(5)] == ["sent", "dropped"]


def test_a_message_that_a_target_has_is_not_dropped():
    attempt("a", "json", NOW)
    notification_log.drop("a", "json")
    assert notification_log.has("a", "json")


def test_a_target_fails_from_its_first_failure_until_it_accepts_a_message():
    targets = ["json", "mailto"]
    assert notification_log.failing(targets) == []
    attempt("a", "json", NOW)
    attempt("a", "mailto", NOW, "refused")
    attempt("b", "json", NOW + 5, "refused")
    attempt("c", "json", NOW + 6, "refused")
    assert notification_log.failing(targets) == [FailingTarget("json", NOW + 5, 2), FailingTarget("mailto", NOW, 1)]
    assert notification_log.failing(["json"]) == [FailingTarget("json", NOW + 5, 2)]
    attempt("test", "json", NOW + 7)
    assert notification_log.failing(["json"]) == []
    assert notification_log.failing([]) == []


def test_the_newest_rows_are_kept(monkeypatch):
    monkeypatch.setattr(notification_sending, "KEPT", 2)
    for number in range(4):
        attempt(str(number), "json", NOW + number)
    assert [row.message for row in notification_log.latest(9)] == ["3", "2"]


def test_a_mute_lasts_until_its_time_or_until_it_is_ended():
    one = mutes.add("quota_low", "known", by="cli", now=NOW, until=NOW + 100)
    two = mutes.add(None, None, by="api", now=NOW, until=NOW + 200)
    assert mutes.active(NOW + 99) == [one, two]
    assert mutes.active(NOW + 100) == [two]
    assert (mutes.end(NOW + 150, one.id), mutes.end(NOW + 150), mutes.end(NOW + 150)) == (0, 1, 0)
    assert mutes.active(NOW + 150) == []


def test_a_scheduled_message_is_claimed_by_one_worker_and_done_once():
    assert not scheduled_messages.claim("weekly_test", NOW - 1, NOW, 120), "none about the time before"
    assert scheduled_messages.claim("weekly_test", NOW + 10, NOW + 11, 120)
    assert not scheduled_messages.claim("weekly_test", NOW + 10, NOW + 12, 120)
    assert scheduled_messages.claim("weekly_test", NOW + 10, NOW + 131, 120), "the first worker died"
    scheduled_messages.done("weekly_test", NOW + 10)
    assert not scheduled_messages.claim("weekly_test", NOW + 10, NOW + 999, 120)
    assert scheduled_messages.claim("weekly_test", NOW + 1000, NOW + 1000, 120)


def test_an_alert_that_is_resolved_while_muted_is_over_without_a_message():
    fire_alert("quota_low", "api", "few", NOW, delay=5.0)
    assert alerts.claim_unnotified(NOW + 6, 120, lambda name: name == "quota_low") == []
    assert alerts.resolve(alerts.firing()[0], NOW + 60, is_muted=True)
    assert alerts.claim_unnotified(NOW + 999, 120) == []
    (row,) = alerts.latest(5)
    assert (row.was_muted, row.notified_at) == (True, None)


def test_one_that_was_notified_and_resolved_while_muted_is_told_later():
    fire_alert("quota_low", "api", "few", NOW)
    (alert,) = alerts.claim_unnotified(NOW, 120)
    alerts.mark_notified(alert, NOW)
    assert alerts.resolve(alert, NOW + 60, is_muted=True)
    assert alerts.claim_unnotified(NOW + 500, 120, lambda name: True) == []
    assert [one.id for one in alerts.claim_unnotified(NOW + 500, 120)] == [alert.id]
    assert db.fetch("SELECT COUNT(*) FROM alerts WHERE resolved_notified_at IS NULL") == [(1,)]
