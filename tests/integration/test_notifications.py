"""What each notification target gets, what is muted, what is sent at set times, and what is said where none is set."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from csi import logs, runtime
from csi.admin import mutes
from csi.alerts import LATE_SECONDS, message
from csi.dlq import dead_letters
from csi.doctor.service_checks import check_verdict
from csi.errors import MissingSetting
from csi.notification_sending import HOLD_SECONDS, RETRY_SECONDS
from csi.runtime import Runtime
from csi.status.alert_overview import alert_overview
from csi.status.facts import gather
from csi.status.problems import ALERTS, KINDS, Problem
from csi.status.verdict import judge
from csi.store import alerts, db, destinations, notification_log, reload_results
from csi.store.models import Watch
from csi.web import metrics
from csi.web.pages import pages
from csi.worker import alerting
from csi.worker.maintenance import write_heartbeat
from csi.worker.notification_sending import sender
from tests.conftest import HandClock
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.integration.test_alerts import CASES
from tests.rigs.in_process import InProcessPipeline

SUNDAY_NOON = 1_771_761_600.0
HOUR, DAY = 3600.0, 86_400.0
QUIET = {"weekly_test": False, "daily_summary": False}


@pytest.fixture
def notification_targets():
    """Two services, by apprise's own JSON form and real HTTP on loopback."""
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    accept = lambda request: (200, {}, {})  # noqa: E731
    with ScriptedReceiver(then=accept) as one, ScriptedReceiver(then=accept) as two:
        yield one, two


def installation(home: Path, clock: HandClock, *targets: ScriptedReceiver, **notify) -> Runtime:
    urls = " ".join(f"json://{re.search(r'127[.0-9]+:[0-9]+', one.url)[0]}/token-of-the-target" for one in targets)
    secrets = {"CSI_NOTIFY_URLS": urls} if targets else {}
    line = InProcessPipeline(home, clock, "http://127.0.0.1:9/", secrets=secrets, sources={}, notify=QUIET | notify)
    write_heartbeat(line.rt, clock())
    return line.rt


def sent_messages(notification_target: ScriptedReceiver) -> list[dict[str, str]]:
    return [json.loads(request.body) for request in notification_target.requests]


def titles(notification_target: ScriptedReceiver) -> list[str]:
    return [one["title"].partition(": ")[2] for one in sent_messages(notification_target)]


def away(opened: bool = True) -> None:
    destinations.change("default", circuit="open" if opened else "closed", reason="http 503")


def look_for(rt: Runtime, clock: HandClock, seconds: float) -> None:
    end = clock() + seconds
    while clock() < end:
        clock.move(min(15.0, end - clock()))
        write_heartbeat(rt, clock())
        alerting.evaluate(rt)


@pytest.fixture(autouse=True)
def connected():
    with db.connection():
        yield


# ── targets ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_target_that_fails_gets_its_message_later_and_the_other_one_gets_it_once(
    tmp_path, clock, notification_targets
):
    good, bad = notification_targets
    bad.script += [503, 503]
    rt = installation(tmp_path, clock, good, bad)
    reload_results.note(clock(), "config.yaml:3: unknown key")
    alerting.evaluate(rt)
    look_for(rt, clock, 4 * HOLD_SECONDS)
    assert titles(good).count("reload refused (config)") == 1
    assert len(bad.requests) == 3
    rows = {one.target: one for one in notification_log.latest(9) if one.kind == "alert" and "reload" in one.title}
    assert {name: (one.result, one.attempts) for name, one in rows.items()} == {
        "json": ("sent", 1),
        "json 2": ("sent", 3),
    }


def test_messages_for_a_target_keep_their_order(tmp_path, clock, notification_targets, monkeypatch):
    good, bad = notification_targets
    bad.script += [503]
    rt = installation(tmp_path, clock, good, bad)
    fires(monkeypatch, "first", "second")
    alerting.evaluate(rt)
    assert (titles(good), len(bad.requests)) == (["dead letters (first)", "dead letters (second)"], 1)
    states = {one.title: (one.state, one.attempts) for one in notification_log.latest(9) if one.target == "json 2"}
    assert states == {"dead letters (first)": ("failed", 1), "dead letters (second)": ("waiting", 0)}
    clock.move(HOLD_SECONDS + 1)
    alerting.evaluate(rt)
    assert titles(bad)[1:] == ["dead letters (first)", "dead letters (second)"]


def fires(monkeypatch, *subjects: str, severity: str = "degraded") -> None:
    texts = ("many are open", "these events were given up", "`csi dlq list`")
    found = [
        Problem("dead_letters", subject, severity, *texts, fails=("alert",), is_proven=True) for subject in subjects
    ]
    monkeypatch.setattr(alerting, "firing", lambda rt: found)


def test_a_message_that_other_targets_have_is_tried_for_a_day(tmp_path, clock, notification_targets):
    good, bad = notification_targets
    bad.then = lambda request: (503, {}, {})
    rt = installation(tmp_path, clock, good, bad)
    reload_results.note(clock(), "config.yaml:3: unknown key")
    alerting.evaluate(rt)
    clock.move(RETRY_SECONDS + 1)
    sender(rt).retry(runtime.notification_targets(rt.settings))
    (row,) = [one for one in notification_log.latest(9) if one.target == "json 2"]
    assert (row.result, row.next_attempt_at, row.attempts) == ("dropped", None, 1)


def test_a_target_that_fails_is_a_problem_that_the_other_targets_are_told_of(tmp_path, clock, notification_targets):
    good, bad = notification_targets
    bad.then = lambda request: (503, {}, {})
    rt = installation(tmp_path, clock, good, bad)
    began = clock()
    reload_results.note(clock(), "config.yaml:3: unknown key")
    alerting.evaluate(rt)
    (problem,) = [one for one in judge(gather(rt)).problems if one.id == "notification_failed"]
    assert (problem.subject, problem.severity, problem.since) == ("json 2", "degraded", began)
    assert "csi notify test" in problem.commands
    look_for(rt, clock, 300)
    assert titles(good) == ["reload refused (config)", "notification failed (json 2)"]
    assert not [title for title in titles(bad) if title.startswith("notification failed")]
    page = metrics.render(rt).decode()
    assert 'csi_problems{problem="notification_failed"} 1.0' in page
    assert 'csi_notifications_total{result="sent"} 2.0' in page
    failed = re.search(r'csi_notifications_total\{result="failed"\} (\d+)', page)
    assert int(failed[1]) >= 2
    bad.then = lambda request: (200, {}, {})
    look_for(rt, clock, 400)
    assert "notification_failed" not in [one.id for one in judge(gather(rt)).problems]
    assert titles(good)[-1] == "notification failed (json 2): resolved"


def test_the_only_target_is_not_told_that_it_failed(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    notification_target.script += [503] * 4
    rt = installation(tmp_path, clock, notification_target)
    reload_results.note(clock(), "config.yaml:3: unknown key")
    alerting.evaluate(rt)
    look_for(rt, clock, 4 * HOLD_SECONDS)
    assert [one.name for one in alerts.firing()] == ["reload_refused", "notification_failed"]
    look_for(rt, clock, 4 * HOLD_SECONDS)
    assert set(titles(notification_target)) == {"reload refused (config)"}
    assert [one.name for one in alerts.firing()] == ["reload_refused"]


def test_one_accepted_test_ends_the_problem(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    notification_target.script.append(503)
    rt = installation(tmp_path, clock, notification_target)
    assert alerting.send_test(rt) == {"json": False}
    assert [one.id for one in judge(gather(rt)).problems] == ["notification_failed"]
    clock.move(1)
    assert alerting.send_test(rt) == {"json": True}
    assert judge(gather(rt)).problems == ()


def test_no_test_without_a_target(tmp_path, clock):
    with pytest.raises(MissingSetting, match="CSI_NOTIFY_URLS"):
        alerting.send_test(installation(tmp_path, clock))


def test_the_first_target_gets_no_messages_about_the_past(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    before = installation(tmp_path, clock)
    away()
    look_for(before, clock, 300)
    away(opened=False)
    look_for(before, clock, 60)
    clock.move(LATE_SECONDS)
    look_for(installation(tmp_path, clock, notification_target), clock, 60)
    assert titles(notification_target) == []


# ── no target ───────────────────────────────────────────────────────────────────────────────────────────


def notices(rt: Runtime) -> list[str]:
    return [one.id for one in judge(gather(rt)).problems]


def test_an_installation_that_would_tell_no_operator_says_so(tmp_path, clock):
    rt = installation(tmp_path, clock)
    assert notices(rt) == ["no_notification_target"]
    assert judge(gather(rt)).status == "ok"
    assert notices(installation(tmp_path, clock, enabled=False)) == []


def test_a_heartbeat_url_suffices(tmp_path, clock):
    secrets = {"CSI_HEARTBEAT_URL": "http://127.0.0.1:9/ping"}
    line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", secrets=secrets, sources={})
    write_heartbeat(line.rt, clock())
    assert notices(line.rt) == []


def test_the_doctor_warns_where_no_target_is_set_and_names_the_targets_otherwise(tmp_path, clock, notification_targets):
    def found(rt: Runtime) -> list[tuple[str, str]]:
        return [(one.level, one.text) for one in check_verdict(rt, gather(rt), online=False) if one.check == "notify"]

    ((level, text),) = found(installation(tmp_path, clock))
    assert (level, "neither a notification target nor a heartbeat URL" in text) == ("warn", True)
    assert found(installation(tmp_path, clock, *notification_targets)) == [
        ("ok", "notifications go to json, json 2; no heartbeat URL is set")
    ]
    off = found(installation(tmp_path, clock, enabled=False))
    assert off == [("ok", "notifications are switched off (notify.enabled)")]


def test_the_log_at_start_says_that_no_target_is_set(tmp_path, clock, notification_targets, capsys):
    alerting.warn_without_target(installation(tmp_path, clock, notification_targets[0]))
    rt = installation(tmp_path, clock)
    logs.setup(level="WARNING", format="json", secrets=[])
    alerting.warn_without_target(rt)
    lines = [line for line in capsys.readouterr().err.splitlines() if "notification target" in line]
    assert len(lines) == 1
    assert "CSI_NOTIFY_URLS" in lines[0]


# ── mutes ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_muted_alert_is_recorded_and_notified_when_the_mute_ends_while_it_fires(
    tmp_path, clock, notification_targets
):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target)
    mutes.mute(rt, 2 * HOUR, reason="new receiver", by="cli")
    away()
    look_for(rt, clock, HOUR)
    found = alert_overview(rt)
    assert (titles(notification_target), [found.is_muted(one) for one in found.recorded]) == ([], [True])
    look_for(rt, clock, HOUR + 60)
    assert titles(notification_target) == ["receiver away (default)"]
    assert not alert_overview(rt).is_muted(alerts.firing()[0])


def test_one_that_began_and_ended_while_muted_is_shown_as_muted_and_never_sent(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target)
    made = mutes.mute(rt, HOUR, by="cli")
    away()
    look_for(rt, clock, 600)
    away(opened=False)
    look_for(rt, clock, 600)
    assert mutes.unmute(rt, made.id, by="cli") == 1
    look_for(rt, clock, 600)
    (record,) = alert_overview(rt).recorded
    assert (titles(notification_target), record.was_muted, record.notified_at) == ([], True, None)


def test_the_end_of_an_alert_that_was_notified_is_told_after_the_mute(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target)
    away()
    look_for(rt, clock, 300)
    mutes.mute(rt, HOUR, by="cli")
    away(opened=False)
    look_for(rt, clock, 1800)
    assert titles(notification_target) == ["receiver away (default)"]
    look_for(rt, clock, 1830)
    assert titles(notification_target)[1:] == ["receiver away (default): resolved"]


def test_a_mute_of_one_problem_lets_others_through(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target)
    mutes.mute(rt, HOUR, problem="receiver_away", by="cli")
    away()
    reload_results.note(clock(), "config.yaml:3: unknown key")
    look_for(rt, clock, 600)
    assert titles(notification_target) == ["reload refused (config)"]


def test_a_restart_keeps_a_mute(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    mutes.mute(installation(tmp_path, clock, notification_target), HOUR, by="cli")
    rt = installation(tmp_path, clock, notification_target)
    away()
    look_for(rt, clock, 600)
    assert titles(notification_target) == []


def test_a_maintenance_window_mutes(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(
        tmp_path, clock, notification_target, windows=[{"days": ["sun"], "start": "12:00", "end": "13:00"}]
    )
    assert clock() == SUNDAY_NOON
    away()
    look_for(rt, clock, HOUR - 15)
    assert titles(notification_target) == []
    look_for(rt, clock, 30)
    assert titles(notification_target) == ["receiver away (default)"]


@pytest.mark.parametrize(
    ("seconds", "problem", "words"),
    [(59, None, "from 1 minute"), (31 * DAY, None, "30 days"), (60, "no_such_alert", "known are worker_silent")],
)
def test_what_cannot_be_muted_is_said(tmp_path, clock, seconds, problem, words):
    with pytest.raises(mutes.CannotMute, match=words):
        mutes.mute(installation(tmp_path, clock), seconds, problem=problem, by="cli")


# ── at set times ────────────────────────────────────────────────────────────────────────────────────────


def test_the_weekly_test_is_sent_on_mondays_once_also_after_a_restart(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    for _ in range(10 * 8):
        rt = installation(tmp_path, clock, notification_target, weekly_test=True)
        alerting.evaluate(rt)
        clock.move(3 * HOUR)
    assert titles(notification_target) == ["weekly test", "weekly test"]
    assert "notify.weekly_test: false" in sent_messages(notification_target)[0]["message"]
    assert sent_messages(notification_target)[0]["type"] == "info"


def test_a_weekly_test_that_no_target_accepts_is_tried_again_and_sent_once(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    notification_target.script += [503, 503]
    rt = installation(tmp_path, clock, notification_target, weekly_test=True)
    alerting.evaluate(rt)
    clock.move(21 * HOUR)
    look_for(rt, clock, 4 * HOLD_SECONDS)
    assert len(notification_target.requests) == 3
    assert set(titles(notification_target)) == {"weekly test"}


def test_two_workers_send_one_weekly_test(tmp_path, clock, notification_targets, monkeypatch):
    notification_target, _ = notification_targets
    one, two = (installation(tmp_path, clock, notification_target, weekly_test=True) for _ in range(2))
    alerting.evaluate(one)
    clock.move(22 * HOUR)
    send = alerting.notifications.send

    def while_sending(*args):
        monkeypatch.setattr(alerting.notifications, "send", send)
        alerting.evaluate(two)
        return send(*args)

    monkeypatch.setattr(alerting.notifications, "send", while_sending)
    alerting.evaluate(one)
    assert titles(notification_target) == ["weekly test"]


def test_a_day_without_anything_to_say_has_no_summary(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target, daily_summary=True)
    for _ in range(3):
        write_heartbeat(rt, clock())
        alerting.evaluate(rt)
        clock.move(DAY)
    assert titles(notification_target) == []


def test_the_daily_summary_names_gone_watches_dead_letters_and_what_no_alert_reports(
    tmp_path, clock, notification_targets, monkeypatch
):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target, daily_summary=True)
    alerting.evaluate(rt)
    row = {"source": "youtube_channel_rss", "ref": "UC1", "name": "Channel 1", "health": "dead", "gone_at": clock()}
    times = {"interval_seconds": 60.0, "next_poll_at": clock() + 10 * DAY, "wake_at": clock() + 10 * DAY}
    Watch.create(**row, **times, tier="standard", origin="config", created_at=clock())
    destinations.change("default", paused_reason="moving", paused_at=clock())
    monkeypatch.setattr(dead_letters, "open_count", lambda: 3)
    clock.move(22 * HOUR)
    write_heartbeat(rt, clock())
    alerting.evaluate(rt)
    alerting.evaluate(rt)
    (text,) = [one["message"] for one in sent_messages(notification_target) if one["title"].endswith("daily summary")]
    assert "1 watch is gone since 2026-02-22: Channel 1" in text
    assert "3 dead letters are open" in text
    assert "delivery to default is paused by the operator" in text
    assert all("What to do: " in line for line in text.splitlines())


def test_a_clock_that_was_ahead_does_not_stop_the_weekly_test(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target, weekly_test=True)
    clock.move(365 * DAY)
    alerting.evaluate(rt)
    clock.move(-365 * DAY)
    alerting.evaluate(rt)
    clock.move(22 * HOUR)
    alerting.evaluate(rt)
    assert titles(notification_target) == ["weekly test"]


def test_set_times_are_muted_with_everything_else(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target, weekly_test=True)
    alerting.evaluate(rt)
    mutes.mute(rt, DAY, by="cli")
    clock.move(22 * HOUR)
    alerting.evaluate(rt)
    assert titles(notification_target) == []
    clock.move(3 * HOUR)
    alerting.evaluate(rt)
    assert titles(notification_target) == ["weekly test"]


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_doctor_names_each_problem_and_its_section_of_the_runbook(tmp_path, clock):
    rt = installation(tmp_path, clock)
    destinations.change("default", circuit="open", reason="http 401: no")
    found = {one.problem: one.runbook for one in check_verdict(rt, gather(rt), online=False) if one.problem is not None}
    assert found["receiver_away"] == "the-receiver-answers-401-or-403"
    assert set(found) == {one.id for one in judge(gather(rt)).problems}


def test_the_doctor_names_a_cause_and_not_what_follows_from_it(tmp_path, clock):
    rt = installation(tmp_path, clock)
    silent = replace(CASES["worker_silent"], oldest_pending=clock() - 3600)
    assert {one.id for one in judge(silent).problems} >= {"worker_silent", "backlog_old"}
    found = list(check_verdict(rt, silent, online=False))
    assert [one.problem for one in found if one.problem is not None] == ["worker_silent"]
    assert "backlog" not in [one.check for one in found]


def test_the_doctor_calls_no_destination_accepting_while_delivery_is_off(tmp_path, clock):
    rt = installation(tmp_path, clock)
    assert "delivery" in [one.check for one in check_verdict(rt, gather(rt), online=False)]
    off = replace(gather(rt), delivery_is_on=False)
    assert "delivery" not in [one.check for one in check_verdict(rt, off, online=False)]


@pytest.mark.parametrize("name", ALERTS)
def test_every_message_says_what_to_do_and_names_no_file_that_is_not_installed(tmp_path, clock, name):
    installation(tmp_path, clock)
    (problem,) = [one for one in judge(CASES[name]).problems if one.id == name]
    alerts.record([problem], clock(), None)
    (alert,) = alerts.firing()
    for one in (alert, replace(alert, resolved_at=clock() + 960, failing_seconds=960.0), replace(alert, remedy="")):
        title, body = message(one, KINDS, "https://csi.example.org")
        assert re.search(r"^What to do: [\w`]", body, re.MULTILINE), body
        assert not re.search(r"ops/|\.md\b|docs/(?!runbook#)", f"{title}{body}")


def test_a_message_has_the_time_that_it_failed(tmp_path, clock, notification_targets):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target)
    away()
    look_for(rt, clock, 960)
    away(opened=False)
    look_for(rt, clock, 60)
    assert (
        "It failed for 16 minutes, from 2026-02-22T12:00:15Z to 2026-02-22T12:16:15Z."
        in sent_messages(notification_target)[1]["message"]
    )


@pytest.mark.parametrize(("severity", "kind"), [("notice", "info"), ("degraded", "warning"), ("down", "failure")])
def test_the_service_is_told_how_severe_it_is(tmp_path, clock, notification_targets, monkeypatch, severity, kind):
    notification_target, _ = notification_targets
    rt = installation(tmp_path, clock, notification_target)
    fires(monkeypatch, "events", severity=severity)
    alerting.evaluate(rt)
    monkeypatch.setattr(alerting, "firing", lambda rt: [])
    look_for(rt, clock, 60)
    assert [one["type"] for one in sent_messages(notification_target)] == [kind, "success"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_each_kind_links_to_a_page_and_a_place_that_exist(kind):
    path, _, anchor = kind.page.partition("#")
    assert path in {page.path for page in pages()}
    templates = Path("csi/web/templates")
    assert not anchor or any(f'id="{anchor}"' in page.read_text() for page in templates.glob("*.html"))
